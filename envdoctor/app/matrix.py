"""``envdoctor matrix``: whether the rules pass their own tests, and whether rules and tables are well written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from envdoctor.install.checking import check_fixes
from envdoctor.judge.selftest import Case, check_bounds, check_coverage, check_mutations, try_tests
from envdoctor.knowledge.linting import lint_documents, lint_rule
from envdoctor.knowledge.literals import Literals
from envdoctor.knowledge.matrix import Matrix
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
    documents = list(lint_documents(matrix))
    yield from (Complaint(origin, text) for origin, text in documents)
    if documents:
        yield Complaint(documents[0][0], "until this is mended, the tests of rules are not run: they need the tables")
    literals = Literals(matrix)
    for rule in map(with_conditions, matrix.rules):
        yield from (Complaint(rule.origin, text) for text in lint_rule(rule, matrix, today=today))
        if not documents:
            yield from (Complaint(rule.origin, text) for text in _tried(rule, matrix, literals))


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
