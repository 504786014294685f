"""Facts as JSON data: what is known, what is unknown and why, and which lists may lack items."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Range, Records, Unknown, Value, plain


class FactData(NamedTuple):
    """Facts split by what is known of them; every mapping is by key, in order.

    ``known`` holds JSON values (null = known to be absent) and ``origins`` where each comes from; ``incomplete`` says
    why a list of records may lack items; ``unknown`` gives the reason where one is known. A key in none of them was
    simply not given.
    """

    known: dict[str, object]
    origins: dict[str, str]
    incomplete: dict[str, str]
    unknown: dict[str, str]


def fact_data(facts: FactSet) -> FactData:
    """The data of clean facts. A number that JSON cannot hold (NaN) counts as unknown."""
    data = FactData({}, {}, {}, {})
    for key, value, origin, _ in sorted(facts, key=lambda fact: fact.key):
        if isinstance(value, Unknown) and not isinstance(value, Range):
            data.unknown[key] = value.reason
        elif not _finite(value):
            data.unknown[key] = "the value is not a finite number"
        else:
            data.known[key] = plain(_finite_records(value) if isinstance(value, Records) else value)
            if origin:
                data.origins[key] = origin
            if isinstance(value, Records) and value.incomplete is not None:
                data.incomplete[key] = value.incomplete
    return data


def _finite(value: Value) -> bool:
    return not isinstance(value, float) or value - value == 0


def _finite_records(records: Records) -> Records:
    items = tuple({column: cell for column, cell in item.items() if _finite(cell)} for item in records)
    return Records(items, records.incomplete)
