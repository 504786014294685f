"""One cause, one finding: which findings are folded into which."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import NOT_KNOWN, Absent, Unknown, Value
from envdoctor.judge.evaluate import Match
from envdoctor.judge.finding import SEVERITIES, Finding, FoundFact
from envdoctor.knowledge.rules import Rule


class Applied(NamedTuple):
    """A rule that applies, with the identity of its record. What is ``accepted`` hides nothing that is more severe."""

    rule: Rule
    match: Match
    item: Mapping[str, str]
    severity: str
    accepted: bool = False


def fold(applied: Sequence[Applied]) -> dict[int, int]:
    """Which of them (by its place) is folded into which, by ``supersedes``, ``folds_into`` and ``explained_by`` of the
    rules. No chains: what is named stands for itself."""
    places: dict[str, list[int]] = {}
    for number, one in enumerate(applied):
        places.setdefault(one.rule.id, []).append(number)
    by: dict[int, int] = {}
    for number, one in enumerate(applied):
        for folded in one.rule.supersedes:
            for other in places.get(folded, ()):
                lesser = not one.accepted or _severity(applied[other]) <= _severity(one)
                record = applied[other].item  # where both are of records, these agree in what they have in common
                if lesser and all(one.item[key] == value for key, value in record.items() if key in one.item):
                    by.setdefault(other, number)
    if any(one.rule.folds_into for one in applied):
        rests = _resting(applied)
        for number, one in enumerate(applied):
            if one.rule.folds_into and number not in by:
                _fold_into(by, number, _on_its_packages(one, rests, applied), applied)
    for number, one in enumerate(applied):
        if one.rule.explained_by and number not in by:
            _fold_into(by, number, _explaining(number, places, applied), applied)
    chains = {number: _end_of_chain(number, by) for number in by}
    return {number: end for number, end in chains.items() if end != number}


def elsewhere(
    findings: Sequence[Finding], applied: Sequence[tuple[Rule, Match]], stands_for: Mapping[int, int]
) -> dict[int, list[FoundFact]]:
    """By the place of a finding that stands for those of other records: where else its cause showed."""
    shown: dict[int, dict[str, FoundFact]] = {}
    for number, root in stands_for.items():
        each, item = applied[number][0].each, findings[number].item
        if each is not None and each == applied[root][0].each and item != findings[root].item:
            text = " ".join(item.values())
            shown.setdefault(root, {}).setdefault(text, FoundFact(each, text, ""))
    return {root: list(facts.values()) for root, facts in shown.items()}


def _fold_into(by: dict[int, int], number: int, candidates: Iterator[int], applied: Sequence[Applied]) -> None:
    """Fold into the first of the candidates that is at least as severe."""
    for other in candidates:
        if _severity(applied[other]) >= _severity(applied[number]):
            by[number] = other
            return


def _severity(one: Applied) -> int:
    return SEVERITIES.index(one.severity)


def _explaining(number: int, places: Mapping[str, Sequence[int]], applied: Sequence[Applied]) -> Iterator[int]:
    """The findings about other records that say where this one comes from."""
    rule, item = applied[number].rule, applied[number].match.item or {}
    for rule_id, columns in rule.explained_by.items():
        for other in places.get(rule_id, ()):
            record = applied[other].match.item or {}
            earlier = other < number or rule_id != rule.id
            cells = [(item.get(column, NOT_KNOWN), record.get(column)) for column in columns]
            if earlier and all(one == its and not isinstance(one, (Unknown, Absent)) for one, its in cells):
                yield other


def _resting(applied: Sequence[Applied]) -> dict[str, set[int]]:
    """By package: the findings that rest on it."""
    rests: dict[str, set[int]] = {}
    for number, one in enumerate(applied):
        packages = {key[4:] for key in one.match.keys if key.startswith("pkg.")}
        for package in packages | _packages((one.match.item or {}).get("package")):
            rests.setdefault(package, set()).add(number)
    return rests


def _on_its_packages(one: Applied, rests: Mapping[str, set[int]], applied: Sequence[Applied]) -> Iterator[int]:
    """The findings that rest on a package of each column that ``folds_into`` names; of those that are folded
    themselves, the ones about other records (two that are alike would hide each other)."""
    item = one.match.item or {}
    candidates: set[int] | None = None
    for column in one.rule.folds_into:
        names = _packages(item.get(column.partition(".")[2]))
        resting = set().union(*(rests[name] for name in names if name in rests))
        candidates = resting if candidates is None else candidates & resting
    for number in sorted(candidates or ()):
        other = applied[number].rule
        if not other.folds_into or other.each != one.rule.each:
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
