"""``envdoctor matrix``: whether the rules pass their own tests, and whether they are well written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from envdoctor.install.checking import check_fixes
from envdoctor.judge.selftest import (
    CaseResult,
    check_bounds,
    check_coverage,
    check_mutations,
    run_tests,
)
from envdoctor.knowledge.linting import lint_matrix, lint_rule
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import with_conditions

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
    for origin, text in lint_matrix(matrix):
        yield Complaint(origin, text)
    for rule in map(with_conditions, matrix.rules):
        for text in lint_rule(rule, matrix, today=today):
            yield Complaint(rule.origin, text)
        failed = [result for result in run_tests(rule, matrix) if not result.passed]
        for result in failed:
            yield Complaint(
                rule.origin, f"test {result.number} ({result.name}): expected {result.expected}, got {result.got}"
            )
        for text in check_coverage(rule, matrix):
            yield Complaint(rule.origin, text)
        for text in check_bounds(rule, matrix):
            yield Complaint(rule.origin, text)
        if not failed:  # they would only repeat the failure
            for text in check_mutations(rule, matrix):
                yield Complaint(rule.origin, text)
            for text in check_fixes(rule, matrix):
                yield Complaint(rule.origin, text)


def test_rules(matrix: Matrix) -> Iterator[tuple[str, CaseResult]]:
    """The embedded tests of every rule, as (rule id, result)."""
    for rule in map(with_conditions, matrix.rules):
        for result in run_tests(rule, matrix):
            yield rule.id, result
