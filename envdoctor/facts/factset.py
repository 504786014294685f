"""A set of facts about one environment, on one machine, for one model and recipe."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, NOT_GIVEN, Fact, Value
from envdoctor.facts.view import Readable


class Kept(NamedTuple):
    """The facts of an environment that are the same whenever ``name`` is: they were kept so, or read from there."""

    name: str
    facts: Mapping[str, Fact]


class FactSet(Readable):
    """Facts by key. A later fact replaces an earlier one of the same key; there is no other merging.

    A key that was never added is unknown, except below a prefix that was declared complete: there it is absent.
    ``kept`` are facts that came from envdoctor's cache, or are there now; others may have replaced them since.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._facts: dict[str, Fact] = {}
        self._complete: dict[str, str] = {}
        self.kept: Kept | None = None
        self.update(facts)

    def add(self, fact: Fact) -> None:
        """Add or replace one fact."""
        self._facts[fact.key] = fact

    def update(self, facts: Iterable[Fact]) -> None:
        """Add or replace facts in order."""
        for fact in facts:
            self._facts[fact.key] = fact

    def declare_complete(self, prefix: str, origin: str) -> None:
        """Say that every existing key below ``prefix`` (``"pkg"``) is listed: the others are absent."""
        self._complete[prefix] = origin

    def complete_prefixes(self) -> Mapping[str, str]:
        """Prefixes whose unlisted keys are absent, with the origin of that knowledge."""
        return dict(self._complete)

    def drop(self, key: str) -> None:
        """Forget a fact, or every fact below a prefix (``"torch."``)."""
        for known in [known for known in self._facts if known == key or (key[-1] == "." and known.startswith(key))]:
            del self._facts[known]

    def get(self, key: str) -> Fact:
        """The fact of ``key``; its value is :data:`NOT_GIVEN` or absent when nothing was added."""
        fact = self._facts.get(key)
        if fact is not None:
            return fact
        origin = self._complete.get(key.partition(".")[0])
        if origin is not None:
            return Fact(key, ABSENT, origin, "environment")
        return Fact(key, NOT_GIVEN, "", "")

    def value(self, key: str) -> Value:
        """The value of ``key``: shorthand for ``get(key).value``."""
        return self.get(key).value

    def __contains__(self, key: str) -> bool:
        return key in self._facts

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def __len__(self) -> int:
        return len(self._facts)

    def below(self, prefix: str) -> Iterator[Fact]:
        """The facts whose keys begin so (``recipe.``)."""
        return (self.get(key) for key in self._facts if key.startswith(prefix))

    def copy(self) -> "FactSet":
        """An independent set with the same facts."""
        twin = FactSet()
        twin._facts.update(self._facts)
        twin._complete.update(self._complete)
        twin.kept = self.kept
        return twin
