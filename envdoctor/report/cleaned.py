"""A report holds nothing but clean text: every string is cleaned once, when the report is made; facts when read."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Origin, Range, Records, Unknown
from envdoctor.system.clean import clean
from envdoctor.system.message import Message, mapped

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
        """Return the fact of ``key``, clean."""
        return _clean_fact(super().get(key))

    def complete_prefixes(self) -> Mapping[str, str]:
        """Return prefixes whose unlisted keys are absent, with the origin of that knowledge."""
        return cleaned(super().complete_prefixes())

    def __iter__(self) -> Iterator[Fact]:
        return map(_clean_fact, super().__iter__())


def cleaned(value: Value, longest: int | None = _LONGEST) -> Value:
    """Return the same value with every string in it cleaned, keys included; classes stay as they are. The indentation
    of a line of code is kept. ``longest`` caps the strings, in characters."""
    new: Any = value
    match new:
        case Message():
            new = mapped(new, lambda part: _clean(part, longest))
        case Origin():
            new = Origin(_clean(new.path, longest), new.line, new.cell)
        case str():
            text = _clean(new, longest)
            new = " " * (len(new) - len(new.lstrip(" "))) + text if new[:1] == " " and text else text
        case FactSet():
            new = CleanFacts(new)
        case tuple():
            items = [cleaned(item, longest) for item in new]
            new = type(new)(*items) if hasattr(new, "_fields") else tuple(items)
        case list():
            new = [cleaned(item, longest) for item in new]
        case Mapping():
            new = {cleaned(key, longest): cleaned(item, longest) for key, item in new.items()}
        case Records():
            incomplete = new.incomplete and cleaned(new.incomplete)
            new = Records(tuple(cleaned(item, longest) for item in new), incomplete)
        case Unknown() if not isinstance(new, Range):
            new = Unknown(cleaned(new.reason))
    return new  # type: ignore[no-any-return]


def _clean_fact(fact: Fact) -> Fact:
    return Fact(clean(fact.key), cleaned(fact.value, None), cleaned(fact.origin), fact.source)
