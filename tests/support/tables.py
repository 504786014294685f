"""Tables of cases: ``fixtures/ROOM/NAME.toml`` holds what ``tests/ROOM/test_NAME.py`` goes through,
``fixtures/cases`` what tests of deeper folders do."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from envdoctor.facts import ABSENT, NOT_GIVEN, Unknown
from envdoctor.matrix import load_toml

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
#: What TOML has no word for. ``<unknown> why`` is unknown for that reason.
_WORDS = {"<absent>": ABSENT, "<not given>": NOT_GIVEN, "<unknown>": Unknown, "<none>": None, "<any>": ...}


@cache
def table(file: str) -> dict[str, Any]:
    """What the table beside a file of tests holds, by part."""
    path = Path(file)
    found: dict[str, Any] = _read(load_toml(FIXTURES / path.parent.name / f"{path.stem.removeprefix('test_')}.toml"))
    return found


def cases(name: str) -> dict[str, list[Any]]:
    """The arrays of a file of fixtures/cases, each row a tuple; so are arrays in rows of what ``tuples`` names."""
    found = _read(load_toml(FIXTURES / "cases" / name))
    inner = found.pop("tuples", ())
    outer = {key: [tuple(row) if isinstance(row, list) else row for row in rows] for key, rows in found.items()}
    return {key: _tuples(rows) if key in inner else rows for key, rows in outer.items()}


def rows(names: str, *also: Any, tuples: bool = False, **more: Any) -> Callable[[Any], Any]:
    """Run a test with each row of the part that has its name, and with ``also``; ``names`` are the columns.

    With ``tuples`` arrays become these. ``more`` goes to ``pytest.mark.parametrize``.
    """

    def mark(test: Any) -> Any:
        found = table(test.__code__.co_filename)[test.__name__.removeprefix("test_")]
        cases = [*(_tuples(found) if tuples else found), *also]
        columns = names.split()
        return pytest.mark.parametrize(columns if columns[1:] else names, cases, **more)(test)

    return mark


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _read(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_read(one) for one in value]
    if isinstance(value, str) and value.startswith("<unknown> "):
        return Unknown(value.partition(" ")[2])
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(one) for key, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
