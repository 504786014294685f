"""``envdoctor matrix``: whether the rules pass their own tests, and whether rules and tables are well written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from envdoctor.install.checking import check_fixes
from envdoctor.judge.selftest import Case, check_bounds, check_coverage, check_mutations, try_tests
from envdoctor.knowledge.linting import lint_documents, lint_rule
from envdoctor.knowledge.literals import Literals
from envdoctor.knowledge.matrix import Matrix, MatrixError
from envdoctor.knowledge.rules import Rule, with_conditions

__all__ = ["Complaint", "lint", "test_rules"]


class Complaint(NamedTuple):
    """One fault of a rule or table: the file, and a clause that names the key."""

    origin: str
    text: str


def lint(matrix: Matrix, *, today: date) -> Iterator[Complaint]:
    """Every complaint, file by file."""
    for broken in matrix.broken:
        for problem in broken.problems:
            yield Complaint(broken.origin, problem)
    for origin, text in lint_documents(matrix):
        yield Complaint(origin, text)
    literals = Literals(matrix)
    for rule in map(with_conditions, matrix.rules):
        for text in lint_rule(rule, matrix, today=today):
            yield Complaint(rule.origin, text)
        try:
            for text in _tried(rule, matrix, literals):
                yield Complaint(rule.origin, text)
        except MatrixError:
            pass  # a table that cannot be read was named above; what needs it cannot be tried


def _tried(rule: Rule, matrix: Matrix, literals: Literals) -> Iterator[str]:
    yield from literals.complaints(rule, matrix.texts(rule))
    cases = try_tests(rule, matrix)
    failed = [case for case in cases if not case.passed]
    yield from map(str, failed)
    yield from check_coverage(rule, matrix)
    yield from check_bounds(rule, matrix)
    if not failed:  # they would only repeat the failure
        yield from check_mutations(rule, cases, matrix)
        yield from check_fixes(rule, cases, matrix)


def test_rules(rules: Iterable[Rule], matrix: Matrix) -> Iterator[tuple[str, Case]]:
    """The embedded tests of rules, as (rule id, test)."""
    for rule in map(with_conditions, rules):
        for case in try_tests(rule, matrix):
            yield rule.id, case
