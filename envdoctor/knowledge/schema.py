"""What a TOML document must look like: a small language for rules, tables and the registry of facts.

A check takes a value and yields complaints, each a clause that begins with the place: ``fix 2: safety: 'sure' is none
of safe, review, manual``. The check of a document is put together from those of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from envdoctor.text.nearest import did_you_mean
from envdoctor.versions.dotted import dotted
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.ranges import parse_ranges

__all__ = [
    "ANY",
    "DATE",
    "DOTTED",
    "FLAG",
    "NUMBER",
    "RELEASES",
    "SCHEMA_1",
    "SOURCE",
    "SPECIFIER",
    "SYMPTOM",
    "TEXT",
    "TEXTS",
    "VERSION",
    "WORDS",
    "Check",
    "both",
    "either",
    "list_of",
    "mapping",
    "one_of",
    "table",
    "tables",
    "text",
    "value",
]

Check = Callable[[Any], Iterable[str]]


def value(expected: str, test: Callable[[Any], object]) -> Check:
    """A value that passes ``test``, which may also refuse it by ValueError; ``expected`` says what it should be."""

    def check(given: Any) -> Iterator[str]:
        try:
            good = bool(test(given))
        except ValueError:
            good = False
        if not good:
            yield f"{expected} is expected, not {_short(given)}"

    return check


def text(expected: str, test: Callable[[str], object]) -> Check:
    """A text that passes ``test``."""
    return value(expected, lambda given: isinstance(given, str) and test(given))


def one_of(*words: str) -> Check:
    """One of a closed list of words."""

    def check(given: Any) -> Iterator[str]:
        if given not in words:
            yield f"{_short(given)} is none of {', '.join(words)}"

    return check


def list_of(item: Check) -> Check:
    """A list; complaints name the place of the item, counted from 1."""

    def check(given: Any) -> Iterator[str]:
        if not isinstance(given, list):
            yield f"a list is expected, not {_short(given)}"
            return
        for number, entry in enumerate(given, 1):
            yield from _under(f" {number}", item(entry))

    return check


def table(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """A table with these keys and no others."""
    known = {**required, **(optional or {})}

    def check(given: Any) -> Iterator[str]:
        if not isinstance(given, Mapping):
            yield f"a table is expected, not {_short(given)}"
            return
        for key, entry in given.items():
            if key in known:
                yield from _under(key, known[key](entry))
            else:
                hint = did_you_mean(key, known, f"known are {', '.join(known)}")
                yield f"unknown key {key!r}; {hint}"
        yield from (f"{key}: missing" for key in required if key not in given)

    return check


def tables(item: Check, unique: Sequence[str] = ()) -> Check:
    """An array of tables (``[[row]]``), no two of which have the same values in the columns ``unique``."""

    def check(given: Any) -> Iterator[str]:
        if not isinstance(given, list) or not all(isinstance(entry, Mapping) for entry in given):
            yield "an array of tables ([[…]]) is expected"
            return
        yield from list_of(item)(given)
        seen: list[list[Any]] = []
        for number, entry in enumerate(given, 1):
            identity = [entry.get(column) for column in unique]
            if unique and identity in seen:
                yield f" {number}: {', '.join(unique)}: {_short(', '.join(map(str, identity)))} occurs twice"
            seen.append(identity)

    return check


def mapping(key: Check, item: Check) -> Check:
    """A table whose keys are data."""

    def check(given: Any) -> Iterator[str]:
        if not isinstance(given, Mapping):
            yield f"a table is expected, not {_short(given)}"
            return
        for name, entry in given.items():
            yield from _under(name, (*key(name), *item(entry)))

    return check


def either(one: Check, other: Check) -> Check:
    """What passes one of two checks; the complaints are those of the second."""
    return lambda given: other(given) if any(True for _ in one(given)) else ()


def both(first: Check, *more: Check) -> Check:
    """The first check, and the others for what it has no complaint about."""

    def check(given: Any) -> Iterator[str]:
        complaints = list(first(given))
        yield from complaints or (complaint for other in more for complaint in other(given))

    return check


def _under(place: str, complaints: Iterable[str]) -> Iterator[str]:
    """Complaints about what lies at a place; those about an item of a list begin with its number: ``fix 2: …``."""
    for complaint in complaints:
        yield f"{place}{complaint}" if complaint.startswith(" ") else f"{place}: {complaint}"


def _short(given: object) -> str:
    shown = repr(given)
    return shown if len(shown) <= 60 else shown[:57] + "..."


_URL = re.compile(r"(https://[^\s]+|pkg:pypi/[a-z0-9][a-z0-9._-]*(@[0-9][A-Za-z0-9.+!-]*)?)\Z")

ANY: Check = lambda given: ()  # noqa: E731
TEXT = text("a text", bool)
TEXTS = value("a list of text", lambda given: isinstance(given, list) and all(isinstance(item, str) for item in given))
FLAG = value("true or false", lambda given: isinstance(given, bool))
NUMBER = value("a number", lambda given: isinstance(given, (int, float)) and not isinstance(given, bool))
DATE = value("a date such as 2026-11-20", lambda given: isinstance(given, date) and not isinstance(given, datetime))
VERSION = text("a version by PEP 440", is_version)
DOTTED = text('dotted integers such as "12.4"', dotted)
#: Specifiers by PEP 440.
SPECIFIER = text('a specifier such as ">=2,<3"', lambda given: given and satisfies("1", given) is not None)
#: Releases as the code of transformers is looked up by.
RELEASES = text('releases such as ">=4.34,<4.48 | >=5.0"', parse_ranges)
#: An address, or for a released file its package URL (https://github.com/package-url/purl-spec).
SOURCE = text("an https address, or pkg:pypi/NAME@VERSION for a released file,", _URL.match)
#: Texts by language.
WORDS = table({"en": TEXT}, {"zh": TEXT})
#: What people see in a log: texts that all stand in it, an example, and where people showed one.
SYMPTOM = table(
    {
        "lines": TEXTS,
        "seen": TEXT,
        "source": text(
            "https://..., or 'not opened'", lambda given: given.startswith("https://") or given == "not opened"
        ),
    }
)
SCHEMA_1 = value("schema = 1", lambda given: given == 1 and not isinstance(given, bool))
