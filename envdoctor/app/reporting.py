"""What every judging command has: the matrix, the gate, and a report at its end."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from envdoctor.app.baseline import stale
from envdoctor.app.errors import UsageProblem
from envdoctor.facts.factset import FactSet
from envdoctor.judge.judging import Judgement, judge
from envdoctor.judge.policy import Policy, exit_code
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.observe.request import Target
from envdoctor.report.report import Notice, Report
from envdoctor.system.message import Message
from envdoctor.system.nearest import did_you_mean


class Judging:
    """One run of a command: it begins with the matrix (None: the shipped one) and the gate, and ends in a report.
    Raises :class:`~envdoctor.app.errors.UsageProblem` for the severity of a rule that never was."""

    def __init__(self, policy: Policy | None, matrix: Matrix | None, exit_zero: bool) -> None:
        self._started = time.perf_counter()
        self._exit_zero = exit_zero
        self.matrix = matrix or load_matrix()
        self._policy, self._renamed = _under_present_names(policy or Policy(), self.matrix)

    def judged(self, facts: FactSet, rules: Matrix, predict: Callable[[FactSet], FactSet] | None = None) -> Judgement:
        """Return the judgement by these rules, with fixes; ``predict`` gives changed facts with the run's memory."""
        judgement = judge(facts, rules, self._policy)
        if not judgement.findings:
            return judgement
        from envdoctor.remedy.fixes import with_fixes  # a healthy environment needs none

        return with_fixes(judgement, rules, predict)

    def of_rules(self, judgement: Judgement) -> list[Notice]:
        """Return the notices about the policy's ignores and rules."""
        return [*self._renamed, *_ignore_notices(judgement, self._policy, self.matrix)]

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


def _under_present_names(policy: Policy, matrix: Matrix) -> tuple[Policy, list[Notice]]:
    """Return the policy with every rule under its present id, and notices of former ids. Raises :class:`UsageProblem`
    for the severity of a rule that never was."""
    notices: list[Notice] = []
    known = matrix.origins() if policy.severities or policy.ignores else {}

    def present(rule_id: str, where: str) -> str:
        now = rule_id if rule_id in known else _now(rule_id, matrix)
        if now != rule_id:
            notices.append(Notice("note", Message("{} {} names {} by its former id", where, rule_id, now)))
        return now

    for rule_id in policy.severities:
        if rule_id not in known and matrix.retired(rule_id) is None:
            hint = did_you_mean(rule_id, known, Message("`envdoctor matrix list` names them"))
            raise UsageProblem("rules: {}: there is no such rule; {}", rule_id, hint)
    renamed = policy._replace(
        baseline=policy.baseline and tuple(one._replace(id=_now(one.id, matrix)) for one in policy.baseline),
        severities={present(rule_id, "rules:"): level for rule_id, level in policy.severities.items()},
        ignores=tuple(
            entry._replace(id=present(entry.id, Message("{}: the ignore of", entry.origin))) for entry in policy.ignores
        ),
    )
    return renamed, notices


def _now(rule_id: str, matrix: Matrix) -> str:
    retired = matrix.retired(rule_id)
    return rule_id if retired is None or retired.now is None else retired.now


def _ignore_notices(judgement: Judgement, policy: Policy, matrix: Matrix) -> Iterator[Notice]:
    """Yield notices of ignores that ended, name no rule or match nothing, and of what is gone from the baseline."""
    for entry in judgement.expired:
        fixed = matrix.fixed_in(entry.id) if entry.until_fixed else {}
        release = ", ".join(f"{key.removeprefix('pkg.')} {version}" for key, version in fixed.items())
        text = "{}: the ignore of {} ended on {}: the finding is back"
        ended = "{}: the ignore of {} ended with {}, which has the fix"
        yield Notice("warning", Message(ended if release else text, entry.origin, entry.id, release or entry.until))
    known = matrix.origins() if policy.ignores else {}
    for entry in (one for one in policy.ignores if one.id not in known):
        yield Notice("warning", Message("{}: the ignore of {} names no rule of this matrix", entry.origin, entry.id))
    for entry in judgement.dead:
        yield Notice("note", Message("{}: the ignore of {} matched nothing: it can be removed", entry.origin, entry.id))
    gone = stale(policy.baseline or (), judgement.findings, judgement.passed)
    if gone:
        text = Message(
            "findings of the baseline that are gone: {}; --write-baseline beside --baseline drops them", len(gone)
        )
        yield Notice("note", text)
