"""Which of a rule's fixes is safe to offer: each is tried on the facts and judged again before it is shown."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.view import View
from envdoctor.install.candidates import Candidates, is_about_a_record
from envdoctor.install.commands import Before, Place, Remedy, before, for_place, is_lost, place_of, try_remedy, written
from envdoctor.judge.finding import Finding, OfferedFix
from envdoctor.judge.judging import Judgement, Problem, problem_of, problems_of
from envdoctor.judge.messages import text_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule
from envdoctor.text.message import Message

#: How many changes are judged before a fix is given up.
_TRIES = 12
#: How many records of one rule get fixes of their own: each is judged.
_RECORDS = 20
#: What a build of torch must fit: a fix that changes the build may leave no error that rests on one of these.
_FITS = frozenset(("driver.fits", "driver.version", "gpu.gap", "gpu.kernels", "torch.cuda"))


def with_fixes(judgement: Judgement, matrix: Matrix) -> Judgement:
    """The judgement with what to do about each finding: judged once for all records of a rule, unless the fixes are
    about the records."""
    if not judgement.findings:
        return judgement
    trial = _Trial(before(judgement.facts, matrix), place_of(judgement.facts))
    offered: dict[object, tuple[OfferedFix, ...]] = {}
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for finding in judgement.findings:
        rule = matrix.find(finding.id)
        assert rule is not None
        problem = problem_of(finding)
        counts[rule.id] = counts.get(rule.id, 0) + 1
        own = any(is_about_a_record(fix) for fix in matrix.texts(rule)["fix"]) and counts[rule.id] <= _RECORDS
        key = problem if own else rule.id
        if key not in offered:
            offered[key] = trial.offer_all(rule, problem if own else Problem(rule.id))
        findings.append(finding._replace(fixes=offered[key]))
    return judgement._replace(findings=tuple(findings))


def offer_alone(rule: Rule, facts: FactSet, matrix: Matrix) -> tuple[OfferedFix, ...]:
    """The fixes of a rule, judged by this rule and no other on derived facts to which it applies."""
    trial = _Trial(Before(facts, matrix.only(lambda _: False), {}, {}, frozenset()), Place())
    return trial.offer_all(rule, next(iter(problems_of(rule, facts, matrix)), Problem(rule.id)))


class _Trial(NamedTuple):
    """What changes are tried on, and the environment that commands are written for."""

    now: Before
    place: Place

    def offer_all(self, rule: Rule, problem: Problem) -> tuple[OfferedFix, ...]:
        """The fixes of a rule in their order; those that would not help or would break something carry ``withheld``.

        A problem without a record stands for everything that the rule applies to.
        """
        return tuple(self._offer(fix, rule, problem) for fix in self.now.matrix.texts(rule)["fix"])

    def _offer(self, fix: Mapping[str, Any], rule: Rule, problem: Problem) -> OfferedFix:
        if fix["kind"] in ("advice", "command"):
            return _offered(fix, commands=(for_place(fix["command"], self.place),) if fix["command"] else ())
        if is_about_a_record(fix) and rule.each and not problem.item:
            return _offered(fix)
        objection: Message | None = None
        tried = 0
        for candidate in Candidates(self.now.facts, self.now.matrix).of_fix(fix, problem):
            if isinstance(candidate, Message):
                objection = objection or candidate
                continue
            reason = self._objection(candidate, rule, problem, fix)
            if reason is None:
                commands = candidate.commands(self.place, self.now.matrix.rows("packages", "package"))
                if fix.get("cuda"):  # conda chooses the CUDA of a package by itself
                    commands = tuple(line for line in commands if not line.startswith("conda "))
                offered = _offered(fix, candidate, commands)
                return offered._replace(keys=_own_keys(offered.set, self.now.facts, self.now.matrix))
            # What keeps a build from helping says more than that another one does not exist.
            objection = reason if fix.get("cuda") else objection or reason
            tried += 1
            if tried >= _TRIES:
                break
        if objection is None:
            words = fix["kind"] in ("set", "env")  # "0.8 or lower" is for a person, and cannot be judged
            return _offered(fix, withheld=None if words else Message("no release that satisfies it is known"))
        return _offered(fix, withheld=objection)

    def _objection(self, remedy: Remedy, rule: Rule, problem: Problem, fix: Mapping[str, Any]) -> Message | None:
        """Why a change is not offered; one of torch's build may leave no error about what a build must fit."""
        matrix = self.now.matrix
        after = try_remedy(remedy, self.now)
        left = problems_of(rule, after.facts, matrix)
        if problem in left if problem.item else left:
            return Message("it would not be enough here")
        if is_lost(rule, self.now, after.facts):
            return Message("whether it would be enough cannot be told")
        for standing, message in after.errors.items() if fix.get("cuda") else ():
            other = matrix.find(standing.rule_id)
            if other is not None and _FITS.intersection(other.keys()):
                return Message("it would leave {}: {}", other.id, message)
        return after.objection(self.now)


