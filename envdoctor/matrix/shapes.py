"""Check the shape of TOML that a person wrote (a rule, the configuration), with a clause for each fault.

Tables and the registry of facts are data of this repository: JSON Schema holds them (``matrices/schema``).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

from envdoctor.facts.registry import shown
from envdoctor.system.message import Message, did_you_mean


class Kind(NamedTuple):
    """A kind of value: what is expected, in words, the test that a value must pass, and the message if it fails."""

    expected: str
    test: Callable[[Any], object]
    refusal: str = "{expected} is expected, not {given}"

    def faults(self, value: Any) -> Iterator[str]:
        """Yield the fault of a value, if it has one."""
        if not self.test(value):
            yield self.refusal.format(expected=self.expected, given=shown(value))


def one_of(*words: str) -> Kind:
    """Return the kind of values that are one of these words."""
    return Kind(", ".join(words), lambda value: value in words, "{given} is none of {expected}")


def faults(table: Any, required: Mapping[str, Kind], optional: Mapping[str, Kind], place: str = "") -> Iterator[str]:
    """Yield the faults of a table that must have the ``required`` keys and may have the ``optional`` ones; each clause
    begins with ``place``."""
    if not isinstance(table, Mapping):
        yield f"{place}a table is expected, not {shown(table)}"
        return
    kinds = {**required, **optional}
    for key, value in table.items():
        if key in kinds:
            yield from (f"{place}{key}: {fault}" for fault in kinds[key].faults(value))
        else:
            hint = did_you_mean(str(key), kinds, Message("known are {}", ", ".join(kinds)))
            yield f"{place}unknown key {key!r}; {hint}"
    yield from (f"{place}{key}: missing" for key in required if key not in table)


def rows(data: Mapping[str, Any], name: str, problems: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tables of an array (``[[fix]]``), each with its place ("fix 2: "). Append faults to ``problems``."""
    tables = data.get(name, [])
    if isinstance(tables, list) and all(isinstance(entry, Mapping) for entry in tables):
        return [(f"{name} {number}: ", entry) for number, entry in enumerate(tables, 1)]
    problems.append(f"{name}: an array of tables ([[…]]) is expected")
    return []


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_words(value: Any) -> bool:
    is_table = isinstance(value, dict) and "en" in value and value.keys() <= {"en", "zh"}
    return is_table and all(map(TEXT.test, value.values()))


ANY = Kind("a value", lambda value: True)
TEXT = Kind("a text", lambda value: isinstance(value, str) and value)
TEXTS = Kind("a list of text", _is_texts)
TEXT_OR_TEXTS = Kind("a text or a list of text", lambda value: TEXT.test(value) or _is_texts(value))
FLAG = Kind(Message("true or false"), lambda value: isinstance(value, bool))
TRUE = Kind("true", lambda value: value is True)
DATE = Kind("a date such as 2026-11-20", lambda value: isinstance(value, date) and not isinstance(value, datetime))
TABLE = Kind(Message("a table"), lambda value: isinstance(value, dict))
VALUES = Kind(
    'a table such as { "recipe.batch_size" = 2 }',
    lambda value: isinstance(value, dict) and not any(isinstance(item, dict) for item in value.values()),
)
VERSIONS = Kind(
    'a table such as { "pkg.torch" = "2.5.1" }',
    lambda value: isinstance(value, dict) and value and all(isinstance(item, str) for item in value.values()),
)
#: A text by language.
WORDS = Kind('texts such as { en = "…", zh = "…" }', _is_words)
