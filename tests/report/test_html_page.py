"""The HTML page: nothing in it can act, nothing is asked of the network, and it reads well in a real browser."""

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, chromium
from poisoned_reports import BAD, compared, poisoned, section_of_experiments

from envdoctor.peak import MemorySection
from envdoctor.report import Report, load

MEMORY: MemorySection = {
    **{"level": "traced", "model": "glm", "layers": 40, "parameters": 9_400_000_000, "trained_parameters": 2_785_280},
    **{"batch": 1, "tokens": 6001, "processes": 1, "allocated_gib": 66.0, "reserved_gib": [66.5, 70.0]},
    **{"process_gib": [66.8, 90.6], "gpu": "A100-80GB", "total_gib": 80.0, "free_gib": 76.0, "verdict": "tight"},
    **{
        "interval": {
            **{"of": "", "allocated": [66.0] * 3, "reserved": [66.5, 68.0, 70.0], "process": [66.8, 68.6, 90.6]},
            "mostly": 66.8,
        },
        "phase": "backward",
        "operation": "aten.mm",
        "serving": None,
        "savers": [],
        "assumed": ["no <b>code</b> ran"],
    },
    "terms": [{"name": "attention", "gib": 40.0}, {"name": "weights", "gib": 17.5}, {"name": "MLP", "gib": 8.5}],
    "changes": [{"set": {"recipe.gradient_checkpointing": True}, "gib": 17.0, "verdict": "fits", "keys": {}}],
    "reach": [{"batch": 1, "tokens": 5120}],
}
VOID = {"meta"}
render = load("html")


class Read(HTMLParser):
    """Reads a page, and holds that every element is closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)


@pytest.fixture
def full(report: Report) -> Report:
    """A report with every section."""
    revision = compared(report, "modeling_chatglm.py").revision
    lines = ("@@ -1,2 +1,3 @@", " def forward(self):", "-    return x", "+    x = f(x)", "+    return <b>x</b>")
    held = {"old": {"F16": (199, 6_243_584_000, 12_487_168_000)}, "new": {"F32": (199, 6_243_584_000, 24_974_336_000)}}
    amounts = {side: {"dtype": by, "module": {}} for side, by in held.items()}
    assert revision is not None
    return report.changed(
        memory=MEMORY,
        probe=section_of_experiments("attention"),
        revision=revision._replace(
            amounts=amounts, changes=tuple(change._replace(hunk=lines) for change in revision.changes[:1])
        ),
        unjudged=("torch is not installed there",),
        probe_commands={"padding-nan": "envdoctor probe --only padding-nan"},
    )


def test_the_page_says_what_the_report_says(full: Report) -> None:
    text = " ".join(Read(render(full)).words)
    for words in (
        "Stopped by 2 finding",
        "torch 2.5.0+cu118 gives NaN loss for GLM-4 when batch size is above 1",
        "requirements.txt:3",
        "pip install torch==2.4.1+cu118",
        "github.com/zai-org/GLM-4/issues/724",
        "8 x NVIDIA A100-SXM4-80GB (sm_80)",
        "5 rules could not be checked",
        "we measured it",
        "about 68.6 GiB on the GPU (66.8 to 90.6)",
        "F32 6.24 G (25 GB)",
        "envdoctor probe --only padding-nan",
    ):
        assert words in text, words


def test_changed_lines_stand_side_by_side(full: Report) -> None:
    words = [word.strip("\n") for word in Read(render(full)).words]
    at = words.index("modeling_chatglm.py (+2 \u22121)")
    lines = ["@@ -1,2 +1,3 @@", *["def forward(self):"] * 2, "    return x", "    x = f(x)", "    return <b>x</b>"]
    assert words[at + 1 : at + 7] == lines


def test_a_gate_that_was_switched_off_is_said(full: Report) -> None:
    assert "Nothing stops this run (--exit-zero; 2 at the gate)" in render(full.changed(exit_code=0))


def test_its_policy_allows_its_own_style_and_nothing_else(full: Report) -> None:
    text = render(full)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    (policy,) = [attrs["content"] for tag, attrs in Read(text).seen if attrs.get("http-equiv")]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style[1] and "@import" not in style[1]


@pytest.mark.parametrize("bad", ['"><script>alert(1)</script>', BAD, "]]></style><img src=x onerror=y>", "x" * 100_000])
def test_no_text_becomes_markup(full: Report, bad: str) -> None:
    for lang in ("en", "zh"):
        page = Read(render(compared(poisoned(full, bad, lang_text=bad), bad), lang))
        assert {tag for tag, _ in page.seen}.isdisjoint({"script", "img", "iframe", "object", "form", "link", "base"})
        for _, attrs in page.seen:
            assert not [name for name in attrs if name.startswith("on") or name == "style"]
            assert attrs.get("href", "#") == "#findings" or str(attrs.get("href", "https://")).startswith("https://")


def test_a_chinese_page_says_so(report: Report) -> None:
    text = render(report, "zh")
    assert '<html lang="zh-CN">' in text and "被 2 个发现阻止" in text and "GLM-4 的 loss 变成 NaN" in text


# --- in a real browser -----------------------------------------------------------------------------------------------

#: Texts whose contrast is below 4.5 (WCAG 2 AA, https://www.w3.org/TR/WCAG22/#contrast-minimum).
CONTRAST = """
(() => {
  const numbers = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const ground = (e) => {
    const c = e ? numbers(getComputedStyle(e).backgroundColor) : [255, 255, 255];
    return c.length === 3 || c[3] > 0 ? c : ground(e.parentElement);
  };
  const faint = [];
  for (const e of document.body.querySelectorAll('*')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) faint.push(e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40));
  }
  return faint;
})()
"""
#: Levels of headings, pictures without words, links without text, equal ids.
STRUCTURE = """
(() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const ids = all('[id]').map((e) => e.id);
  return {
    headings: all('h1,h2,h3,h4').map((e) => Number(e.tagName[1])),
    wordless: all('[role=img]').filter((e) => !e.getAttribute('aria-label')).length
      + all('a').filter((e) => !e.textContent.trim()).length,
    twice: ids.length - new Set(ids).size,
    language: document.documentElement.lang,
  };
})()
"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium here; ENVDOCTOR_TEST_CHROMIUM may name one")
    with Browser(program, tmp_path / "profile") as browser:
        yield browser