def _offered(
    fix: Mapping[str, Any],
    remedy: Remedy | None = None,
    commands: tuple[str, ...] = (),
    *,
    withheld: Message | None = None,
) -> OfferedFix:
    about = is_about_a_record(fix)
    pins = tuple(name + specifier for name, specifier in remedy.pins.items()) if remedy is not None else ()
    return OfferedFix(
        kind=fix["kind"],
        safety=fix["safety"],
        summary=text_of(fix["summary"]),
        constraints=pins if about else tuple(fix["constraints"]),
        uninstall=(remedy.removed if remedy is not None else ()) if about else tuple(fix["uninstall"]),
        set={key: written(value) for key, value in fix["set"].items()},
        env={key: written(value) for key, value in fix["env"].items()},
        commands=() if withheld else commands,
        withheld=withheld,
    )


def _own_keys(settings: Mapping[str, str], facts: FactSet, matrix: Matrix) -> dict[str, str]:
    """Spell each setting (``recipe.attn``: ``flash_attn: sdpa``) for which the recipe's format has a key.

    Of several keys it is one that the recipe uses already, or else the first."""
    records = facts.items("recipe_key") if settings else ()
    used = {str(item.get("key")): (View.of(item).words("place") or ("",))[0] for item in records}
    if not used:
        return {}
    forms = {row["name"]: row for row in matrix.rows("recipe-formats", "format")}
    keys = list(_keys(facts, forms))
    written: dict[str, str] = {}
    for fact, value in settings.items():
        fitting = [
            (key, word)
            for key, meaning in keys
            if (word := _written_for(meaning, fact.partition(".")[2], value)) is not None
        ]
        for key, word in sorted(fitting, key=lambda one: one[0] not in used)[:1]:
            written[fact] = _line_for(key, word, used.get(key, next(iter(used.values()))))
    return written


def _keys(facts: FactSet, forms: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The keys of the framework's formats, those that stand beside their own among them."""
    for row in forms.values():
        if row.get("framework") == facts.value("recipe.framework"):
            yield from row.get("keys", {}).items()
            yield from forms.get(row.get("includes", {}).get("", ""), {}).get("keys", {}).items()


def _written_for(meaning: Any, field: str, value: str) -> str | None:
    """What is written behind a key so that the field has the value; None where the key says nothing of it."""
    for one in meaning if isinstance(meaning, list) else [meaning]:
        said_of, words = (one["field"], one.get("words", {})) if isinstance(one, dict) else (one, {})
        if said_of == field:
            named = next((word for word, said in words.items() if said == value and word and "*" not in word), None)
            as_it_is = value != "absent" and not words.keys() & {"true", "false", "*"}
            return named or (value if as_it_is else None)
    return None


def _line_for(key: str, word: str, place: str) -> str:
    file: str = getattr(place, "path", place)
    if file.endswith((".yaml", ".yml")):
        return f"{key}: {word}"
    if file.endswith((".py", ".ipynb")):
        return f"{key}={word.capitalize()}" if word in ("true", "false") else f"{key}={word}"
    return f'"{key}": {word}' if file.endswith((".json", ".jsonc")) else f"--{key} {word}"
