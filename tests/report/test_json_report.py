"""The JSON report and its published schema."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

from envdoctor import check, diff_revision
from envdoctor.app import RevisionRequest, Sources
from envdoctor.facts import ABSENT, Fact, FactSet, Records, Unknown
from envdoctor.report import Notice, Report, load

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
render = load("json")
Validate = Callable[[str, Any], None]


def read(report: Report) -> Any:
    return json.loads(render(report))


@pytest.fixture
def document(report: Report, validate: Validate) -> Any:
    """The report, which fits its schema."""
    validate("report", read(report))
    return read(report)


def test_an_empty_and_incomplete_report_fits_the_schema(report: Report, validate: Validate) -> None:
    notices = (Notice("error", "no rule could be checked"),)
    nothing = {"facts": FactSet(), "findings": (), "not_checked": (), "rules_checked": 0}
    empty = read(report.changed(**nothing, exit_code=3, notices=notices))  # type: ignore[arg-type]
    validate("report", empty)
    assert (empty["findings"], empty["status"]) == ([], "incomplete")


def test_two_equal_runs_give_the_same_bytes(report: Report) -> None:
    assert render(report) == render(report.changed(elapsed_seconds=9.9))
    assert "elapsed" not in render(report)
    backwards = FactSet(reversed(list(report.facts)))
    backwards.declare_complete("pkg", "x")
    assert render(report) == render(report.changed(facts=backwards)), "whatever the order of observation"


def test_it_is_ascii_and_english_with_chinese_beside(report: Report, document: Any) -> None:
    assert render(report).isascii()
    first, second, *_ = document["findings"]
    assert first["message"].startswith("torch 2.5.0+cu118 gives NaN")
    assert "变成 NaN" in first["message_zh"]
    assert "message_zh" not in second


def test_counts_leave_out_ignored_and_superseded_findings(document: Any) -> None:
    assert document["summary"] == {
        **{"error": 2, "warning": 1, "note": 0, "gate": 2, "ignored": 1, "superseded": 1, "checked": 124},
        "not_checked": 5,
    }
    flags = [(finding.get("ignored"), finding.get("superseded_by")) for finding in document["findings"]]
    assert flags[3:] == [("we measured it", None), (None, "torch-2-5-0-glm4-batch-nan")]


def test_a_finding_carries_probe_fixes_and_withheld_fixes_apart(document: Any) -> None:
    finding = document["findings"][0]
    assert finding["probe"] == "padding-nan"
    assert [fix["summary"] for fix in finding["fixes"]] == ["use torch 2.4.1", "train with one sample per step"]
    assert finding["withheld_fixes"][0]["withheld"].startswith("it would bring")
    assert finding["locations"] == [{"path": "requirements.txt", "line": 3}]
    assert finding["rule_file"] == "rules/torch/torch-2-5-0-glm4-batch-nan.toml"


def test_known_absent_unknown_and_incomplete_facts_differ(report: Report, validate: Validate) -> None:
    gpu = {"name": "T4", "cc": Unknown("?"), "memory_gib": float("inf")}
    values = {
        "pkg.torch": (ABSENT, "site-packages"),
        "cuda.toolkit": (Unknown("nvcc did not answer"), ""),
        "os.memory_gib": (float("nan"), ""),
        "gpu": (Records((gpu,), "NVML gave up"), "NVML"),
    }
    facts = FactSet(Fact(key, value, origin, "machine") for key, (value, origin) in values.items())
    document = read(report.changed(facts=facts, all_facts=True))
    validate("report", document)
    assert document["facts"] == {
        "gpu": {"value": [{"name": "T4"}], "origin": "NVML", "incomplete": "NVML gave up"},
        "pkg.torch": {"value": None, "origin": "site-packages"},
    }
    assert document["unknown_facts"] == {
        "cuda.toolkit": "nvcc did not answer",
        "os.memory_gib": "the value is not a finite number",
    }


def test_what_could_not_be_checked_says_what_was_missing_and_what_helps(document: Any) -> None:
    entries = {entry["id"]: entry for entry in document["not_checked"]}
    missing = [{"key": "model.family", "reason": "not given"}]
    rule = {"id": "b-needs-model", "severity": "error", "missing": missing, "help": ["model"]}
    assert list(entries) == sorted(entries) and entries["b-needs-model"] == rule
    assert set(document["help"]) == {"model", "recipe"}


@pytest.mark.parametrize("broken", [{"surprise": 1}, {"fingerprint": None}, {"fixes": None}])
def test_the_schema_notices_a_wrong_finding(document: Any, validate: Validate, broken: dict[str, Any]) -> None:
    finding = document["findings"][0] | broken
    document["findings"][0] = {key: value for key, value in finding.items() if key != "fingerprint" or value}
    with pytest.raises(ValidationError):
        validate("report", document)


def test_the_rules_of_the_findings_are_listed_once_with_a_title(document: Any) -> None:
    ids = [rule["id"] for rule in document["rules"]]
    assert ids == list(dict.fromkeys(finding["id"] for finding in document["findings"]))
    first = document["rules"][0]
    assert (first["severity"], first["effect"]) == ("error", "wrong-numbers")
    assert first["help_uri"] == "https://github.com/zai-org/GLM-4/issues/724"
    assert first["title"] == "torch ... gives NaN loss for GLM-4 when batch size is above 1"


def test_a_guess_is_a_caveat_and_a_library_s_default_is_none(report: Report) -> None:
    oom = report.findings[1]
    (taken,) = oom.assumed
    guessed = oom._replace(assumed=(taken._replace(default=False),))
    found = read(report.changed(findings=(oom, guessed)))["findings"]
    assert [entry["assumed"][0]["default"] for entry in found] == [True, False]
    assert len(found[1]["caveats"]) == len(found[0]["caveats"]) + 1
    assert "8" in found[1]["caveats"][0] and "TrainingArguments" in found[1]["caveats"][0]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_real_reports_fit_the_schema_and_say_the_same_in_every_language(validate: Validate, lang: str) -> None:
    environments, code = FIXTURES / "environments", FIXTURES / "code" / "attention"
    for one in (
        check(Sources(facts=str(environments / "openrlhf-dpo-glm4.json"))),
        diff_revision(RevisionRequest(str(code / "old"), str(code / "new"), environment=False)),
    ):
        document = json.loads(render(one, lang))
        validate("report", document)
        assert document == read(one)
        assert all("title" in rule and "help_uri" in rule for rule in document["rules"])
    assert document["sections"]["revision"]["weights"] == "none"
    revision = document["sections"]["revision"]
    assert revision["verdict"].startswith("warning: attention is chosen")
    assert {change["state"] for change in revision["changes"]} <= {"judged", "no-effect", "not-judged"}
    assert all(("effect" in change) == (change["state"] == "no-effect") for change in revision["changes"])


def test_a_finding_that_another_one_stands_for_says_so_in_its_status(report: Report, validate: Validate) -> None:
    first, *others = report.findings
    document = read(report.changed(findings=(first._replace(superseded_by="other-rule"), *others)))
    validate("report", document)
    assert document["findings"][0]["status"] == "superseded"
    for finding in document["findings"]:
        assert (finding["status"] == "superseded") == ("superseded_by" in finding)
