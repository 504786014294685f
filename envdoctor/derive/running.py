"""Running every derivation in the order of its inputs."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple, cast

from envdoctor.derive.memory import Memory, Output
from envdoctor.facts.change import change
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Range, Unknown, Value
from envdoctor.facts.view import View
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.pep440 import satisfies


class Derived(NamedTuple):
    """A computed value (known, absent or unknown with a reason) and what it was computed from, in words.

    ``source`` says how sure it is: ``derived`` (it follows), ``default`` (a library does so by itself, and nobody says
    otherwise), ``unasked`` (such a default where no recipe was seen: it may raise a finding and never clears one), or
    ``assumed`` (it usually is so: findings that rest on it say the origin and count for less; it clears none either).
    """

    value: Value
    origin: str
    source: str = "derived"


#: What a derivation of one output says: a value with its origin, the reason why it is not known, or nothing.
Answer = Derived | Unknown | None


class Derivation:
    """A function that computes facts (``outputs``) from facts (``inputs``; ``pkg.*`` stands for any package)."""

    def __init__(self, function: Callable[[View, Matrix], object], outputs: str, of: str) -> None:
        self.name = f"{function.__module__}:{function.__name__}"
        self.inputs, self.outputs = tuple(of.split()), tuple(outputs.split())
        self._function = function

    def compute(self, facts: View, matrix: Matrix) -> Mapping[str, Derived]:
        """Return what it has to say, by output."""
        answer = self._function(facts, matrix)
        if isinstance(answer, Unknown):
            answer = Derived(answer, "")
        if isinstance(answer, Derived):
            return {self.outputs[0]: answer}
        return cast("Mapping[str, Derived]", answer or {})


def derives(outputs: str, *, of: str) -> Callable[[Callable[[View, Matrix], object]], Derivation]:
    """Make a derivation of the function below: keys of facts, parted by blanks."""
    return lambda function: Derivation(function, outputs, of)


def with_facts(facts: FactSet, given: Iterable[Fact], matrix: Matrix) -> FactSet:
    """A copy of the facts in which the given ones stand, with what follows from them."""
    changed = change(facts, given, matrix.registry)
    derive(changed, matrix)
    return changed


def derive(facts: FactSet, matrix: Matrix, home: str | None = None) -> None:
    """Add derived facts to ``facts``.

    A value that was given or observed stands: a derivation only fills what is unknown, and refines a record list that
    it names as both input and output. With ``home`` (envdoctor's cache folder) what was computed last time for the same
    facts is not computed again.
    """
    _spread(facts, matrix)
    memory = Memory(facts, home if matrix.compiled else None, matrix.version)
    for name in memory.names or [one.name for one in derivations()]:
        outputs = memory.outputs(name)
        if outputs is None:
            asked: dict[str, None] = {}
            outputs = list(_computed(name, facts, matrix, asked))
            memory.add(name, list(asked), outputs)
        for one in outputs:
            present = facts.value(one.key)
            if not one.refines and not isinstance(present, Unknown):
                continue
            if isinstance(one.value, Unknown) and one.key in facts:
                continue  # the observation's own reason says more
            # A refined list stays what it was: observed or given, and so is written into facts files.
            stays = one.refines and one.key in facts and one.source in ("derived", "assumed")
            source = facts.get(one.key).source if stays else one.source
            origin = facts.get(one.key).origin if stays and source == "given" else one.origin
            facts.add(Fact(one.key, one.value, origin, source))
            memory.follows(one.key)
    memory.write()


def _spread(facts: FactSet, matrix: Matrix) -> None:
    """Ask the ledger which releases the ranges of packages hold."""
    for fact in [fact for fact in facts if isinstance(fact.value, Range) and not fact.value.releases]:
        assert isinstance(fact.value, Range)
        package = matrix.ledger.package(fact.key.removeprefix("pkg."))
        known = ("0", *(one.version for one in package.releases), "99999") if package is not None else ()
        held = tuple(one for one in known if satisfies(one, fact.value.specifiers))
        facts.add(fact._replace(value=Range(fact.value.specifiers, held)))


def _computed(name: str, facts: FactSet, matrix: Matrix, asked: dict[str, None]) -> Iterator[Output]:
    """What the derivation of that module gives; ``asked`` takes the keys of the facts that it reads."""

    def value(key: str) -> Value:
        asked[key] = None
        return facts.value(key)

    module, _, function = name.partition(":")
    derivation: Derivation = getattr(import_module(module), function)
    for key, derived in derivation.compute(View(value), matrix).items():
        yield Output(key, *derived, key in derivation.inputs)


@lru_cache(maxsize=1)
def derivations() -> tuple[Derivation, ...]:
    """Return the derivations, each behind those whose outputs it reads."""
    # pkgutil would do the same and costs 3 ms to import.
    files = sorted(name[:-3] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".py"))
    modules = [import_module(f"envdoctor.derive.{name}") for name in files if name != "__init__"]
    waiting = [one for module in modules for one in vars(module).values() if isinstance(one, Derivation)]
    ordered: list[Derivation] = []
    while waiting:
        ready = [one for one in waiting if not any(_comes_before(other, one) for other in waiting)]
        if not ready:
            raise RuntimeError(f"derivations depend on each other: {sorted(one.name for one in waiting)}")
        ordered += ready
        waiting = [one for one in waiting if one not in ready]
    return tuple(ordered)


def _comes_before(one: Derivation, other: Derivation) -> bool:
    """Whether ``other`` reads what ``one`` gives. Those that refine the same list may come in any order."""
    return one is not other and any(
        key in other.inputs and (key not in one.inputs or key not in other.outputs) for key in one.outputs
    )
