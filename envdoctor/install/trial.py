"""A change tried on facts: the errors that would be there then, and the requirements that it would break."""

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.derive import with_facts
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Range
from envdoctor.install.remedy import Remedy
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.finding import Text
from envdoctor.judge.judging import Problem, errors_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule
from envdoctor.text.message import Message


class Before(NamedTuple):
    """Facts as they are, with their errors, those that are folded into others as well (``told``), and the unmet
    requirements: pairs of a package and who asks for it."""

    facts: FactSet
    matrix: Matrix
    errors: Mapping[Problem, Text]
    told: Mapping[Problem, Text]
    unmet: frozenset[tuple[str, str]]


class After(NamedTuple):
    """What a change would lead to. ``broken`` says which requirement of an installed package it would break, in words;
    None when it breaks none that is known."""

    facts: FactSet
    errors: Mapping[Problem, Text]
    broken: Message | None

    def new(self, now: Before) -> list[Problem]:
        """The errors that were not there, not even folded into another, which the change ended."""
        return [problem for problem in self.errors if problem not in now.told]

    def objection(self, now: Before) -> Message | None:
        """What speaks against the change: a new error, or an unmet requirement that it would bring."""
        for new in self.new(now):
            return Message("it would bring {}: {}", new.rule_id, self.errors[new])
        return self.broken


def before(facts: FactSet, matrix: Matrix) -> Before:
    """What a change is compared with. ``facts`` are derived ones."""
    return Before(facts, matrix, *errors_of(facts, matrix), _unmet(facts))


def apply(remedy: Remedy, facts: FactSet, matrix: Matrix) -> FactSet:
    """The facts as the change would leave them. What a package asks for of which it takes another release, and what the
    change leaves alone, the installer moves along: to a release that is not known, of those that are asked for."""
    after = with_facts(facts, remedy.facts, matrix)
    changed = {name for name in remedy.pins if facts.value(f"pkg.{name}") is not ABSENT}
    new, moved = _unmet(after) - _unmet(facts), []
    for item in after.items("conflict"):
        package, wanted = str(item["package"]), item.get("wanted")
        askers = {asker.partition(" ")[0] for name, asker in new if name == package}
        if askers and askers <= changed and package not in remedy.pins and isinstance(wanted, str):
            releases = Range(wanted.removeprefix(package))
            moved.append(Fact(f"pkg.{package}", releases, Message("what the installer moves along"), "given"))
    return with_facts(facts, (*remedy.facts, *moved), matrix) if moved else after


def try_remedy(remedy: Remedy, now: Before) -> After:
    """Judge a change as a whole. What packages ask for counts, by their own metadata or the ledger. A package that was
    not there may ask for nothing else than what is there."""
    after = apply(remedy, now.facts, now.matrix)
    new = sorted(_unmet(after) - now.unmet)
    broken = Message("it would break a requirement: {} asks for another {}", new[0][1], new[0][0]) if new else None
    if new and new[0][0] in remedy.removed:
        broken = Message("it would break a requirement: {} asks for {}", new[0][1], new[0][0])
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
    return any(not now.facts.unknown(key) for key in outcome.missing)


def _unmet(facts: FactSet) -> frozenset[tuple[str, str]]:
    return frozenset(
        (package, asker)
        for item in facts.each("conflict")
        if (package := item.text("package")) is not None
        for asker in item.words("required_by") or ()
    )
