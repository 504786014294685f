"""The rules as pages: every rule has its place, and is found by package, by model and by what a log says."""

import re

import pytest
from observing import shipped
from rule_pages import INDEX, pages

from envdoctor.judge import title_of

SHIPPED = shipped()
PAGES = pages(SHIPPED)


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


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("driver 550 is needed, this node has {driver.version}", "driver 550 is needed, this node has ..."),
        ("it was built with {pkg.torch}", "it was built with ..."),
        ("torch {pkg.torch} hangs on driver {driver.version}", "torch hangs on driver"),
    ],
)
def test_a_sentence_without_its_version_has_no_gap(message, said):
    assert title_of({"message": message, "title": ""}).en == said
