"""A kernel that hides NaN, and a rule of somebody's own that asks for the experiment on it."""

import os
from pathlib import Path

import pytest
from planted import INSIDE, jobs, seen

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.experiments import Outcome
from envdoctor.matrix import load_matrix

#: A kernel that hides every NaN.
WANTED = {"hidden": ("hidden-nan", jobs("nan-honesty", "full"))}


@pytest.mark.torch
def test_a_kernel_that_hides_nan_fails(outcomes: dict[str, list[Outcome]]) -> None:
    result = seen(outcomes["hidden"])
    assert {group.verdict for group in result.wrong} == {"fail"}
    assert "probe-nan-hidden" in {finding.id for finding in result.told}


#: A rule of somebody's own about any torch, which an experiment settles.
RULE = """schema = 1
[rule]
status = "active"
severity = "note"
confidence = "reported"
effect = "wrong-numbers"
probe = "nan-honesty"
added = 2026-11-20
modified = 2026-11-20
open_ended = true
[[affects]]
"pkg.torch" = "present"
[message]
en = "torch {pkg.torch} may hide a NaN"
zh = "torch {pkg.torch} 可能隐藏 NaN"
[why]
en = "A stand-in."
zh = "占位。"
[[evidence]]
issue = "https://github.com/pytorch/pytorch/issues/141128"
shows = "it did"
checked = 2026-11-20
"""


@pytest.mark.torch
def test_check_judges_what_its_experiments_found_by_the_rules_about_experiments(
    torch_python: str, tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "x-may-hide-nan.toml").write_text(RULE, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(INSIDE), "ENVDOCTOR_TEST_FAULT": "hidden-nan"}
    environ["XDG_CACHE_HOME"] = str(cache)
    sources = Sources(python=torch_python, cwd=tmp_path, environ=environ)
    matrix = load_matrix([tmp_path])
    report = check(sources, matrix=matrix, probe=True)
    section = report.probe
    assert {group.signature for group in section["groups"]} == {"nan-hidden"}
    if section["in_use"]:
        result = [finding for finding in report.findings if finding.item.get("name") == "nan-honesty"]
        assert {finding.id for finding in result if finding.superseded_by is None} == {"probe-nan-hidden"}
    without = check(sources, matrix=matrix)
    assert "probe-nan-hidden" not in {finding.id for finding in without.findings}
