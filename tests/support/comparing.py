"""Running one comparer in a test, on two snapshots and with the shipped tables, and what it says."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import zip_longest
from types import ModuleType
from typing import Any

from header_true import Repository
from observing import shipped
from rooms import comparer

from envdoctor.revision import AREAS, Change, Clock, Compared, Revisions, effect_of, files_of


def outcome(comparer: ModuleType | Any, old: Any, new: Any, clock: Clock | None = None) -> Compared:
    """What the comparer says of two snapshots, or of two tables of files and their contents.

    Each change outside of code is of a kind that a rule judges, or that a row says has no effect.
    """
    old, new = (Repository(texts=side) if isinstance(side, Mapping) else side for side in (old, new))
    files = files_of(comparer, sorted(old.files.keys() | new.files.keys()))
    compared: Compared = comparer.compare(Revisions(old, new, shipped(), clock or Clock(), files))
    kinds = {(change.area, change.kind) for change in (*compared.changes, *compared.listing) if change.area != "code"}
    assert {kind for kind in kinds - judged_kinds() if effect_of(*kind, shipped()) is None} == set()
    return compared


def two_sided(name: str, wrap: Callable[[Any], Any] = lambda side: side) -> tuple[Callable[..., Compared], Any]:
    """What compares two sides with that comparer, and what holds that the changes are these; ``wrap`` makes a side."""

    def compare(old: Any, new: Any) -> Compared:
        return outcome(comparer(name), wrap(old), wrap(new))

    return compare, lambda old, new, *expected: holds(compare(old, new), *expected)


@cache
def judged_kinds() -> frozenset[tuple[str, str]]:
    """The areas and kinds of changes that rules have conditions on."""
    clauses = [{key: words for key, _, _, words in clause} for rule in shipped().rules for clause in rule.affects]
    kinds = [(clause.get("change.area", AREAS), clause.get("change.kind", ())) for clause in clauses]
    return frozenset((area, kind) for areas, words in kinds for area in areas for kind in words)


def holds(compared: Compared, *expected: str) -> None:
    """Hold that these are the changes, and that everything was read.

    ``kind``, ``kind symbol``, or ``kind symbol: before -> after``.
    """
    assert compared.unread == ()
    said = []
    for change, wanted in zip_longest(compared.changes, expected, fillvalue=""):
        said.append(change if isinstance(change, str) else _spelled(change, wanted))
    assert said == [*expected], compared.changes


def _spelled(change: Change, wanted: str) -> str:
    values = f": {change.before} -> {change.after}" if ": " in wanted else ""
    return f"{change.kind} {change.symbol}{values}" if " " in wanted or not wanted else change.kind


def only(compared: Compared) -> Change:
    """The one change, when everything was read."""
    assert compared.unread == ()
    assert len(compared.changes) == 1, compared.changes
    return compared.changes[0]
