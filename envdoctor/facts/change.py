"""The one place that knows what a changed fact invalidates: ``--set``, fixes that are tried, replays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactSpec, Registry
from envdoctor.facts.values import Fact, Records, Value
from envdoctor.text.message import Message


def change(facts: FactSet, given: Iterable[Fact], registry: Registry) -> FactSet:
    """A copy in which the given facts stand, and what was known only because of another value of theirs is forgotten.

    What depends on what is said by the registry (``depends_on``, ``concerns``): a fact is dropped, an item of a list
    goes with the package that it is about, a column becomes unknown. A fact that is given stands whatever it depends
    on. Derived facts are dropped all of them, to be derived again.
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
    """The facts without the derived ones."""
    kept = FactSet(fact for fact in facts if not fact.is_computed)
    for prefix, origin in facts.complete_prefixes().items():
        kept.declare_complete(prefix, origin)
    kept.kept = facts.kept
    return kept


def _depends(patterns: Sequence[str], key: str) -> bool:
    return any(fnmatchcase(key, pattern) if pattern.endswith("*") else key == pattern for pattern in patterns)


def _changed_list(fact: Fact, spec: FactSpec, key: str) -> Fact:
    if not isinstance(fact.value, Records):
        return fact
    items, incomplete = fact.value.items, fact.value.incomplete
    package = key.partition(".")[2]
    for pattern, columns in spec.concerns.items():
        if _depends((pattern,), key):
            items = tuple(item for item in items if all(_named(item.get(column)) != package for column in columns))
            incomplete = incomplete or Message("{} was changed", key)
    for name, column in spec.columns.items():
        whose = [about for pattern, them in column.concerns.items() if _depends((pattern,), key) for about in them]
        if _depends(column.depends_on, key) or whose:
            items = tuple(_without(name, item, whose, package) for item in items)
    if items == fact.value.items and incomplete == fact.value.incomplete:
        return fact
    return fact._replace(value=Records(items, incomplete))


def _without(name: str, item: Mapping[str, Value], whose: Sequence[str], package: str) -> Mapping[str, Value]:
    """The item without a column; where the column is about a package, only when it is this one."""
    if whose and all(_named(item.get(about)) != package for about in whose):
        return item
    return {column: cell for column, cell in item.items() if column != name} if name in item else item


def _named(cell: Value | None) -> str:
    return cell if isinstance(cell, str) else ""
