"""What a run asks for beside what its packages bring along: the rows of the table ``run-needs`` that hold for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.judge.compare import answer
from envdoctor.knowledge.conditions import parse_condition
from envdoctor.knowledge.matrix import Matrix

__all__ = ["needs_of"]


def needs_of(facts: FactSet, matrix: Matrix) -> Iterator[Mapping[str, Any]]:
    """The rows whose conditions all hold; one that cannot be decided counts as not asked for."""
    for row in matrix.rows("run-needs"):
        conditions = [parse_condition(matrix.registry, key, text) for key, text in row.get("when", {}).items()]
        if all(answer(one.type, one.alternatives, facts.value(one.key)).holds for one in conditions):
            yield row
