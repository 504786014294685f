"""A rule judged by its own tests: expected answers, both sides of every bound, and no condition without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.derive import derive
from envdoctor.facts.factset import FactSet
from envdoctor.judge.compare import answer
from envdoctor.judge.evaluate import evaluate
from envdoctor.knowledge.conditions import Condition, bounds, spelled
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule
from envdoctor.observe.documents.facts_file import SCHEMA, FactsFileError, facts_of_document

__all__ = ["Case", "check_bounds", "check_coverage", "check_mutations", "facts_of", "try_tests"]

_WORDS = {True: "match", False: "no", None: "unknown"}


class Case(NamedTuple):
    """One embedded test that was tried: its number (from 1), name, what it expected and what came out, or why it could
    not run. ``facts`` are those given and what follows from them."""

    number: int
    name: str
    expected: str
    got: str
    facts: FactSet

    @property
    def passed(self) -> bool:
        """Whether the rule answered as expected."""
        return self.expected == self.got

    def __str__(self) -> str:
        return f"test {self.number} ({self.name}): expected {self.expected}, got {self.got}"


def try_tests(rule: Rule, matrix: Matrix) -> list[Case]:
    """Every embedded test of the rule, in order."""
    cases = []
    for number, test in enumerate(matrix.texts(rule)["test"], 1):
        name = test["name"] or ", ".join(f"{key}={value}" for key, value in test["facts"].items())
        facts = FactSet()
        try:
            facts = facts_of(test, matrix)
            got = _answer(rule, facts, matrix)
        except FactsFileError as error:
            got = f"error: {error}"
        cases.append(Case(number, name, test["expect"], got, facts))
    return cases


def _answer(rule: Rule, facts: FactSet, matrix: Matrix) -> str:
    return _WORDS[evaluate(rule, facts, matrix.registry).holds]


def facts_of(test: Mapping[str, Any], matrix: Matrix) -> FactSet:
    """The facts of a test, derived. Raises :class:`~envdoctor.observe.documents.facts_file.FactsFileError`."""
    document = {"schema": SCHEMA, "facts": test["facts"], "complete": test["complete"]}
    facts = facts_of_document(document, "its facts", matrix.registry)
    derive(facts, matrix)
    return facts


def check_coverage(rule: Rule, matrix: Matrix) -> Iterator[str]:
    """A rule needs a test that matches, one that does not, and one that cannot tell (unless only packages decide)."""
    expected = {test["expect"] for test in matrix.texts(rule)["test"]}
    for word in ("match", "no"):
        if word not in expected:
            yield f'no test expects "{word}"'
    if "unknown" not in expected and not all(key.startswith("pkg.") for key in rule.keys()):  # noqa: SIM118
        yield 'no test expects "unknown" (a fact that was not given)'


def check_bounds(rule: Rule, matrix: Matrix) -> Iterator[str]:
    """For every bound two tests that differ in that fact alone, lie on its two sides, and get different answers."""
    tests = [(test["expect"], _flat(test)) for test in matrix.texts(rule)["test"]]
    comparisons = [
        (condition, *bound)
        for clause in (*rule.affects, *rule.unless)
        for condition in clause
        for bound in bounds(condition)
    ]
    told: set[str] = set()
    for condition, operator, operand in comparisons:
        bound = f"{condition.key} {operator}{operand}"
        if bound not in told and not _both_sides(condition, operator, operand, tests):
            yield f"{bound}: no two tests on its two sides, otherwise equal"
        told.add(bound)


def _flat(test: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a test with record columns spelled out, so that two tests can be compared fact by fact."""
    flat: dict[str, Any] = {}
    for key, value in test["facts"].items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                for column, cell in item.items():
                    flat[f"{key}.{column}#{number}"] = cell
        else:
            flat[key] = value
    flat["complete"] = tuple(test["complete"])
    return flat


def _both_sides(condition: Condition, operator: str, operand: str, tests: Sequence[tuple[str, dict[str, Any]]]) -> bool:
    for first_number, (first_expect, first) in enumerate(tests):
        for second_expect, second in tests[first_number + 1 :]:
            if first_expect == second_expect:
                continue
            differing = [key for key in {**first, **second} if first.get(key) != second.get(key)]
            if len(differing) != 1 or differing[0].partition("#")[0] != condition.key:
                continue
            sides = {_side(condition.type, operator, operand, facts.get(differing[0])) for facts in (first, second)}
            if sides == {True, False}:
                return True
    return False


def _side(kind: str, operator: str, operand: str, value: Any) -> bool | None:
    if value is None or value == "absent":
        return None
    # "==2.5.0" has two sides too: equal and not equal.
    return answer(kind, [[[operator, operand]]], value).holds


def check_mutations(rule: Rule, cases: Sequence[Case], matrix: Matrix) -> Iterator[str]:
    """Dropping any condition, item of an any-of list, clause or exception must make a test fail."""
    for what, mutant in _mutants(rule):
        if all(_answer(mutant, case.facts, matrix) == case.expected for case in cases):
            yield f"{what} can be dropped and every test still passes"


def _mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    for name, clauses in (("affects", rule.affects), ("unless", rule.unless)):
        for number, clause in enumerate(clauses):
            where = f"{name} {number + 1}"
            if len(clauses) > 1 or name == "unless":
                yield f"{where} (the whole clause)", _with_clauses(rule, name, _without(clauses, number))
            for position, condition in enumerate(clause):
                if len(clause) > 1:
                    smaller = _replaced(clauses, number, _without(clause, position))
                    yield f"{where}: {condition.key}", _with_clauses(rule, name, smaller)
                for item, alternative in enumerate(condition.alternatives):
                    if len(condition.alternatives) > 1:
                        fewer = condition._replace(alternatives=_without(condition.alternatives, item))
                        changed = _replaced(clauses, number, _replaced(clause, position, fewer))
                        yield f"{where}: {condition.key}: {spelled(alternative)}", _with_clauses(rule, name, changed)
    for number, entry in enumerate(rule.assume):
        yield f"assume {entry[0]}", rule._replace(assume=_without(rule.assume, number))


def _with_clauses(rule: Rule, name: str, clauses: list[list[Condition]]) -> Rule:
    return rule._replace(affects=clauses) if name == "affects" else rule._replace(unless=clauses)


def _without(items: list[Any], number: int) -> list[Any]:
    return items[:number] + items[number + 1 :]


def _replaced(items: list[Any], number: int, item: Any) -> list[Any]:
    return [*items[:number], item, *items[number + 1 :]]
