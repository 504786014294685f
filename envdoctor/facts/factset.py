"""A set of facts about one environment, on one machine, for one model and recipe."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from envdoctor.facts.registry import FactSpec, Registry
from envdoctor.facts.values import ABSENT, NOT_GIVEN, Fact, Records, Value
from envdoctor.facts.view import Readable
from envdoctor.system.message import Message


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
        self._facts.update((fact.key, fact) for fact in facts)

    def declare_complete(self, prefix: str, origin: str) -> None:
        """Say that every existing key below ``prefix`` (``"pkg"``) is listed: the others are absent."""
        self._complete[prefix] = origin

    def complete_prefixes(self) -> Mapping[str, str]:
        """Return the prefixes whose unlisted keys are absent, each with the origin of that knowledge."""
        return dict(self._complete)

    def drop(self, key: str) -> None:
        """Forget a fact, or every fact below a prefix (``"torch."``)."""
        for known in [known for known in self._facts if known == key or (key[-1] == "." and known.startswith(key))]:
            del self._facts[known]

    def get(self, key: str) -> Fact:
        """Return the fact of ``key``; its value is :data:`NOT_GIVEN` or absent if nothing was added."""
        if key in self._facts:
            return self._facts[key]
        origin = self._complete.get(key.partition(".")[0])
        return Fact(key, NOT_GIVEN, "", "") if origin is None else Fact(key, ABSENT, origin, "environment")

    def value(self, key: str) -> Value:
        """Return the value of ``key``: shorthand for ``get(key).value``."""
        return self.get(key).value

    def __contains__(self, key: str) -> bool:
        return key in self._facts

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def __len__(self) -> int:
        return len(self._facts)

    def below(self, prefix: str) -> Iterator[Fact]:
        """Return the facts whose keys begin with a prefix (``recipe.``)."""
        return (self.get(key) for key in self._facts if key.startswith(prefix))

    def copy(self, facts: Iterable[Fact] | None = None) -> "FactSet":
        """Return an independent set with the same facts, or with these of them."""
        twin = FactSet(self._facts.values() if facts is None else facts)
        twin._complete.update(self._complete)
        twin.kept = self.kept
        return twin


# The one place that knows what a changed fact invalidates: ``--set``, fixes that are tried, replays.


def change(facts: FactSet, given: Iterable[Fact], registry: Registry) -> FactSet:
    """Return a copy with the given facts, which forgets what was known only because of their earlier values.

    The registry says what depends on a fact (``depends_on``, ``concerns``): a fact is dropped, an item of a list goes
    with the package that it is about, a column becomes unknown. A given fact stays whatever it depends on. All derived
    facts are dropped, to be derived again.
    """
    stand = {fact.key: fact for fact in given}
    kept = given_only(facts)
    changed = [key for key, fact in stand.items() if key not in facts or facts.value(key) != fact.value]
    seen = set(changed)
    for key in changed:  # it grows: what is dropped is a change itself
        for spec in registry:
            if spec.key in stand or spec.key not in kept:
                continue
            if _depends(spec.depends_on, key):
                kept.drop(spec.key)
                if spec.key not in seen:
                    seen.add(spec.key)
                    changed.append(spec.key)
            elif spec.type == "records":
                kept.add(_changed_list(kept.get(spec.key), spec, key))
    kept.update(stand.values())
    return kept


def given_only(facts: FactSet) -> FactSet:
    """Return the facts without the derived ones."""
    return facts.copy(fact for fact in facts if not fact.is_computed)


def _depends(patterns: Sequence[str], key: str) -> bool:
    return any(fnmatchcase(key, pattern) if pattern.endswith("*") else key == pattern for pattern in patterns)


def _changed_list(fact: Fact, spec: FactSpec, key: str) -> Fact:
    if not isinstance(fact.value, Records):
        return fact
    items, incomplete = fact.value.items, fact.value.incomplete
    package = key.partition(".")[2]
    for pattern, columns in spec.concerns.items():
        if _depends((pattern,), key):
            items = tuple(item for item in items if all(item.get(column) != package for column in columns))
            incomplete = incomplete or Message("{} was changed", key)
    for name, column in spec.columns.items():
        whose = [about for pattern, them in column.concerns.items() if _depends((pattern,), key) for about in them]
        if _depends(column.depends_on, key) or whose:
            # A column that is about another package stays.
            items = tuple(
                {column: cell for column, cell in item.items() if column != name}
                if name in item and (not whose or any(item.get(about) == package for about in whose))
                else item
                for item in items
            )
    changed = Records(items, incomplete)
    return fact if changed == fact.value else fact._replace(value=changed)
