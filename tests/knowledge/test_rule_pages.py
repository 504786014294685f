"""The rules as pages: every rule has its place, and is found by package, by model and by what a log says."""

from __future__ import annotations

import re

from observing import shipped
from rule_pages import pages

SHIPPED = shipped()
PAGES = pages(SHIPPED)


def test_every_rule_has_one_section_and_every_link_of_the_index_leads_to_one():
    sections = [
        f"{name}#{rule_id}" for name, text in PAGES.items() for rule_id in re.findall(r"(?m)^## ([a-z0-9-]+)$", text)
    ]
    assert sorted(place.partition("#")[2] for place in sections) == sorted(rule.id for rule in SHIPPED.rules)
    assert set(re.findall(r"\]\(([a-z-]+\.md#[a-z0-9-]+)\)", PAGES["index.md"])) <= set(sections)


def test_a_rule_is_found_by_its_package_its_model_and_the_line_of_a_log():
    _, packages, models, logs = re.split(r"(?m)^## By .*$", PAGES["index.md"])
    window = "[tokenizers-outside-transformers-window](hugging-face.md#tokenizers-outside-transformers-window)"
    assert any(line.startswith("- tokenizers: ") and window in line for line in packages.splitlines())
    assert any(line.startswith("- glm4: ") and "torch-2-5-0-glm4-batch-nan" in line for line in models.splitlines())
    assert any("but found tokenizers==0.19.1" in line and window in line for line in logs.splitlines())
