"""A report holds nothing but clean text: every string is cleaned once, when the report is made; facts when read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Range, Records, Unknown
from envdoctor.text.clean import clean
from envdoctor.text.message import Message, mapped

Value = TypeVar("Value")

#: Characters kept of one text; values of facts are kept whole.
_LONGEST = 4_000
#: A report says most of its words many times: what is missing for a hundred rules, their severities and kinds.
_clean = lru_cache(maxsize=1024)(clean)


class CleanFacts(FactSet):
    """The same facts, each cleaned when it is read: most of an environment's facts are never printed."""

    def __init__(self, facts: FactSet) -> None:
        super().__init__()
        self._facts, self._complete = facts._facts, facts._complete

    def get(self, key: str) -> Fact:
        """The fact of ``key``, clean."""
        return _clean_fact(super().get(key))

    def complete_prefixes(self) -> Mapping[str, str]:
        """Prefixes whose unlisted keys are absent, with the origin of that knowledge."""
        return cleaned(super().complete_prefixes())

    def __iter__(self) -> Iterator[Fact]:
        return map(_clean_fact, super().__iter__())


def cleaned(value: Value, longest: int | None = _LONGEST) -> Value:
    """The same value with every string in it cleaned, also in keys; classes stay what they are.

    The indentation of a line of code is kept. ``longest`` caps the strings, in characters.
    """
    new: Any = value
    if isinstance(value, Message):
        new = mapped(value, lambda part: _clean(part, longest))
    elif isinstance(value, str):
        text = _clean(value, longest)
        new = " " * (len(value) - len(value.lstrip(" "))) + text if value[:1] == " " and text else text
    elif isinstance(value, FactSet):
        new = CleanFacts(value)
    elif isinstance(value, tuple):
        items = [cleaned(item, longest) for item in value]
        new = type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    elif isinstance(value, list):
        new = [cleaned(item, longest) for item in value]
    elif isinstance(value, Mapping):
        new = {cleaned(key, longest): cleaned(item, longest) for key, item in value.items()}
    elif isinstance(value, Records):
        incomplete = value.incomplete and cleaned(value.incomplete)
        new = Records(tuple(cleaned(item, longest) for item in value), incomplete)
    elif isinstance(value, Unknown) and not isinstance(value, Range):
        new = Unknown(cleaned(value.reason))
    return new  # type: ignore[no-any-return]


def _clean_fact(fact: Fact) -> Fact:
    return Fact(clean(fact.key), cleaned(fact.value, None), clean(fact.origin), fact.source)
