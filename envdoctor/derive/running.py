"""Running every derivation in the order of its inputs."""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

__all__ = ["Derived", "derive"]


class Derived(NamedTuple):
    """A computed value (known, absent or unknown with a reason) and what it was computed from, in words.

    ``assumed`` marks what usually is so and need not be: findings that rest on it say the origin, and count for less.
    """

    value: Value
    origin: str
    assumed: bool = False


class Derivation(Protocol):
    """What a module of this folder offers."""

    INPUTS: tuple[str, ...]
    OUTPUTS: tuple[str, ...]

    def compute(self, value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]: ...


def derive(facts: FactSet, matrix: Matrix) -> None:
    """Add derived facts to ``facts``.

    A value that was given or observed stands: a derivation only fills what is unknown, and refines a record list that
    it names as both input and output.
    """
    for derivation in _derivations():
        for key, derived in derivation.compute(facts.value, matrix).items():
            present = facts.value(key)
            refines = key in derivation.INPUTS
            if not refines and not isinstance(present, Unknown):
                continue
            if isinstance(derived.value, Unknown) and key in facts:
                continue  # the observation's own reason says more
            # A refined list stays what it was: observed or given, and so is written into facts files.
            computed = "assumed" if derived.assumed else "derived"
            source = facts.get(key).source if refines and key in facts else computed
            facts.add(Fact(key, derived.value, derived.origin, source))


@lru_cache(maxsize=1)
def _derivations() -> tuple[Derivation, ...]:
    # pkgutil would do the same and costs 3 ms to import.
    names = sorted(name[:-3] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".py"))
    modules = [
        cast(Derivation, import_module(f"envdoctor.derive.{name}"))
        for name in names
        if name not in ("__init__", "running")
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
