"""Comparing two snapshots area by area, and the facts that rules judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.change import AREAS, Change, Compared
from envdoctor.revision.without import Without

__all__ = ["Comparison", "change_facts", "compare_snapshots"]

#: Comparers that add changes to an area beside the module of its name.
_BESIDE = {"files": ("pickles",), "code": ("transformers_window",)}


class Comparison(NamedTuple):
    """The outcome of every comparer, by its module's name, in the order of the areas."""

    parts: Mapping[str, Compared]

    @property
    def changes(self) -> list[Change]:
        """Every change."""
        return [change for compared in self.parts.values() for change in compared.changes]

    @property
    def unread(self) -> list[Unread]:
        """Every part that could not be read or decided, once."""
        return list(dict.fromkeys(part for compared in self.parts.values() for part in compared.unread))

    @property
    def equal(self) -> list[str]:
        """What is equal, in words."""
        return [text for compared in self.parts.values() for text in compared.equal]


def compare_snapshots(
    old: Snapshot,
    new: Snapshot,
    *,
    areas: Iterable[str] = AREAS,
    table: Callable[[str], Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare area by area; ``progress`` is told which one comes next.

    ``table`` gives the matrix's tables by name (``Matrix.table``), so that they are read once.
    """
    parts: dict[str, Compared] = {}
    unsure = {part.path for part in (*old.refused, *new.refused)}
    if unsure:  # what one side cannot vouch for was neither added nor removed
        old, new = Without(old, unsure), Without(new, unsure)
    for area in areas:
        if progress is not None:
            progress(f"comparing {area}")
        for name in (area, *_BESIDE.get(area, ())):
            compare: Callable[..., Compared] = import_module(f"envdoctor.revision.{name}").compare
            tables = {"table": table} if table is not None and "table" in signature(compare).parameters else {}
            parts[name] = compare(old, new, **tables)
    # Files that a source lists and that cannot be trusted or compared: no area sees them, and they are not unchanged.
    parts["listing"] = Compared(unread=tuple(dict.fromkeys((*old.refused, *new.refused))))
    return Comparison(parts)


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
    for compared in comparison.parts.values():
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
