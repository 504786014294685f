"""The plan in a report: once, after the findings, with what it ends, in both languages and in JSON."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.report import Report, load, render

#: What these packages cannot be imported without.
BESIDE = {
    **{"pkg.filelock": "3.20.0", "pkg.fsspec": "2025.9.0", "pkg.httpx": "0.28.1", "pkg.numpy": "2.3.4"},
    **{"pkg.packaging": "25.0", "pkg.pyyaml": "6.0.3", "pkg.regex": "2025.9.1", "pkg.requests": "2.32.5"},
    **{"pkg.safetensors": "0.6.2", "pkg.tqdm": "4.67.1", "pkg.typing-extensions": "4.15.0"},
}
ONE = {**BESIDE, "pkg.transformers": "4.57.6", "pkg.huggingface-hub": "1.0.0", "pkg.tokenizers": "0.22.2"}
TWO = {**ONE, "pkg.tokenizers": "0.23.3"}


@pytest.fixture
def checked(tmp_path: Path) -> Callable[[Mapping[str, str]], Report]:
    def run(facts: Mapping[str, str]) -> Report:
        path = tmp_path / "facts.json"
        path.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": facts, "complete": ["pkg"]}))
        return check(Sources(facts=str(path)))

    return run


def test_two_errors_end_with_one_plan(checked: Callable[[Mapping[str, str]], Report]) -> None:
    text = render(checked(TWO))
    before, heading, plan = text.partition("\nPlan: these changes together end 2 findings and bring no error: ")
    assert heading and "error[tokenizers-outside-transformers-window]" in before
    names, command, *_ = plan.splitlines()
    assert set(names.split(", ")) == {
        "huggingface-hub-outside-transformers-window",
        "tokenizers-outside-transformers-window",
    }
    assert command.startswith("  python -m pip install ")


def test_the_fix_of_one_finding_is_not_told_twice(checked: Callable[[Mapping[str, str]], Report]) -> None:
    report = checked(ONE)
    assert report.plan is not None and report.plan.commands == report.findings[0].fixes[0].commands
    assert "Plan:" not in render(report)


def test_the_plan_is_chinese_in_a_chinese_report(checked: Callable[[Mapping[str, str]], Report]) -> None:
    assert "方案：以下改动合在一起可消除 2 个问题" in render(checked(TWO), "zh")


def test_json_has_the_commands_and_the_findings_that_they_end(
    checked: Callable[[Mapping[str, str]], Report], validate: Callable[[str, Any], None]
) -> None:
    document = json.loads(load("json")(checked(TWO)))
    validate("report", document)
    plan = document["plan"]
    assert {one["fingerprint"] for one in plan["clears"]} == {
        one["fingerprint"]
        for one in document["findings"]
        if one["severity"] == "error" and one.get("superseded_by") is None
    }
    assert plan["leaves"] == [] and len(plan["commands"]) == 1
    assert "note" not in plan
