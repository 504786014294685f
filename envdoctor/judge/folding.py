"""One cause, one finding: which findings are folded into which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.facts.values import Value
from envdoctor.judge.evaluate import Match
from envdoctor.judge.finding import SEVERITIES, Finding
from envdoctor.knowledge.rules import Rule

__all__ = ["fold"]


def fold(findings: Sequence[Finding], applied: Sequence[tuple[Rule, Match]]) -> dict[int, int]:
    """Which finding (by its place) is folded into which, by ``supersedes`` and ``folds_into`` of the rules.

    ``applied`` are the rules and matches of the findings, in the same order. What is accepted hides nothing. No chains:
    the finding that is named stands for itself.
    """
    places: dict[str, list[int]] = {}
    for number, (rule, _) in enumerate(applied):
        places.setdefault(rule.id, []).append(number)
    by: dict[int, int] = {}
    for number, (finding, (rule, _)) in enumerate(zip(findings, applied, strict=True)):
        if finding.ignored is None:
            for folded in rule.supersedes:
                for other in places.get(folded, ()):
                    if _one_record(finding, findings[other]):
                        by.setdefault(other, number)
    if any(rule.folds_into for rule, _ in applied):
        rests = _resting(findings, applied)
        for number, (rule, match) in enumerate(applied):
            if rule.folds_into and number not in by:
                root = _root_of(number, match, rule, findings, rests)
                if root is not None:
                    by[number] = root
    chains = {number: _end_of_chain(number, by) for number in by}
    return {number: end for number, end in chains.items() if end != number}


def _one_record(finding: Finding, other: Finding) -> bool:
    """Whether two findings may be of one cause: where both are of records, these agree in what they have in common."""
    return all(finding.item[key] == value for key, value in other.item.items() if key in finding.item)


def _resting(findings: Sequence[Finding], applied: Sequence[tuple[Rule, Match]]) -> dict[str, set[int]]:
    """By package: the findings that rest on it and may stand for a finding that ``folds_into`` others."""
    rests: dict[str, set[int]] = {}
    for number, (rule, match) in enumerate(applied):
        if rule.folds_into or findings[number].ignored is not None:
            continue
        packages = {key[4:] for key in match.keys if key.startswith("pkg.")}
        for package in packages | _packages((match.item or {}).get("package")):
            rests.setdefault(package, set()).add(number)
    return rests


def _root_of(
    number: int, match: Match, rule: Rule, findings: Sequence[Finding], rests: Mapping[str, set[int]]
) -> int | None:
    """The first finding, at least as severe, that rests on a package of each column that ``folds_into`` names."""
    item = match.item or {}
    candidates: set[int] | None = None
    for column in rule.folds_into:
        names = _packages(item.get(column.partition(".")[2]))
        resting = set().union(*(rests[name] for name in names if name in rests))
        candidates = resting if candidates is None else candidates & resting
    severity = SEVERITIES.index(findings[number].severity)
    fitting = [other for other in candidates or () if SEVERITIES.index(findings[other].severity) >= severity]
    return min(fitting, default=None)


def _packages(cell: Value | None) -> set[str]:
    """The package names that begin a text or each of a list of texts ("torch (>=2.5)")."""
    texts = cell if isinstance(cell, tuple) else (cell,)
    return {text.partition(" ")[0] for text in texts if isinstance(text, str)}


def _end_of_chain(number: int, by: Mapping[int, int]) -> int:
    """The last of a chain of findings that stand for each other; in a circle the first stays."""
    chain = [number]
    while (following := by.get(chain[-1])) is not None:
        if following in chain:
            return min(chain[chain.index(following) :])
        chain.append(following)
    return chain[-1]
