"""A change tried on facts: the errors that would be there then, and the requirements that it would break."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from envdoctor.derive import derive
from envdoctor.facts.change import change
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Records, Unknown
from envdoctor.install.remedy import Remedy
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.finding import Text
from envdoctor.judge.judging import Problem, errors_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.requirement import read_requirement


class Before(NamedTuple):
    """Facts as they are, with their errors, those that are folded into others as well (``told``), and the unmet
    requirements: pairs of a package and who asks for it."""

    facts: FactSet
    matrix: Matrix
    errors: Mapping[Problem, Text]
    told: Mapping[Problem, Text]
    unmet: frozenset[tuple[str, str]]


class Objection(NamedTuple):
    """What speaks against a change, in words; ``quotes`` is the message of the error that they end with, if any."""

    said: str
    quotes: Text | None = None


class After(NamedTuple):
    """What a change would lead to. ``broken`` says which requirement of an installed package it would break, in words;
    None when it breaks none that is known."""

    facts: FactSet
    errors: Mapping[Problem, Text]
    broken: str | None

    def new(self, now: Before) -> list[Problem]:
        """The errors that were not there, not even folded into another, which the change ended."""
        return [problem for problem in self.errors if problem not in now.told]

    def objection(self, now: Before) -> Objection | None:
        """What speaks against the change: a new error, or an unmet requirement that it would bring."""
        for new in self.new(now):
            message = self.errors[new]
            return Objection(f"it would bring {new.rule_id}: {message.en}", message)
        return Objection(self.broken) if self.broken else None


def before(facts: FactSet, matrix: Matrix) -> Before:
    """What a change is compared with. ``facts`` are derived ones."""
    return Before(facts, matrix, *errors_of(facts, matrix), _unmet(facts))


def apply(remedy: Remedy, facts: FactSet, matrix: Matrix) -> FactSet:
    """The facts as the change would leave them."""
    after = change(facts, remedy.facts, matrix.registry)
    derive(after, matrix)
    return after


def try_remedy(remedy: Remedy, now: Before) -> After:
    """Judge a change as a whole. All packages that stay ask for what their own metadata says; what releases of the
    change ask of each other the ledger knows: no installer takes two that disagree. A package that was not there may
    ask for nothing else than what is there: else the installer would change that too."""
    after = apply(remedy, now.facts, now.matrix)
    new = sorted(_unmet(after) - now.unmet)
    broken = f"it would break a requirement: {new[0][1]} asks for another {new[0][0]}" if new else None
    if new and new[0][0] in remedy.removed:
        broken = f"it would break a requirement: {new[0][1]} asks for {new[0][0]}"
    if broken is None and (odds := next(_at_odds(remedy, now, after), None)):
        broken = f"it would break a requirement: {odds[0]} asks for another {odds[1]}"
    errors = dict(errors_of(after, now.matrix)[0])
    for problem, said in now.errors.items():
        rule = now.matrix.find(problem.rule_id)
        if problem not in errors and rule is not None and is_lost(rule, now, after):
            errors[problem] = said
    return After(after, errors, broken)


def is_lost(rule: Rule, now: Before, after: FactSet) -> bool:
    """Whether a change leaves it open if the rule applies, which was known before: then it counts as if it did."""
    outcome = evaluate(rule, after, now.matrix.registry) if rule.each is None else None
    if outcome is None or outcome.holds is not None:
        return False
    return any(not isinstance(now.facts.value(key), Unknown) for key in outcome.missing)


def _at_odds(remedy: Remedy, now: Before, after: FactSet) -> Iterator[tuple[str, str]]:
    """The pairs of releases of which the first, of the change, does not allow the second, the latter by its name."""
    versions = {name: pin[2:] for name, pin in remedy.pins.items() if is_version(pin.removeprefix("=="))}
    for name, version in versions.items():
        added = now.facts.value(f"pkg.{name}") is ABSENT
        package = now.matrix.ledger.package(name) if added or len(versions) > 1 else None
        lines = package.items("requires", "*", version) if package is not None else ()
        for line in () if isinstance(lines, Unknown) else lines:
            need = read_requirement(line)
            other = after.value(f"pkg.{need.name}") if added else versions.get(need.name)
            if isinstance(other, str) and not need.marker and satisfies(other, need.specifiers) is False:
                yield f"{name} {version}", need.name


def _unmet(facts: FactSet) -> frozenset[tuple[str, str]]:
    conflicts = facts.value("conflict")
    pairs: set[tuple[str, str]] = set()
    for item in conflicts if isinstance(conflicts, Records) else ():
        package, askers = item.get("package"), item.get("required_by")
        if isinstance(package, str) and isinstance(askers, tuple):
            pairs.update((package, asker) for asker in askers)
    return frozenset(pairs)
