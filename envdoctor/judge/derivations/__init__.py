"""Derivations: facts computed from facts and tables. A function each, in a file a subject.

``@derives("torch.cudnn", of="torch.cuda pkg.*")`` names what a function gives and reads: keys of facts; ``pkg.*`` is
any package. It is called with a :class:`~envdoctor.facts.factset.View` of the facts and the tables. With one output it
returns :class:`Derived`, or an unknown value with its reason; with several, a mapping by key, without the keys about
which it has nothing to say. It never judges. They run in the order of their inputs.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple, cast

from envdoctor.facts.factset import FactSet, View, change
from envdoctor.facts.values import Fact, Range, Unknown, Value
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.gather import CachedFacts
from envdoctor.system.files import Files, digest
from envdoctor.versions.pep440 import satisfies


class Derived(NamedTuple):
    """A computed value (known, absent or unknown with a reason) and its origin, in words.

    ``source`` says how sure it is: ``derived`` (it follows), ``default`` (a library does so by itself, and no source
    says otherwise), ``unasked`` (a default where no recipe was seen: it may raise a finding and never clears one), or
    ``assumed`` (it usually is so: findings that rest on it say the origin and count for less; it clears none either).
    """

    value: Value
    origin: str
    source: str = "derived"


#: The answer of a derivation of one output: a value with its origin, the reason why it is not known, or nothing.
Answer = Derived | Unknown | None


class _Derivation:
    """A function that computes facts (``outputs``) from facts (``inputs``; ``pkg.*`` stands for any package)."""

    def __init__(self, function: Callable[[View, Matrix], object], outputs: str, of: str) -> None:
        self.name = f"{function.__module__}:{function.__name__.lstrip('_')}"
        self.inputs, self.outputs = tuple(of.split()), tuple(outputs.split())
        self._function = function

    def compute(self, facts: View, matrix: Matrix) -> Mapping[str, Derived]:
        """Return the derived facts by key."""
        answer = self._function(facts, matrix)
        if isinstance(answer, Unknown):
            answer = Derived(answer, "")
        if isinstance(answer, Derived):
            return {self.outputs[0]: answer}
        return cast("Mapping[str, Derived]", answer or {})


def derives(outputs: str, *, of: str) -> Callable[[Callable[[View, Matrix], object]], _Derivation]:
    """Make a derivation of the function below: keys of facts, parted by blanks."""
    return lambda function: _Derivation(function, outputs, of)


def begun(items: Sequence[str], most: int = 3) -> str:
    """Join the first names of a list in a fact to ``a, b, c, … +2``."""
    return ", ".join([*items[:most], *([f"… +{len(items) - most}"] if len(items) > most else [])])


def with_facts(facts: FactSet, changes: Iterable[Fact], matrix: Matrix) -> FactSet:
    """Return a copy of the facts with these changes, and with what follows from them."""
    changed = change(facts, changes, matrix.registry)
    derive(changed, matrix)
    return changed


def derive(facts: FactSet, matrix: Matrix, home: str | None = None) -> None:
    """Add derived facts to ``facts``, and to ranges of packages the releases that they hold by the ledger.

    A value that was given or observed stands: a derivation only fills unknown values, and refines a record list that it
    names as both input and output. With ``home`` (envdoctor's cache folder), facts that were derived last time from the
    same facts of an environment, which come from there too, are not derived again.
    """
    for fact in [fact for fact in facts if isinstance(fact.value, Range) and not fact.value.releases]:
        assert isinstance(fact.value, Range)
        package = matrix.ledger.package(fact.key.removeprefix("pkg."))
        possible = ("0", *(release.version for release in package.releases), "99999") if package is not None else ()
        held = tuple(version for version in possible if satisfies(version, fact.value.specifiers))
        facts.add(fact._replace(value=Range(fact.value.specifiers, held)))
    entry = facts.kept.name if home and facts.kept and matrix.compiled else ""
    # One entry for an environment without a model, another for it with one.
    name = digest("\0".join((entry.rpartition("-")[2], *sorted(fact.key for fact in facts)))).hex() if entry else ""
    cached = CachedFacts(home if entry else None, "derived", name, key=(matrix.version, entry), facts=facts)
    previous = cached.get(Files())
    facts.update(previous)
    for derivation in () if previous else derivations():
        for key, derived in derivation.compute(View(cached.facts.value), matrix).items():
            refines, present = key in derivation.inputs, cached.facts.get(key)
            if not refines and not isinstance(present.value, Unknown):
                continue
            if isinstance(derived.value, Unknown) and key in facts:
                continue  # the observation's own reason says more
            # A refined list stays what it was: observed or given, and so is written into facts files.
            stays = refines and key in facts and derived.source in ("derived", "assumed")
            source = present.source if stays else derived.source
            origin = present.origin if stays and source == "given" else derived.origin
            fact = Fact(key, derived.value, origin, source)
            facts.add(fact)
            cached.add([fact])
    if entry and not previous:
        cached.put()


@lru_cache(maxsize=1)
def derivations() -> tuple[_Derivation, ...]:
    """Return the derivations, each behind those whose outputs it reads."""
    from graphlib import TopologicalSorter  # not where derived facts are kept
    from itertools import permutations

    # pkgutil would do the same and costs 3 ms to import.
    files = sorted(name[:-3] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".py"))
    modules = [import_module(f"envdoctor.judge.derivations.{name}") for name in files if name != "__init__"]
    nodes = [member for module in modules for member in vars(module).values() if isinstance(member, _Derivation)]
    sorter: TopologicalSorter[_Derivation] = TopologicalSorter(dict.fromkeys(nodes, ()))
    for source, user in permutations(nodes, 2):
        # Derivations that refine the same list may come in any order.
        if any(key in user.inputs and (key not in source.inputs or key not in user.outputs) for key in source.outputs):
            sorter.add(user, source)
    return tuple(sorter.static_order())