@pytest.mark.slow
def test_it_reads_well_in_a_real_browser(browser: Browser, full: Report, tmp_path: Path) -> None:
    pages: dict[str, Any] = {
        "en": full,
        "zh": full,
        "bad": compared(poisoned(full, BAD + "x" * 3000, lang_text=BAD), "y" * 900),
    }
    for name, report in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(render(report, "zh" if name == "zh" else "en"), encoding="utf-8")
        for width in (375, 1100):
            for dark in (False, True):
                browser.open(path, width, dark=dark)
                assert browser.value("document.documentElement.scrollWidth") <= width, (name, width)
                assert browser.value(CONTRAST) == [], (name, width, dark)
                ground = browser.value("getComputedStyle(document.documentElement).backgroundColor")
                assert ground == ("rgb(16, 19, 26)" if dark else "rgb(244, 245, 248)")
    browser.open(tmp_path / "en.html", 1100)
    night = {"name": "prefers-color-scheme", "value": "dark"}
    browser.ask("Emulation.setEmulatedMedia", media="print", features=[night])
    assert browser.value(CONTRAST) == [], "paper is white at night, too"
    found = browser.value(STRUCTURE)
    levels = found.pop("headings")
    assert levels[0] == 1 and all(later - earlier <= 2 for earlier, later in pairwise(levels))
    assert found == {"wordless": 0, "twice": 0, "language": "en"}
    assert browser.value("document.querySelectorAll('article').length") == 3
    for _ in range(2):  # the first stop is the link that skips the header
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.value("document.activeElement.tagName") in ("A", "PRE", "DIV")
    assert browser.said == []
