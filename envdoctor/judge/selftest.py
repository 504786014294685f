"""Try a rule on its own tests, and on what follows from them: no condition, clause or bound may be without effect.

A person writes at least one matching case a clause. The others are derived here: one fact of a matching case is
changed to a value on the other side of a condition.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.judge.derivations import derive
from envdoctor.judge.evaluate import answer, evaluate
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Condition, Rule, spelled
from envdoctor.observe.documents.facts_file import SCHEMA, FactsFileError, facts_of_document

_WORDS = {True: "match", False: "no", None: "unknown"}
#: Marks a fact that a derived test leaves out.
_LEFT_OUT = object()


class RuleCase(NamedTuple):
    """One embedded test that was tried: its number (from 1), name, what it expected and what came out, or why it could
    not run. ``facts`` are those given and what follows from them; ``test`` is how the rule writes it."""

    number: int
    name: str
    expected: str
    got: str
    facts: FactSet
    test: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Return whether the rule answered as expected."""
        return self.expected == self.got

    def __str__(self) -> str:
        return f"test {self.number} ({self.name}): expected {self.expected}, got {self.got}"


def try_tests(rule: Rule, matrix: Matrix) -> list[RuleCase]:
    """Return every written test of the rule, tried, in order."""
    cases = []
    for number, test in enumerate(matrix.texts(rule)["test"], 1):
        name = test["name"] or ", ".join(f"{key}={value}" for key, value in test["facts"].items())
        facts = FactSet()
        try:
            facts = facts_of(test, matrix)
            got = _answer(rule, facts, matrix)
        except FactsFileError as error:
            got = f"error: {error}"
        cases.append(RuleCase(number, name, test["expect"], got, facts, test))
    return cases


def _answer(rule: Rule, facts: FactSet, matrix: Matrix) -> str:
    return _WORDS[evaluate(rule, facts, matrix.registry).holds]


def facts_of(test: Mapping[str, Any], matrix: Matrix) -> FactSet:
    """Return the facts of a test, derived. Raises :class:`~envdoctor.observe.documents.facts_file.FactsFileError`."""
    document = {"schema": SCHEMA, "facts": test["facts"], "complete": test["complete"]}
    facts = facts_of_document(document, "its facts", matrix.registry)
    derive(facts, matrix)
    return facts


def check_coverage(rule: Rule, cases: Sequence[RuleCase], matrix: Matrix) -> Iterator[str]:
    """Yield each clause that no written test matches; clauses from the ledger count as one."""
    matching = [case.facts for case in cases if case.expected == "match"]
    if not matching:
        yield 'no test expects "match"'
        return
    ledger = matrix.texts(rule)["from_ledger"]
    groups = [[number] for number in range(len(rule.affects)) if number not in ledger] + ([ledger] if ledger else [])
    for group in groups:
        alone = rule._replace(affects=[rule.affects[number] for number in group])
        if not any(_answer(alone, facts, matrix) == "match" for facts in matching):
            yield f"affects {group[0] + 1}: no test matches this clause"


def check_mutations(rule: Rule, cases: Sequence[RuleCase], matrix: Matrix) -> Iterator[str]:
    """Yield each condition, bound, item of an any-of list, clause or exception that can be dropped without any test,
    written or derived, answering otherwise."""
    derived = _Derived(rule, cases, matrix)
    for mutant in _mutants(rule, matrix):
        written = any(_answer(mutant.rule, case.facts, matrix) != case.expected for case in cases)
        if not written and not derived.tells(mutant):
            yield f"{mutant.part} can be dropped and every test still passes"


class _Mutant(NamedTuple):
    """A rule with one thing less, and the condition that was changed or dropped (``now`` is None)."""

    part: str
    rule: Rule
    condition: Condition | None = None
    now: Condition | None = None


def _mutants(rule: Rule, matrix: Matrix) -> Iterator[_Mutant]:
    ledger = matrix.texts(rule)["from_ledger"]
    for name, clauses in (("affects", rule.affects), ("unless", rule.unless)):
        for number, clause in enumerate(clauses):
            if name == "affects" and number in ledger:
                continue  # the ledger wrote it
            where = f"{name} {number + 1}"
            if len(clauses) > 1 or name == "unless":
                fewer: dict[str, Any] = {name: _without(clauses, number)}
                yield _Mutant(f"{where} (the whole clause)", rule._replace(**fewer))
            for position, condition in enumerate(clause):
                if len(clause) > 1:
                    smaller: dict[str, Any] = {name: _replaced(clauses, number, _without(clause, position))}
                    yield _Mutant(f"{where}: {condition.key}", rule._replace(**smaller), condition)
                for part, now in _smaller(condition):
                    changed: dict[str, Any] = {name: _replaced(clauses, number, _replaced(clause, position, now))}
                    yield _Mutant(f"{where}: {part}", rule._replace(**changed), condition, now)
    for number, entry in enumerate(rule.assume):
        yield _Mutant(f"assume {entry[0]}", rule._replace(assume=_without(rule.assume, number)))


def _smaller(condition: Condition) -> Iterator[tuple[str, Condition]]:
    """Yield the condition with one item of its list less, and with one bound of an item less."""
    items = condition.alternatives
    for number, item in enumerate(items):
        if len(items) > 1:
            yield f"{condition.key}: {spelled(item)}", condition._replace(alternatives=_without(items, number))
        for position, (operator, operand) in enumerate(item if isinstance(item, list) else ()):
            if len(item) > 1:
                fewer = _replaced(items, number, _without(item, position))
                yield f"{condition.key}: {operator}{operand}", condition._replace(alternatives=fewer)


