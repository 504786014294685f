"""``check`` for several machines in one run: each target is judged by itself, and the answers become one report."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from envdoctor.app.errors import UsageProblem
from envdoctor.facts.values import Unknown
from envdoctor.judge.finding import SEVERITIES, Finding
from envdoctor.report.report import Notice, Report, TargetOutcome
from envdoctor.system.message import Message

#: What was typed for one machine, by the name behind ``--target-``.
Target = Mapping[str, str]

_MOST = 24
#: Exit codes from the best to the worst.
_WORSE = (0, 1, 3, 2)


def targets_of(typed: Mapping[str, Sequence[str]]) -> list[Target]:
    """Return every combination of the values of each option that was given. Raises :class:`UsageProblem` for more than
    anybody would read."""
    given = {name: list(dict.fromkeys(values)) for name, values in typed.items() if values}
    targets: list[Target] = [dict(zip(given, values, strict=True)) for values in product(*given.values())]
    if len(targets) > _MOST:
        raise UsageProblem("{} targets: at most {} are judged in one run", len(targets), _MOST)
    return targets


def check_targets(targets: Sequence[Target], judged: Callable[[Target], Report]) -> Report:
    """Return one report for all targets: what holds for some has their names; the exit code is the worst. ``judged``
    gives the report of one target. What a program reads as facts are those that all targets share."""
    reports = [judged(target) for target in targets]
    if len(reports) == 1:
        return reports[0]
    differing = [name for name in targets[0] if len({target[name] for target in targets}) > 1]
    names = [", ".join(f"{name} {target[name]}" for name in differing) for target in targets]
    outcomes = []
    for name, report in zip(names, reports, strict=True):
        shown = [finding.severity for finding in report.shown()]
        outcomes.append(TargetOutcome(name, shown.count("error"), shown.count("warning"), report.exit_code))
    first = reports[0]
    names_of: dict[Notice, list[str]] = {}
    for name, report in zip(names, reports, strict=True):
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


def _findings(reports: Sequence[Report], targets: Sequence[Target], names: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings, one for all that say and advise the same; ``targets`` are empty if it holds for all."""
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


def _holding(numbers: set[int], targets: Sequence[Target], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of some targets: the one value that they alone have, or each name; empty for all targets."""
    if len(numbers) == len(targets):
        return ()
    for option in targets[0]:
        for value in dict.fromkeys(target[option] for target in targets):
            if numbers == {number for number, target in enumerate(targets) if target[option] == value}:
                return (f"{option} {value}",)
    return tuple(names[number] for number in sorted(numbers))
