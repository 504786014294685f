"""Check the shape of what a person wrote in TOML (a rule, the configuration), with a clause for each fault.

Tables and the registry of facts are data of this repository: JSON Schema holds them (``matrices/schema``).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

from envdoctor.facts.registry import shown
from envdoctor.system.message import Message, did_you_mean


class Kind(NamedTuple):
    """A kind of value: what is expected, in words, the test that a value must pass, and what is said when it does
    not."""

    expected: str
    test: Callable[[Any], object]
    refusal: str = "{expected} is expected, not {given}"

    def faults(self, given: Any) -> Iterator[str]:
        """Yield what is wrong with a value."""
        if not self.test(given):
            yield self.refusal.format(expected=self.expected, given=shown(given))


def one_of(*words: str) -> Kind:
    """Return the kind of value that is one of these words."""
    return Kind(", ".join(words), lambda given: given in words, "{given} is none of {expected}")


def faults(given: Any, required: Mapping[str, Kind], optional: Mapping[str, Kind], place: str = "") -> Iterator[str]:
    """Yield what is wrong with a table that has the ``required`` keys and may have the ``optional`` ones; each clause
    begins with ``place``."""
    if not isinstance(given, Mapping):
        yield f"{place}a table is expected, not {shown(given)}"
        return
    known = {**required, **optional}
    for key, value in given.items():
        if key in known:
            yield from (f"{place}{key}: {fault}" for fault in known[key].faults(value))
        else:
            hint = did_you_mean(str(key), known, Message("known are {}", ", ".join(known)))
            yield f"{place}unknown key {key!r}; {hint}"
    yield from (f"{place}{key}: missing" for key in required if key not in given)


def rows(data: Mapping[str, Any], name: str, problems: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tables of an array (``[[fix]]``), each with its place ("fix 2: "). ``problems`` gets what is wrong."""
    given = data.get(name, [])
    if isinstance(given, list) and all(isinstance(entry, Mapping) for entry in given):
        return [(f"{name} {number}: ", entry) for number, entry in enumerate(given, 1)]
    problems.append(f"{name}: an array of tables ([[…]]) is expected")
    return []


def _is_texts(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(item, str) for item in given)


def _is_words(given: Any) -> bool:
    known = {"en", "zh", "zh_of"}
    return isinstance(given, dict) and "en" in given and given.keys() <= known and all(map(TEXT.test, given.values()))


ANY = Kind("a value", lambda given: True)
TEXT = Kind("a text", lambda given: isinstance(given, str) and given)
TEXTS = Kind("a list of text", _is_texts)
TEXT_OR_TEXTS = Kind("a text or a list of text", lambda given: TEXT.test(given) or _is_texts(given))
FLAG = Kind(Message("true or false"), lambda given: isinstance(given, bool))
TRUE = Kind("true", lambda given: given is True)
DATE = Kind("a date such as 2026-11-20", lambda given: isinstance(given, date) and not isinstance(given, datetime))
TABLE = Kind(Message("a table"), lambda given: isinstance(given, dict))
VALUES = Kind(
    'a table such as { "recipe.batch_size" = 2 }',
    lambda given: isinstance(given, dict) and not any(isinstance(item, dict) for item in given.values()),
)
VERSIONS = Kind(
    'a table such as { "pkg.torch" = "2.5.1" }',
    lambda given: isinstance(given, dict) and given and all(isinstance(item, str) for item in given.values()),
)
#: A text by language; ``zh_of`` names the English wording that was translated.
WORDS = Kind('texts such as { en = "…", zh = "…" }', _is_words)
