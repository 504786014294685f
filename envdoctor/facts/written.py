"""Values as JSON holds them, the unknown ones too: for envdoctor's own cache, which nobody else writes."""

from __future__ import annotations

from typing import Any

from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value


def written(value: Value) -> object:
    """What :func:`restored` makes the value of again."""
    if isinstance(value, Records):
        items = [{column: written(cell) for column, cell in item.items()} for item in value]
        return {"items": items, "incomplete": value.incomplete}
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    return None if isinstance(value, Absent) else value


def restored(found: Any) -> Value:
    """The value that was written so."""
    if isinstance(found, dict):
        if "unknown" in found:
            return Unknown(found["unknown"])
        items = tuple({column: restored(cell) for column, cell in item.items()} for item in found["items"])
        return Records(items, found["incomplete"])
    if isinstance(found, list):
        return tuple(found)
    value: Value = ABSENT if found is None else found
    return value
