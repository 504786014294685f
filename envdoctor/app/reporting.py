"""What every judging command ends with: the rules of its own, and the judgement as a report."""

import time
from collections.abc import Iterable
from typing import Any

from envdoctor.app.rule_names import ignore_notices, under_present_names
from envdoctor.facts.factset import FactSet
from envdoctor.judge.judging import Judgement, judge
from envdoctor.judge.policy import Policy, exit_code
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.request import Target
from envdoctor.report.report import Notice, Report


def judged(facts: FactSet, scope: str, policy: Policy | None, matrix: Matrix) -> tuple[Judgement, list[Notice]]:
    """By the rules of one scope, with the fixes, and what is to be said of the policy's ignores and rules.

    Raises :class:`~envdoctor.app.errors.UsageProblem` for the severity of a rule that never was.
    """
    from envdoctor.install.fixes import with_fixes

    rules = matrix.of_scopes(scope)
    policy, renamed = under_present_names(policy or Policy(), matrix)
    judgement = with_fixes(judge(facts, rules, policy), rules)
    return judgement, [*renamed, *ignore_notices(judgement, policy, matrix)]


def report_of(
    command: str,
    target: Target,
    judgement: Judgement,
    matrix: Matrix,
    *,
    incomplete: bool,
    exit_zero: bool,
    notices: Iterable[Notice],
    started: float,
    **sections: Any,
) -> Report:
    """The report with its exit code: 3 when the job could not be done, else 1 for findings at the gate, else 0.

    ``exit_zero`` turns 1 into 0 only. ``started`` is a reading of ``time.perf_counter()``, ``sections`` are the parts
    that the command has besides.
    """
    return Report(
        command=command,
        target=target,
        facts=judgement.facts,
        registry=matrix.registry,
        matrix_version=matrix.version,
        matrix_source=matrix.source,
        findings=judgement.findings,
        not_checked=judgement.not_checked,
        rules_checked=judgement.rules_checked,
        exit_code=exit_code(judgement.findings, incomplete=incomplete, exit_zero=exit_zero),
        notices=tuple(notices),
        passed=judgement.passed,
        plan=judgement.plan,
        **sections,
        elapsed_seconds=time.perf_counter() - started,
    )
