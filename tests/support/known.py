"""Facts from plain values, and judging them as the commands do."""

from collections.abc import Iterable, Mapping
from typing import Any

from observing import shipped

from envdoctor.facts import Fact, FactSet, Registry, Unknown, parse_value
from envdoctor.judge import Judgement, Policy, judge
from envdoctor.judge.derivations import derive
from envdoctor.matrix import Matrix
from envdoctor.remedy import with_fixes


def given(
    values: Mapping[str, Any], registry: Registry, complete: Iterable[str] = (), origin: str = "facts.json"
) -> FactSet:
    """Facts as a facts file gives them; ``complete`` names prefixes whose unlisted keys are absent."""
    found = FactSet()
    for key, raw in values.items():
        spec = registry.find(key)
        assert spec is not None, key
        found.add(Fact(key, parse_value(spec, raw), origin, "given"))
    for prefix in complete:
        found.declare_complete(prefix, origin)
    return found


def keyed(**values: Any) -> dict[str, Any]:
    """Values by the keys of their facts; two underscores stand for a dot: ``keyed(torch__cuda="12.4")``."""
    return {name.replace("__", "."): value for name, value in values.items()}


def derived(facts: FactSet, matrix: Matrix) -> FactSet:
    """A copy with what follows from the facts."""
    known = facts.copy()
    derive(known, matrix)
    return known


def following(**values: Any) -> FactSet:
    """What follows from facts by the shipped matrix; two underscores stand for a dot."""
    return derived(given(keyed(**values), shipped().registry), shipped())


def answer(value: Any) -> Any:
    """The value, or ``Unknown`` for whatever is not known."""
    return Unknown if isinstance(value, Unknown) else value


def judged(facts: FactSet, matrix: Matrix, policy: Policy | None = None) -> Judgement:
    """What the matrix says of the facts and of what follows from them, with fixes."""
    return with_fixes(judge(derived(facts, matrix), matrix, policy or Policy()), matrix)
