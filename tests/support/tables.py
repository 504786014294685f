"""Tables of cases below fixtures/: an array by its name, each row a tuple, as a parametrized test takes it."""

from pathlib import Path
from typing import Any

from envdoctor.facts import ABSENT, NOT_GIVEN, Unknown
from envdoctor.matrix import load_toml

_WORDS = {"<absent>": ABSENT, "<not given>": NOT_GIVEN, "<unknown>": Unknown, "<none>": None}


def table(name: str) -> dict[str, list[Any]]:
    """The arrays of a file of fixtures/cases; arrays in rows of those that ``tuples`` names are tuples."""
    said = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "cases" / name)
    tuples = said.pop("tuples", ())
    inner = {key: tuple if key in tuples else list for key in said}
    return {key: [_row(row, inner[key]) for row in rows] for key, rows in said.items()}


def _row(row: Any, inner: type) -> Any:
    return tuple(_value(value, inner) for value in row) if isinstance(row, list) else _value(row, inner)


def _value(value: Any, inner: type) -> Any:
    if isinstance(value, list):
        return inner(_value(one, inner) for one in value)
    if isinstance(value, dict):
        return {key: _value(one, inner) for key, one in value.items()}
    return _WORDS.get(value, value) if isinstance(value, str) else value
