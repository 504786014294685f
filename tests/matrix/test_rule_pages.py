"""The rules as pages: every rule has its place, and is found by package, by model and by what a log says."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import Browser, chromium
from observing import shipped
from rule_matrix import page
from rule_pages import INDEX, pages

from envdoctor.judge import title_of

SHIPPED = shipped()
PAGES = pages(SHIPPED)
HTML = page(SHIPPED)


def test_the_page_of_a_rule_has_its_message_its_evidence_and_its_fixes():
    for rule in SHIPPED.rules:
        texts, text = SHIPPED.texts(rule), PAGES[f"{rule.id}.md"].replace("\\", "")
        parts = [title_of(texts).en, *(fix["summary"]["en"] for fix in texts["fix"])]
        parts += [part for one in texts["evidence"] for part in (one["url"], one["shows"], one["checked"])]
        assert not [part for part in parts if " ".join(part.split()).replace("\\", "") not in text], rule.id
        assert texts["evidence"]


def test_every_rule_has_a_page_and_every_link_of_the_index_leads_to_one():
    assert sorted(PAGES) == sorted([*(f"{rule.id}.md" for rule in SHIPPED.rules), INDEX])
    assert set(re.findall(r"\]\(([^)]*\.md)\)", PAGES[INDEX])) == set(PAGES) - {INDEX}
    assert not [name for name, text in PAGES.items() if "{{" in text or "{%" in text]  # Pages would take it for Liquid


def test_a_rule_is_found_by_its_package_its_model_and_the_line_of_a_log():
    _, subjects, packages, models, logs = re.split(r"(?m)^## By .*$", PAGES[INDEX])
    window = "[tokenizers-outside-transformers-window](tokenizers-outside-transformers-window.md)"
    assert any(line.startswith("- hugging-face: ") and window in line for line in subjects.splitlines())
    assert any(line.startswith("- tokenizers: ") and window in line for line in packages.splitlines())
    assert any(line.startswith("- glm4: ") and "torch-2-5-0-glm4-batch-nan" in line for line in models.splitlines())
    assert any("but found tokenizers==0.19.1" in line and window in line for line in logs.splitlines())


def test_a_page_has_the_line_of_the_log_what_to_do_and_the_evidence_in_both_languages():
    text = PAGES["torch-2-5-0-glm4-batch-nan.md"]
    assert text.startswith("# torch gives NaN loss for the model ")
    assert "\n## What to do\n" in text and "\n## Evidence\n" in text
    assert "<https://github.com/" in text and "\n## 中文\n" in text
    seen = "    AttributeError: 'ChatGLMConfig' object has no attribute 'max_length'"
    assert seen in PAGES["chatglm-does-not-load-with-transformers-5.md"].splitlines()


class Read(HTMLParser):
    """Every element with its attributes, and the text inside of each rule."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(HTML)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_page_that_is_searched_has_every_rule_and_loads_nothing():
    seen = Read().seen
    ids = [attrs["id"] for tag, attrs in seen if tag == "li" and "id" in attrs]
    assert sorted(map(str, ids)) == sorted(rule.id for rule in SHIPPED.rules)
    links = [str(attrs["href"]) for tag, attrs in seen if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} == set(ids)
    assert all(link.startswith(("#", "https://")) for link in links)
    assert not [tag for tag, attrs in seen if tag in {"img", "link", "iframe", "object"} or "src" in attrs]
    assert not [name for _, attrs in seen for name in attrs if name.startswith("on") or name == "style"]
    policy = next(str(attrs["content"]) for _, attrs in seen if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    for kind in ("style", "script"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", HTML, re.DOTALL)
        assert f"{kind}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="there is no Chromium here")
def test_a_browser_finds_a_rule_by_keyboard_on_a_phone_and_says_nothing(tmp_path: Path):
    (tmp_path / "rules.html").write_text(HTML, encoding="utf-8")
    with Browser(str(chromium()), tmp_path / "profile") as browser:

        def press(key: str, code: int = 0) -> None:
            text = key if len(key) == 1 else "\r" if key == "Enter" else ""
            browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
            browser.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

        browser.open(tmp_path / "rules.html", 375, dark=True)
        for key in "/torch-2-5-0-glm4-batch-nan":
            press(key)
        assert browser.value("document.querySelector('output').textContent") == f"1 of {len(SHIPPED.rules)} rules"
        for _ in range(3):
            press("Tab", 9)
        press("Enter", 13)
        assert browser.value("document.querySelector('li:not([hidden]) details').open") is True
        browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        assert browser.value("document.documentElement.scrollWidth") == 375
        assert browser.said == []
