"""``envdoctor matrix``: whether the rules pass their own tests, and whether rules and tables are well written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from envdoctor.install.checking import check_fixes
from envdoctor.judge.selftest import Case, check_coverage, check_mutations, try_tests
from envdoctor.knowledge.linting import lint_documents, lint_rule
from envdoctor.knowledge.literals import Literals
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule, with_conditions
from envdoctor.knowledge.table_schemas import PARTS

__all__ = ["Complaint", "lint", "stale", "statistics", "test_rules"]


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
    if not failed:  # they would only repeat the failure
        yield from check_coverage(rule, cases, matrix)
        yield from check_mutations(rule, cases, matrix)
        yield from check_fixes(rule, cases, matrix)


def test_rules(rules: Iterable[Rule], matrix: Matrix) -> Iterator[tuple[str, Case]]:
    """The embedded tests of rules, as (rule id, test)."""
    for rule in map(with_conditions, rules):
        for case in try_tests(rule, matrix):
            yield rule.id, case


def stale(matrix: Matrix, *, today: date, days: int) -> Iterator[Complaint]:
    """Rules and tables of which nothing was read again for so many days."""
    limit = (today - timedelta(days=days)).isoformat()
    for rule in matrix.rules:
        read = _last_read(rule, matrix)
        if read < limit:
            yield Complaint(rule.origin, f"its evidence was last read on {read}")
    for name in PARTS:
        of = str(matrix.part(name, "table").get("as_of", limit))
        if of < limit:
            yield Complaint(f"tables/{name}.toml", f"as_of: {of}")


def statistics(matrix: Matrix, *, today: date) -> Iterator[str]:
    """Counts of the rules: by subject, severity, confidence and the days since their evidence was read."""
    rules = matrix.rules
    ages = [(today - date.fromisoformat(_last_read(rule, matrix))).days for rule in rules]
    columns = {
        "severity": [rule.severity for rule in rules],
        "confidence": [rule.confidence for rule in rules],
        "effect": [rule.effect for rule in rules],
        "read within": [next((f"{days} days" for days in (30, 90, 365) if age <= days), "years") for age in ages],
        "subject": [rule.origin.split("/")[-2] for rule in rules],
    }
    for title, values in columns.items():
        counts = ", ".join(f"{value} {count}" for value, count in Counter(values).most_common())
        yield f"{title}: {counts}"
    tests = sum(len(matrix.texts(rule)["test"]) for rule in rules)
    inferred = sum(rule.confidence == "inferred" for rule in rules)
    yield f"{len(rules)} rules, {tests} tests in them; {len(rules) - inferred} rest on more than inference"


def _last_read(rule: Rule, matrix: Matrix) -> str:
    """The day on which some of a rule's evidence was last read; that of its last change where it names none."""
    texts = matrix.texts(rule)
    return max((str(one["checked"]) for one in texts["evidence"]), default=str(texts["modified"]))
