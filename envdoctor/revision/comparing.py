"""Comparing two snapshots area by area, and the facts that rules judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.change import AREAS, Change, Compared

__all__ = ["Comparison", "change_facts", "compare_snapshots"]


class Comparison(NamedTuple):
    """All areas together, in the order of :data:`~envdoctor.revision.change.AREAS`."""

    areas: Mapping[str, Compared]

    @property
    def changes(self) -> list[Change]:
        """Every change."""
        return [change for compared in self.areas.values() for change in compared.changes]

    @property
    def unread(self) -> list[Unread]:
        """Every part that could not be read or decided, once."""
        return list(dict.fromkeys(part for compared in self.areas.values() for part in compared.unread))

    @property
    def equal(self) -> list[str]:
        """What is equal, in words."""
        return [text for compared in self.areas.values() for text in compared.equal]


def compare_snapshots(
    old: Snapshot, new: Snapshot, *, areas: Iterable[str] = AREAS, progress: Callable[[str], None] | None = None
) -> Comparison:
    """Compare area by area; ``progress`` is told which one comes next."""
    compared: dict[str, Compared] = {}
    for area in areas:
        if progress is not None:
            progress(area)
        compare: Callable[[Snapshot, Snapshot], Compared] = import_module(f"envdoctor.revision.{area}").compare
        compared[area] = compare(old, new)
    return Comparison(compared)


def change_facts(comparison: Comparison, origin: str) -> list[Fact]:
    """The ``change`` records and the summary facts, with the source ``revision``.

    The records are incomplete when a part could not be read: then "no such change" is no answer.
    """
    unread = comparison.unread
    incomplete = None
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        incomplete = f"{unread[0].path}: {unread[0].reason}{more}"
    records = Records(tuple(_record(change) for change in comparison.changes), incomplete)
    facts = [Fact("change", records, origin, "revision")]
    for compared in comparison.areas.values():
        for key, value in compared.facts:
            facts.append(Fact(key, _value(value), origin, "revision"))
    return facts


def _record(change: Change) -> dict[str, Value]:
    return {
        "area": change.area,
        "kind": change.kind,
        "path": change.path,
        "symbol": change.symbol,
        "before": ABSENT if change.before is None else change.before,
        "after": ABSENT if change.after is None else change.after,
        "count": change.count,
        "detail": ABSENT if change.detail is None else change.detail,
    }


def _value(value: object) -> Value:
    if value is None:
        return ABSENT
    if isinstance(value, (str, int, float, bool, Unknown)):
        return value
    if isinstance(value, Sequence):
        return tuple(str(item) for item in value)
    raise TypeError(f"no fact can have the value {value!r}")
