"""A change tried on facts: the errors that would be there then, and the requirements that it would break."""

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.derive import derive
from envdoctor.facts.change import change
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Records
from envdoctor.install.remedy import Remedy
from envdoctor.judge.judging import Problem, errors_of
from envdoctor.knowledge.matrix import Matrix

__all__ = ["After", "Before", "apply", "before", "try_remedy"]


class Before(NamedTuple):
    """Facts as they are, with their errors, those that are folded into others as well (``told``), and the unmet
    requirements: pairs of a package and who asks for it."""

    facts: FactSet
    matrix: Matrix
    errors: Mapping[Problem, str]
    told: Mapping[Problem, str]
    unmet: frozenset[tuple[str, str]]


class After(NamedTuple):
    """What a change would lead to. ``broken`` says which requirement of an installed package it would break, in words;
    None when it breaks none that is known."""

    facts: FactSet
    errors: Mapping[Problem, str]
    broken: str | None

    def objection(self, now: Before) -> str | None:
        """What speaks against the change, in words: an error that was not there, not even behind another, or an unmet
        requirement that it would bring."""
        new = next((problem for problem in self.errors if problem not in now.told), None)
        return f"it would bring {new.rule_id}: {self.errors[new]}" if new else self.broken


def before(facts: FactSet, matrix: Matrix) -> Before:
    """What a change is compared with. ``facts`` are derived ones."""
    return Before(facts, matrix, *errors_of(facts, matrix), _unmet(facts))


def apply(remedy: Remedy, facts: FactSet, matrix: Matrix) -> FactSet:
    """The facts as the change would leave them."""
    after = change(facts, remedy.facts, matrix.registry)
    derive(after, matrix)
    return after


def try_remedy(remedy: Remedy, now: Before) -> After:
    """Judge a change as a whole. What a package that is changed requires itself is known from rules alone: its metadata
    is not there yet. All others ask for what their own metadata says."""
    after = apply(remedy, now.facts, now.matrix)
    new = sorted(_unmet(after) - now.unmet)
    broken = f"it would break a requirement: {new[0][1]} asks for another {new[0][0]}" if new else None
    if new and new[0][0] in remedy.removed:
        broken = f"it would break a requirement: {new[0][1]} asks for {new[0][0]}"
    return After(after, errors_of(after, now.matrix)[0], broken)


def _unmet(facts: FactSet) -> frozenset[tuple[str, str]]:
    conflicts = facts.value("conflict")
    pairs: set[tuple[str, str]] = set()
    for item in conflicts if isinstance(conflicts, Records) else ():
        package, askers = item.get("package"), item.get("required_by")
        if isinstance(package, str) and isinstance(askers, tuple):
            pairs.update((package, asker) for asker in askers)
    return frozenset(pairs)
