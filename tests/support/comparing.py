"""Running one comparer in a test, on two snapshots and with the shipped tables, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from types import ModuleType
from typing import Any

from header_true import Repository
from observing import shipped

from envdoctor.hub import Clock
from envdoctor.revision import Change, Compared, Revisions, files_of

__all__ = ["holds", "only", "outcome"]


def outcome(comparer: ModuleType | Any, old: Any, new: Any, clock: Clock | None = None) -> Compared:
    """What the comparer says of two snapshots, or of two tables of files and their contents."""
    old, new = (Repository(texts=side) if isinstance(side, Mapping) else side for side in (old, new))
    files = files_of(comparer, sorted(old.files.keys() | new.files.keys()))
    return comparer.compare(Revisions(old, new, shipped(), clock or Clock(), files))


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
