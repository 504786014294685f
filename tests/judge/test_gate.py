"""What a project lives with, and when it stops: ignores and baselines, to the exit code."""

from __future__ import annotations

from datetime import date

import known
import pytest

from envdoctor.judge import Ignore, Known, Location, Policy, baseline_state, exit_code
from envdoctor.judge.policy import ignore_reason

TODAY = date(2026, 11, 20)
FACTS = {"pkg.torch": "2.5.0+cu118"}
OK = Ignore("r", "we patched it")
OVER = OK._replace(until=date(2026, 11, 19))
#: (severity, confidence), what is ignored, the baseline, the exit code.
TABLE = [
    (("error", "reported"), (), None, 1),
    (("error", "inferred"), (), None, 0),
    (("warning", "reproduced"), (), None, 0),
    (("note", "reproduced"), (), None, 0),
    (("error", "reported"), (OK,), None, 0),
    (("error", "reported"), (OK._replace(until=TODAY),), None, 0),
    (("error", "reported"), (OVER,), None, 1),
    (("error", "reported"), (OVER, OK), None, 0),
    (("error", "reported"), (OK._replace(id="other"),), None, 1),
    (("error", "reported"), (OK._replace(until_fixed=True),), None, 0),
    (("error", "reported"), (OK._replace(path="configs"),), None, 1),
    (("error", "reported"), (), (), 1),
    (("error", "reported"), (), (Known("r", {}, "error"),), 0),
    (("error", "reported"), (), (Known("r", {}, "warning"),), 1),
    (("error", "reported"), (), (Known("other", {}, "error"),), 1),
    (("error", "reported"), (), (Known("r", {"index": "0"}, "error"),), 1),
    (("error", "reported"), (OVER,), (Known("r", {}, "error"),), 0),
    (("error", "reported"), (OK,), (), 0),
    (("warning", "reported"), (), (), 0),
]


@pytest.mark.parametrize(("level", "ignores", "baseline", "code"), TABLE)
def test_what_fails_a_run(matrix_of, facts, level, ignores, baseline, code):
    matrix = matrix_of({"r": {"rule": {"severity": level[0], "confidence": level[1]}}})
    policy = Policy(ignores=ignores, baseline=baseline, today=TODAY)
    findings = known.judged(facts(FACTS), matrix, policy).findings
    assert len(findings) == 1
    assert exit_code(findings, incomplete=False, exit_zero=False) == code
    assert exit_code(findings, incomplete=False, exit_zero=True) == 0
    assert exit_code(findings, incomplete=True, exit_zero=True) == 3


def test_until_fixed_ends_when_a_release_without_the_problem_is_known(matrix_of, facts):
    fixed = {"rule": {"fixed_in": {"pkg.torch": "2.5.1"}, "open_ended": None}, "affects": [{"pkg.torch": "<2.5.1"}]}
    matrix = matrix_of({"open": {}, "fixed": fixed})
    entries = tuple(Ignore(name, "no fix yet", until_fixed=True) for name in ("open", "fixed"))
    judgement = known.judged(facts(FACTS), matrix, Policy(ignores=entries))
    assert {finding.id: finding.ignored for finding in judgement.findings} == {"open": "no fix yet", "fixed": None}
    assert judgement.expired == entries[1:]
    assert matrix.fixed_in("fixed") == {"pkg.torch": "2.5.1"}


@pytest.mark.parametrize(
    ("pattern", "accepted"),
    [("configs", True), ("./configs/", True), ("configs/*.yaml", True), ("*.yaml", True), ("config", False)],
)
def test_an_ignore_with_a_path_accepts_what_is_edited_there(matrix_of, facts, pattern, accepted):
    (finding,) = known.judged(facts(FACTS), matrix_of({"r": {}})).findings
    entry = Ignore("r", "an old experiment", path=pattern)
    placed = finding._replace(locations=(Location("train.py", 1), Location("./configs/a.yaml", 3)))
    assert (ignore_reason(placed, Policy(ignores=(entry,)), lambda _: False) is not None) is accepted
    assert ignore_reason(finding, Policy(ignores=(entry,)), lambda _: False) is None


def test_a_finding_of_a_record_is_known_by_what_names_the_record_alone(matrix_of, facts):
    parts = {"rule": {"each": "gpu"}, "affects": [{"gpu.cc": ">=7"}]}
    gpus = [{"index": 0, "name": "Tesla T4", "cc": "7.5"}, {"index": 1, "name": "A100", "cc": "8.0"}]
    first, second = known.judged(facts({"gpu": gpus}), matrix_of({"r": parts})).findings
    kept = (Known("r", dict(reversed(first.item.items())), "error"),)
    assert (baseline_state(first, kept), baseline_state(second, kept)) == ("unchanged", "new")
