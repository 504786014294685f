"""The frame of every judging command: the matrix, the gate, and the report; with several machines in one run, each
target is judged by itself, and the answers become one report."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from envdoctor.app.errors import UsageProblem
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Unknown
from envdoctor.judge.finding import SEVERITIES, Finding, Policy, exit_code, stale
from envdoctor.judge.judging import Judgement, judge
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.observe.request import Target
from envdoctor.report.report import Notice, Report, TargetOutcome
from envdoctor.system.message import Message, did_you_mean


class Judging:
    """One run of a command: it begins with the matrix (None: the shipped one) and the gate, and ends in a report.
    Raises :class:`~envdoctor.app.errors.UsageProblem` for the severity of a rule that never existed."""

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
        """Return the notices about rules that cannot be evaluated, and about the policy's ignores and rules."""
        text, files = "{}: this rule was not checked: {}", self.matrix.files
        unread = [Notice("warning", Message(text, files[rule.id], rule.problems[0])) for rule in self.matrix.broken]
        return [*unread, *self._renamed, *_ignore_notices(judgement, self._policy, self.matrix)]

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
        ``exit_zero`` turns 1 into 0 only. ``sections`` are the command's other parts of the report."""
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
    for the severity of a rule that never existed."""
    notices: list[Notice] = []
    ids = matrix.origins() if policy.severities or policy.ignores else {}

    def present(rule_id: str, where: str) -> str:
        now = rule_id if rule_id in ids else _now(rule_id, matrix)
        if now != rule_id:
            notices.append(Notice("note", Message("{} {} names {} by its former id", where, rule_id, now)))
        return now

    for rule_id in policy.severities:
        if rule_id not in ids and matrix.retired(rule_id) is None:
            hint = did_you_mean(rule_id, ids, Message("`envdoctor matrix list` names them"))
            raise UsageProblem("rules: {}: there is no such rule; {}", rule_id, hint)
    renamed = policy._replace(
        baseline=policy.baseline and tuple(entry._replace(id=_now(entry.id, matrix)) for entry in policy.baseline),
        severities={present(rule_id, "rules:"): level for rule_id, level in policy.severities.items()},
        ignores=tuple(
            entry._replace(id=present(entry.id, Message("{}: the ignore of", entry.origin))) for entry in policy.ignores
        ),
    )
    return renamed, notices


def _now(rule_id: str, matrix: Matrix) -> str:
    return str((matrix.retired(rule_id) or {}).get("now", rule_id))


def _ignore_notices(judgement: Judgement, policy: Policy, matrix: Matrix) -> Iterator[Notice]:
    """Yield notices of ignores that ended, name no rule or match nothing, and of baseline findings that are gone."""
    for entry in judgement.expired:
        fixed = matrix.fixed_in(entry.id) if entry.until_fixed else {}
        release = ", ".join(f"{key.removeprefix('pkg.')} {version}" for key, version in fixed.items())
        text = "{}: the ignore of {} ended on {}: the finding is back"
        ended = "{}: the ignore of {} ended with {}, which has the fix"
        yield Notice("warning", Message(ended if release else text, entry.origin, entry.id, release or entry.until))
    ids = matrix.origins() if policy.ignores else {}
    for entry in (ignore for ignore in policy.ignores if ignore.id not in ids):
        yield Notice("warning", Message("{}: the ignore of {} names no rule of this matrix", entry.origin, entry.id))
    for entry in judgement.dead:
        yield Notice("note", Message("{}: the ignore of {} matched nothing: it can be removed", entry.origin, entry.id))
    entries = stale(policy.baseline or (), judgement.findings, judgement.passed)
    if entries:
        text = Message(
            "findings of the baseline that are gone: {}; --write-baseline beside --baseline drops them", len(entries)
        )
        yield Notice("note", text)


#: The options of one machine, by the name behind ``--target-``.
Typed = Mapping[str, str]

_MOST = 24
#: Exit codes from the best to the worst.
_WORSE = (0, 1, 3, 2)


def targets_of(options: Mapping[str, Sequence[str]]) -> list[Typed]:
    """Return every combination of the values of the given options. Raises :class:`UsageProblem` if they are too many to
    read."""
    chosen = {name: list(dict.fromkeys(values)) for name, values in options.items() if values}
    targets: list[Typed] = [dict(zip(chosen, values, strict=True)) for values in product(*chosen.values())]
    if len(targets) > _MOST:
        raise UsageProblem("{} targets: at most {} are judged in one run", len(targets), _MOST)
    return targets


def check_targets(targets: Sequence[Typed], judged: Callable[[Typed], Report]) -> Report:
    """Return one report for all targets: a finding of some targets has their names; the exit code is the worst.
    ``judged`` returns the report of one target. The facts are those that all targets share."""
    reports = [judged(target) for target in targets]
    if len(reports) == 1:
        return reports[0]
    differing = [name for name in targets[0] if len({target[name] for target in targets}) > 1]
    names = [", ".join(f"{name} {target[name]}" for name in differing) for target in targets]
    first, outcomes = reports[0], []
    names_of: dict[Notice, list[str]] = {}
    for name, report in zip(names, reports, strict=True):
        shown = [finding.severity for finding in report.shown()]
        outcomes.append(TargetOutcome(name, shown.count("error"), shown.count("warning"), report.exit_code))
        for notice in report.notices:
            names_of.setdefault(notice, []).append(name)
    notices = [
        notice if len(where) == len(reports) else notice._replace(text=Message("{}: {}", "; ".join(where), notice.text))
        for notice, where in names_of.items()
    ]
    shared = first.facts.copy()
    for fact in first.facts:
        if any(report.facts.value(fact.key) != fact.value for report in reports):
            shared.add(fact._replace(value=Unknown(Message("it differs between the targets"))))
    not_checked = {entry.id: entry for report in reports for entry in report.not_checked}
    return first.changed(
        facts=shared,
        findings=_findings(reports, targets, names),
        not_checked=tuple(not_checked.values()),
        rules_checked=min(report.rules_checked for report in reports),
        exit_code=max((report.exit_code for report in reports), key=_WORSE.index),
        notices=tuple(notices),
        passed=tuple(name for name in first.passed if all(name in report.passed for report in reports)),
        plan=first.plan if all(report.plan == first.plan for report in reports) else None,
        unjudged=tuple(dict.fromkeys(text for report in reports for text in report.unjudged)),
        targets=tuple(outcomes),
        elapsed_seconds=sum(report.elapsed_seconds for report in reports),
    )


def _findings(reports: Sequence[Report], targets: Sequence[Typed], names: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings; equal message and advice make one finding. ``targets`` are empty if it holds for all."""
    alike: dict[str, list[tuple[int, Finding]]] = {}
    for number, report in enumerate(reports):
        for finding in report.findings:
            how_sure = (finding.confidence, finding.gate, finding.superseded_by, finding.caveats)
            key = (finding.fingerprint, finding.message, how_sure, [fix.withheld is None for fix in finding.fixes])
            alike.setdefault(repr((key, [fix.commands for fix in finding.fixes])), []).append((number, finding))
    one_each = [
        same[0][1]._replace(targets=_holding({number for number, _ in same}, targets, names)) for same in alike.values()
    ]
    return tuple(sorted(one_each, key=lambda finding: -SEVERITIES.index(finding.severity)))


def _holding(numbers: set[int], targets: Sequence[Typed], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of some targets: the one value that they alone have, or each name; empty for all targets."""
    if len(numbers) == len(targets):
        return ()
    for option in targets[0]:
        for value in dict.fromkeys(target[option] for target in targets):
            if numbers == {number for number, target in enumerate(targets) if target[option] == value}:
                return (f"{option} {value}",)
    return tuple(names[number] for number in sorted(numbers))
