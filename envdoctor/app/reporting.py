"""What every judging command has: the matrix, the gate, and a report at its end."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from envdoctor.app.rule_names import ignore_notices, under_present_names
from envdoctor.facts.factset import FactSet
from envdoctor.judge.judging import Judgement, judge
from envdoctor.judge.policy import Policy, exit_code
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.observe.request import Target
from envdoctor.report.report import Notice, Report


class Judging:
    """One run of a command: it begins with the matrix (None: the shipped one) and the gate, and ends in a report.
    Raises :class:`~envdoctor.app.errors.UsageProblem` for the severity of a rule that never was."""

    def __init__(self, policy: Policy | None, matrix: Matrix | None, exit_zero: bool) -> None:
        self._started = time.perf_counter()
        self._exit_zero = exit_zero
        self.matrix = matrix or load_matrix()
        self._policy, self._renamed = under_present_names(policy or Policy(), self.matrix)

    def judged(self, facts: FactSet, rules: Matrix, predict: Callable[[FactSet], FactSet] | None = None) -> Judgement:
        """Return the judgement by these rules, with fixes; ``predict`` gives changed facts with the run's memory."""
        judgement = judge(facts, rules, self._policy)
        if not judgement.findings:
            return judgement
        from envdoctor.remedy.fixes import with_fixes  # a healthy environment needs none

        return with_fixes(judgement, rules, predict)

    def of_rules(self, judgement: Judgement) -> list[Notice]:
        """Return the notices about the policy's ignores and rules."""
        return [*self._renamed, *ignore_notices(judgement, self._policy, self.matrix)]

    def report(
        self,
        command: str,
        target: Target,
        judgement: Judgement,
        notices: Iterable[Notice],
        *,
        incomplete: bool = False,
        **sections: Any,
    ) -> Report:
        """Return the report with its exit code: 3 if the job could not be done, 1 for findings at the gate, else 0.
        ``exit_zero`` turns 1 into 0 only. ``sections`` are the parts that the command has besides."""
        return Report(
            command=command,
            target=target,
            facts=judgement.facts,
            registry=self.matrix.registry,
            matrix_version=self.matrix.version,
            matrix_source=self.matrix.source,
            findings=judgement.findings,
            not_checked=judgement.not_checked,
            rules_checked=judgement.rules_checked,
            exit_code=exit_code(judgement.findings, incomplete=incomplete, exit_zero=self._exit_zero),
            notices=tuple(notices),
            passed=judgement.passed,
            plan=judgement.plan,
            **sections,
            elapsed_seconds=time.perf_counter() - self._started,
        )