def _without(items: list[Any], number: int) -> list[Any]:
    return items[:number] + items[number + 1 :]


def _replaced(items: list[Any], number: int, item: Any) -> list[Any]:
    return [*items[:number], item, *items[number + 1 :]]


class _Derived:
    """Tests that follow from the matching ones."""

    def __init__(self, rule: Rule, cases: Sequence[RuleCase], matrix: Matrix) -> None:
        self._rule, self._matrix, self._registry = rule, matrix, matrix.registry
        matching = [case.test for case in cases if case.got == "match"]
        #: Each matching test, and each with one of the exceptions fulfilled.
        self._bases = [*matching, *(base for test in matching for base in self._excepted(test))]
        self._tried: dict[str, tuple[FactSet, str] | None] = {}

    def tells(self, mutant: _Mutant) -> bool:
        """Return whether the rule and the mutant answer differently to a derived test."""
        if mutant.condition is None:
            tests = [*self._bases]
            for base in self._bases:  # without one of its facts, for what is assumed then
                facts = base["facts"]
                tests += ({**base, "facts": _with(facts, key, _LEFT_OUT)} for key in facts)
        else:
            tests = [test for base in self._bases for test in self._told_apart(mutant.condition, mutant.now, base)]
        return any(
            attempt is not None and _answer(mutant.rule, attempt[0], self._matrix) != attempt[1]
            for attempt in map(self._try, tests)
        )

    def _try(self, test: Mapping[str, Any]) -> tuple[FactSet, str] | None:
        """Return the facts of a test and what the rule says of them; None for facts that cannot be."""
        name = repr(test["facts"]) + repr(test["complete"])
        if name not in self._tried:
            self._tried[name] = None
            with suppress(FactsFileError):
                facts = facts_of(test, self._matrix)
                self._tried[name] = facts, _answer(self._rule, facts, self._matrix)
        return self._tried[name]

    def _excepted(self, test: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the test with the conditions of one exception fulfilled."""
        for clause in self._rule.unless:
            changed = test
            for condition in clause:
                never = condition._replace(alternatives=[])
                changed = next(self._told_apart(condition, never, changed), changed)
            if changed is not test:
                yield changed

    def _told_apart(
        self, condition: Condition, now: Condition | None, base: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the test with each value, as a facts file gives it, that tells a condition from the changed one."""
        spec = self._registry.find(condition.key)
        assert spec is not None, "parse_rule checks the keys"
        for raw in _values(condition, base["facts"].get(condition.key)):
            try:
                value = parse_value(spec, raw)
            except FactTypeError:
                continue
            before = answer(condition.type, condition.alternatives, value).holds
            after = True if now is None else answer(now.type, now.alternatives, value).holds
            if before is not after:
                yield from self._changed(base, condition, raw)
        if now is None:
            yield from self._changed(base, condition, _LEFT_OUT)

    def _changed(self, base: Mapping[str, Any], condition: Condition, value: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the test with the value for the fact of a condition, or in one record of a list."""
        key, facts = condition.key, base["facts"]
        parent = self._registry.records_of(key)
        if parent is None:
            yield {**base, "facts": _with(facts, key, value)}
            return
        column = key.partition(".")[2]
        items = facts.get(parent.key)
        items = items if isinstance(items, list) and items else [{}]
        for number, item in enumerate(items):
            changed = _replaced(items, number, _with(item, column, value))
            yield {**base, "facts": _with(facts, parent.key, changed)}


def _with(table: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    changed = {other: cell for other, cell in table.items() if other != key}
    return changed if value is _LEFT_OUT else {**changed, key: value}


def _values(condition: Condition, current: Any) -> Iterator[Any]:
    """Yield the values that a condition names, and values beside them."""
    for alternative in condition.alternatives:
        for operator, operand in alternative if isinstance(alternative, list) else ():
            yield from _beside(condition.type, operator, operand, current)
        if isinstance(alternative, str) and alternative not in ("absent", "present"):
            yield alternative.replace("*", "").replace("?", "0") or "x"
    yield {"version": "0.0.1", "dotted": "0.1", "number": 0, "boolean": True, "texts": ["something"]}.get(
        condition.type, "something"
    )
    yield from [False] if condition.type == "boolean" else []
    yield from ([], [{}]) if condition.type == "records" else ("absent",)


def _beside(kind: str, operator: str, operand: str, current: Any) -> Iterator[Any]:
    """Yield a bound, and what lies right below and above it; a version with the local tag that is given, too."""
    if kind == "number":
        yield from (float(operand), float(operand) - 1, float(operand) + 1)
        return
    bound = operand.removesuffix(".*")
    numbers = bound.split(".")
    last = next((place for place in range(len(numbers) - 1, -1, -1) if numbers[place].strip("0")), None)
    values = [bound, f"{bound}.1" if all(map(str.isdigit, numbers)) else bound]
    if last is not None and numbers[last].isdigit():
        below = [*numbers[:last], str(int(numbers[last]) - 1), "9"]
        above = [*numbers[:last], str(int(numbers[last]) + 1)]
        values += [".".join(below), ".".join(above)]
    elif "rc" in bound:
        release, _, number = bound.partition("rc")
        values += [f"{release}rc{int(number) - 1}", release]
    local = str(current).partition("+")[2] if kind == "version" else ""
    for value in values:
        yield from (f"{value}+{local}", value) if local else (value,)
