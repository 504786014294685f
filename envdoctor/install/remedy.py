"""What a fix changes in an environment, as packages, settings and facts, several changes being one; tried on facts, the
errors that would be there then, and the requirements that it would break."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from envdoctor.derive import with_facts
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Range, spell
from envdoctor.install.commands import Pin, Place, install_commands, uninstall_commands
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.finding import Text
from envdoctor.judge.judging import Problem, errors_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule
from envdoctor.text.message import Message

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*\Z"


class Remedy(NamedTuple):
    """``pins`` are installed (``==2.4.1``), ``removed`` are uninstalled, ``variables`` are exported (``absent``:
    unset), ``settings`` go into the recipe. ``cuda_tag`` is the local tag of the builds to take, None for the default
    ones. ``facts`` are those that the change gives."""

    pins: Mapping[str, str] = {}
    removed: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    cuda_tag: str | None = None
    facts: tuple[Fact, ...] = ()

    def __add__(self, other: object) -> "Remedy":
        """Both, one after the other: the later one decides about a package that both change."""
        if not isinstance(other, Remedy):
            return NotImplemented
        facts = {fact.key: fact for fact in (*self.facts, *other.facts)}
        removed = [name for name in self.removed if name not in other.pins]
        pins = {name: pin for name, pin in self.pins.items() if name not in other.removed}
        return Remedy(
            {**pins, **other.pins},
            tuple(dict.fromkeys((*removed, *other.removed))),
            {**self.variables, **other.variables},
            {**self.settings, **other.settings},
            other.cuda_tag or self.cuda_tag,
            tuple(facts.values()),
        )

    @property
    def parts(self) -> frozenset[tuple[str, str]]:
        """What tells two changes apart: what each does to which package or setting."""
        settings = {**self.variables, **self.settings}
        return frozenset((*self.pins.items(), *((name, "absent") for name in self.removed), *settings.items()))

    def commands(self, place: Place, packages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        """Shell commands in the order in which they are run."""
        rows = list(packages)
        pins: list[Pin] = list(self.pins.items())
        from shlex import quote

        exports = [
            f"unset {name}" if value == "absent" else f"export {name}={quote(value)}"
            for name, value in self.variables.items()
            if re.match(_VARIABLE, name)
        ]
        removing = uninstall_commands(self.removed, place, rows)
        return (*removing, *install_commands(pins, place, self.cuda_tag, rows), *exports)


NOTHING = Remedy()


def written(value: Any) -> str:
    """A value of a fix as text: ``absent``, ``true``, ``1``, ``a,b``."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return spell(value) if isinstance(value, (bool, float)) else str(value)


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
