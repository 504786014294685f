"""What a project lives with, and when it stops: ignores and baselines, to the exit code."""

from datetime import date
from itertools import product

import known
import pytest

from envdoctor.facts import Origin
from envdoctor.judge import CONFIDENCES, SEVERITIES, Ignore, Known, Policy, baseline_state, exit_code

TODAY = date(2026, 11, 20)
FACTS = {"pkg.torch": "2.5.0+cu118"}
OK = Ignore("r", "we patched it")
OVER = OK._replace(until=date(2026, 11, 19))
REPORTED = ("error", "reported")
#: (severity, confidence), what is ignored, the baseline, the exit code.
TABLE = [
    (REPORTED, (), None, 1),
    (("error", "inferred"), (), None, 0),
    (("warning", "reproduced"), (), None, 0),
    (("note", "reproduced"), (), None, 0),
    (REPORTED, (OK,), None, 0),
    (REPORTED, (OK._replace(until=TODAY),), None, 0),
    (REPORTED, (OVER,), None, 1),
    (REPORTED, (OVER, OK), None, 0),
    (REPORTED, (OK._replace(id="other"),), None, 1),
    (REPORTED, (OK._replace(until_fixed=True),), None, 0),
    (REPORTED, (OK._replace(path="configs"),), None, 1),
    (REPORTED, (), (), 1),
    (REPORTED, (), (Known("r", {}, "error"),), 0),
    (REPORTED, (), (Known("r", {}, "warning"),), 1),
    (REPORTED, (), (Known("other", {}, "error"),), 1),
    (REPORTED, (), (Known("r", {"index": "0"}, "error"),), 1),
    (REPORTED, (OVER,), (Known("r", {}, "error"),), 0),
    (REPORTED, (OK,), (), 0),
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


def test_the_gate_table(matrix_of, facts):
    """Every rule by its severity, confidence and status, ignored or not, in the baseline or not; at every gate."""
    rules = list(product(SEVERITIES, CONFIDENCES, ("active", "preview"), (False, True), (False, True)))
    heads = [dict(zip(("severity", "confidence", "status"), row[:3], strict=True)) for row in rules]
    matrix = matrix_of({f"r{number}": {"rule": head} for number, head in enumerate(heads)})
    ignores = tuple(Ignore(f"r{number}", "known") for number, row in enumerate(rules) if row[3])
    baseline = tuple(Known(f"r{number}", {}, row[0]) for number, row in enumerate(rules) if row[4])
    for fail_on, fail_confidence in product(SEVERITIES, CONFIDENCES):
        judgement = known.judged(facts(FACTS), matrix, Policy(fail_on, fail_confidence, ignores, {}, TODAY, baseline))
        assert {int(finding.id[1:]) for finding in judgement.findings if finding.gate} == {
            number
            for number, (severity, confidence, status, ignored, accepted) in enumerate(rules)
            if SEVERITIES.index(severity) >= SEVERITIES.index(fail_on)
            and CONFIDENCES.index(confidence) >= CONFIDENCES.index(fail_confidence)
            and status == "active"
            and not ignored
            and not accepted
        }


def test_until_fixed_ends_when_a_release_without_the_problem_is_known(matrix_of, facts):
    fixed = {"rule": {"fixed_in": {"pkg.torch": "2.5.1"}, "open_ended": None}, "affects": [{"pkg.torch": "<2.5.1"}]}
    matrix = matrix_of({"open": {}, "fixed": fixed})
    entries = tuple(Ignore(name, "no fix yet", until_fixed=True) for name in ("open", "fixed"))
    judgement = known.judged(facts(FACTS), matrix, Policy(ignores=entries))
    assert {finding.id: finding.ignored for finding in judgement.findings} == {"open": "no fix yet", "fixed": None}
    assert judgement.expired == entries[1:]
    assert matrix.fixed_in("fixed") == "torch 2.5.1"


@pytest.mark.parametrize(
    ("pattern", "accepted"),
    [("configs", True), ("./configs/", True), ("configs/*.yaml", True), ("*.yaml", True), ("config", False)],
)
def test_an_ignore_with_a_path_accepts_what_is_edited_there(matrix_of, facts, pattern, accepted):
    matrix = matrix_of({"r": {"affects": [{"pkg.torch": "present", "model.family": "glm4"}]}})
    policy = Policy(ignores=(Ignore("r", "an old experiment", path=pattern),))
    edited = Origin("train.py", 1), Origin("./configs/a.yaml", 3)
    for places, ignored in ((edited, accepted), (("--set", "--model"), False)):
        known_facts = facts({**FACTS, "model.family": "glm4"})
        known_facts.update([fact._replace(origin=place) for fact, place in zip(known_facts, places, strict=True)])
        (finding,) = known.judged(known_facts, matrix, policy).findings
        assert (finding.ignored is not None) is ignored


WHOLE = {"rule": {"each": "gpu"}, "affects": [{"gpu.cc": ">=7", "model.name": "glm"}]}
GPUS = [{"index": 0, "name": "Tesla T4", "cc": "7.5"}, {"index": 1, "name": "A100", "cc": "8.0"}]


@pytest.mark.parametrize(
    ("where", "accepted"),
    [
        ({"gpu.name": "tesla t4"}, ["Tesla T4"]),
        ({"model.name": "glm"}, ["Tesla T4", "A100"]),  # facts of the finding count too
        ({"model.name": "A100"}, []),
        ({"gpu.name": "a100", "model.name": "GLM"}, ["A100"]),
        ({"gpu.uuid": "x"}, []),
    ],
)
def test_an_ignore_with_where_accepts_only_that_record(matrix_of, facts, where, accepted):
    policy = Policy(ignores=(Ignore("r", "old card", where=where),))
    judgement = known.judged(facts({"gpu": GPUS, "model.name": "glm"}), matrix_of({"r": WHOLE}), policy)
    assert [finding.item["name"] for finding in judgement.findings if finding.ignored] == accepted


def test_an_ignore_that_expired_is_named_once_for_many_records(matrix_of, facts):
    judgement = known.judged(
        facts({"gpu": GPUS, "model.name": "glm"}), matrix_of({"r": WHOLE}), Policy(ignores=(OVER,), today=TODAY)
    )
    assert judgement.expired == (OVER,) and all(finding.gate for finding in judgement.findings)


def test_an_ignore_that_matched_nothing_is_dead_only_when_its_rule_was_decided(matrix_of, facts):
    matrix = matrix_of(
        {"r": {}, "no": {"affects": [{"pkg.torch": "==9"}]}, "open": {"affects": [{"model.family": "x"}]}}
    )
    entries = (OK, Ignore("no", "…"), Ignore("open", "…"))
    judgement = known.judged(facts(FACTS), matrix, Policy(ignores=entries))
    assert (judgement.dead, judgement.expired) == (entries[1:2], ())
    assert [finding.ignored for finding in judgement.findings] == ["we patched it"]


def test_a_finding_of_a_record_is_known_by_what_names_the_record_alone(matrix_of, facts):
    first, second = known.judged(facts({"gpu": GPUS, "model.name": "glm"}), matrix_of({"r": WHOLE})).findings
    kept = (Known("r", dict(reversed(first.item.items())), "error"),)
    assert (baseline_state(first, kept), baseline_state(second, kept)) == ("unchanged", "new")
