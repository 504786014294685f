"""One cause, one finding: which findings are folded into which."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.judge.evaluate import Match
from envdoctor.judge.finding import SEVERITIES, Finding, FoundFact
from envdoctor.knowledge.rules import Rule

__all__ = ["elsewhere", "fold", "without_folded"]

_Applied = Sequence[tuple[Rule, Match]]


def fold(findings: Sequence[Finding], applied: _Applied) -> dict[int, int]:
    """Which finding (by its place) is folded into which, by ``supersedes``, ``folds_into`` and ``explained_by`` of the
    rules.

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
        rests = _resting(applied, {number for number, one in enumerate(findings) if one.ignored is not None})
        for number, (rule, match) in enumerate(applied):
            if rule.folds_into and number not in by:
                _fold_into(by, number, _on_its_packages(match, rule, rests, applied), findings)
    for number, (rule, match) in enumerate(applied):
        if rule.explained_by and number not in by:
            _fold_into(by, number, _explaining(number, match, rule, places, applied), findings)
    chains = {number: _end_of_chain(number, by) for number in by}
    return {number: end for number, end in chains.items() if end != number}


def without_folded(applied: _Applied) -> list[tuple[Rule, Match]]:
    """The same without what ``folds_into`` another of them."""
    rests = _resting(applied)
    return [
        (rule, match)
        for rule, match in applied
        if not rule.folds_into or next(_on_its_packages(match, rule, rests, applied), None) is None
    ]


def elsewhere(
    findings: Sequence[Finding], applied: _Applied, stands_for: Mapping[int, int]
) -> dict[int, list[FoundFact]]:
    """By the place of a finding that stands for those of other records: where else its cause showed."""
    shown: dict[int, dict[str, FoundFact]] = {}
    for number, root in stands_for.items():
        each, item = applied[number][0].each, findings[number].item
        if each is not None and each == applied[root][0].each and item != findings[root].item:
            text = " ".join(item.values())
            shown.setdefault(root, {}).setdefault(text, FoundFact(each, text, ""))
    return {root: list(facts.values()) for root, facts in shown.items()}


def _one_record(finding: Finding, other: Finding) -> bool:
    """Whether two findings may be of one cause: where both are of records, these agree in what they have in common."""
    return all(finding.item[key] == value for key, value in other.item.items() if key in finding.item)


def _fold_into(by: dict[int, int], number: int, candidates: Iterator[int], findings: Sequence[Finding]) -> None:
    """Fold into the first of the candidates that is at least as severe, and was not accepted."""
    severity = SEVERITIES.index(findings[number].severity)
    for other in candidates:
        if findings[other].ignored is None and SEVERITIES.index(findings[other].severity) >= severity:
            by[number] = other
            return


def _explaining(
    number: int, match: Match, rule: Rule, places: Mapping[str, Sequence[int]], applied: _Applied
) -> Iterator[int]:
    """The findings about other records that say where this one comes from."""
    item = match.item or {}
    for rule_id, columns in rule.explained_by.items():
        for other in places.get(rule_id, ()):
            record = applied[other][1].item or {}
            earlier = other < number or rule_id != rule.id
            if earlier and all(_known(item, column) and item[column] == record.get(column) for column in columns):
                yield other


def _known(item: Mapping[str, Value], column: str) -> bool:
    return not isinstance(item.get(column, Unknown("")), (Unknown, Absent))


def _resting(applied: _Applied, ignored: Container[int] = ()) -> dict[str, set[int]]:
    """By package: the findings that rest on it."""
    rests: dict[str, set[int]] = {}
    for number, (_, match) in enumerate(applied):
        if number in ignored:
            continue
        packages = {key[4:] for key in match.keys if key.startswith("pkg.")}
        for package in packages | _packages((match.item or {}).get("package")):
            rests.setdefault(package, set()).add(number)
    return rests


def _on_its_packages(match: Match, rule: Rule, rests: Mapping[str, set[int]], applied: _Applied) -> Iterator[int]:
    """The findings that rest on a package of each column that ``folds_into`` names; of those that are folded
    themselves, the ones about other records (two that are alike would hide each other)."""
    item = match.item or {}
    candidates: set[int] | None = None
    for column in rule.folds_into:
        names = _packages(item.get(column.partition(".")[2]))
        resting = set().union(*(rests[name] for name in names if name in rests))
        candidates = resting if candidates is None else candidates & resting
    for number in sorted(candidates or ()):
        other = applied[number][0]
        if not other.folds_into or other.each != rule.each:
            yield number


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
