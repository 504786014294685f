"""Running every derivation in the order of its inputs."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from envdoctor.derive.memory import Memory, Output
from envdoctor.facts.change import change
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Range, Unknown, Value
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


class Derivation(Protocol):
    """What a module of this folder offers."""

    __name__: str
    INPUTS: tuple[str, ...]
    OUTPUTS: tuple[str, ...]

    def compute(self, value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]: ...


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
    for name in memory.names or [module.__name__ for module in derivations()]:
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

    derivation = cast(Derivation, import_module(name))
    for key, derived in derivation.compute(value, matrix).items():
        yield Output(key, *derived, key in derivation.INPUTS)


@lru_cache(maxsize=1)
def derivations() -> tuple[Derivation, ...]:
    """Return the derivations, each behind those whose outputs it reads."""
    # pkgutil would do the same and costs 3 ms to import.
    names = sorted(name[:-3] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".py"))
    modules = [
        cast(Derivation, import_module(f"envdoctor.derive.{name}"))
        for name in names
        if name not in ("__init__", "memory", "running")
    ]
    ordered: list[Derivation] = []
    waiting = modules
    while waiting:
        ready = [module for module in waiting if not any(_comes_before(other, module) for other in waiting)]
        if not ready:
            raise RuntimeError(f"derivations depend on each other: {sorted(key for m in waiting for key in m.OUTPUTS)}")
        ordered += ready
        waiting = [module for module in waiting if module not in ready]
    return tuple(ordered)


def _comes_before(one: Derivation, other: Derivation) -> bool:
    """Whether ``other`` reads what ``one`` gives. Those that refine the same list may come in any order."""
    return one is not other and any(
        key in other.INPUTS and (key not in one.INPUTS or key not in other.OUTPUTS) for key in one.OUTPUTS
    )
