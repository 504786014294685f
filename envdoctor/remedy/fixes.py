"""Find the fixes of a rule that are safe to offer: each is tried on the facts and judged again before it is shown.
A rule's fixes are judged by its own tests as well: each must end the match of one, and the first leave no error."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.derivations.model import lost_by_model
from envdoctor.judge.evaluate import text_of
from envdoctor.judge.finding import Finding, OfferedFix, Policy
from envdoctor.judge.judging import Judgement, Problem, errors_of, judge, problem_of, problems_of
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule
from envdoctor.remedy import commands as changes
from envdoctor.remedy.candidates import Candidates, is_about_a_record, torch_row, years_moved
from envdoctor.remedy.own_keys import own_keys
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import base_release

if TYPE_CHECKING:
    from envdoctor.judge.selftest import RuleCase

#: How many changes are judged before a fix is given up; how many records of one rule get fixes of their own.
_TRIES, _RECORDS = 12, 20
#: Facts that a build of torch must fit: a fix that changes the build may leave no error that rests on one of these.
_FITS = frozenset(("driver.fits", "driver.version", "gpu.gap", "gpu.kernels", "torch.cuda"))


def with_fixes(
    judgement: Judgement,
    matrix: Matrix,
    predict: changes.Predict | None = None,
    agreed: Mapping[str, str] = {},
) -> Judgement:
    """Return the judgement with the fixes of each finding, judged once for all records of a rule unless they are about
    the records. ``predict`` adds the predicted memory to the facts after a fix. ``agreed`` are the pins of the plan:
    fixes take these releases where they may, and come first then."""
    if not judgement.findings:
        return judgement
    trial = _Trial(changes.before(judgement.facts, matrix, predict), changes.place_of(judgement.facts), agreed)
    offered: dict[object, tuple[OfferedFix, ...]] = {}
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for finding in judgement.findings:
        rule = matrix.find(finding.id) if finding.settled else None
        if rule is None:
            findings.append(finding)
            continue
        problem = problem_of(finding)
        counts[rule.id] = counts.get(rule.id, 0) + 1
        own = any(is_about_a_record(fix) for fix in matrix.texts(rule)["fix"]) and counts[rule.id] <= _RECORDS
        key = problem if own else rule.id
        if key not in offered:
            offered[key] = trial.offer_all(rule, problem if own else Problem(rule.id))
        findings.append(finding._replace(fixes=offered[key]))
    return judgement._replace(findings=tuple(findings))


def _offer_alone(rule: Rule, facts: FactSet, matrix: Matrix) -> tuple[OfferedFix, ...]:
    """Return the fixes of a rule, judged by this rule alone on derived facts to which it applies."""
    now = changes.before(facts, matrix.only(lambda other: other.id == rule.id))
    trial = _Trial(now, changes.InstallPlace())
    return trial.offer_all(rule, next(iter(problems_of(rule, facts, matrix)), Problem(rule.id)))


class _Trial(NamedTuple):
    """The facts on which changes are tried, and the environment that commands are written for."""

    now: changes.Before
    place: changes.InstallPlace
    agreed: Mapping[str, str] = {}

    def offer_all(self, rule: Rule, problem: Problem) -> tuple[OfferedFix, ...]:
        """Return the fixes of a rule in their order, first those of the plan; those that would not help or would break
        something carry ``withheld``. A problem without a record stands for everything that the rule applies to."""
        fixes = [self._offer(fix, rule, problem) for fix in self.now.matrix.texts(rule)["fix"]]
        return tuple(sorted(fixes, key=lambda fix: not (fix.withheld is None and self._is_agreed(fix.pins))))

    def _is_agreed(self, pins: Mapping[str, str]) -> bool:
        return bool(pins) and pins.items() <= self.agreed.items()

    def _offer(self, fix: Mapping[str, Any], rule: Rule, problem: Problem) -> OfferedFix:
        if fix["kind"] in ("advice", "command"):
            return _offered(fix, commands=(changes.for_place(fix["command"], self.place),) if fix["command"] else ())
        if is_about_a_record(fix) and rule.each and not problem.item:
            return _offered(fix)
        objection: Message | None = None
        first: changes.Remedy | None = None
        tries = 0
        for candidate in Candidates(self.now.facts, self.now.matrix, self.agreed).of_fix(fix, problem):
            if isinstance(candidate, Message):
                objection = objection or candidate
                continue
            first = first or candidate
            reason = changes.against(candidate, self.now.facts)
            reason = reason or self._objection(after := changes.try_remedy(candidate, self.now), rule, problem, fix)
            if reason is None and rule.each == "refused" and problem in after.errors:  # by the rest of the list
                reason = None if self._is_agreed(candidate.pins) else Message("it would not be enough here")
            if reason is None:
                commands = candidate.commands(self.place, self.now.matrix.rows("packages", "package"))
                if fix.get("cuda"):  # conda chooses the CUDA of a package by itself
                    commands = tuple(line for line in commands if not line.startswith("conda "))
                offered = _offered(fix, candidate, commands)
                keys = own_keys(offered.set, self.now.facts, self.now.matrix)
                named = (error for error in after.errors if dict(error.item).get("package") in candidate.pins)
                stays = next((error for error in named if error != problem), None)
                staying = None if stays is None else Message("alone it is not enough: {}", after.errors[stays])
                predicted = _predicted(self.now.facts, after.facts) or staying or self._long_back(candidate)
                return offered._replace(keys=keys, predicted=predicted)
            # That a build would not help says more than that another one does not exist.
            objection = reason if fix.get("cuda") else objection or reason
            tries += 1
            if tries >= _TRIES:
                break
        if objection is None and fix["kind"] not in ("set", "env"):  # "0.8 or lower" is for a person
            objection = Message("no release that satisfies it is known")
        return _offered(fix, first, withheld=objection)

    def _long_back(self, remedy: changes.Remedy) -> Message | None:
        """Return a sentence if a change goes back to a release from before all others, or by more than a year."""
        facts, ledger = self.now.facts, self.now.matrix.ledger
        present = [(fact.key[4:], fact.value) for fact in facts.below("pkg.") if isinstance(fact.value, str)]
        dates = [release.date for name, version in present if (release := ledger.release(name, version))]
        for name, pin in remedy.pins.items():
            release = ledger.release(name, pin.removeprefix("=="))
            years = years_moved(name, pin, facts, self.now.matrix)
            if release is not None and years < (-0.25 if release.date < min(dates, default="") else -1):
                text = "{} {} is of {}, {} months older than the present one"
                return Message(text, name, release.version, release.date, round(-12 * years))
        return None

    def _objection(self, after: changes.After, rule: Rule, problem: Problem, fix: Mapping[str, Any]) -> Message | None:
        """Return why a change is not offered; one of torch's build must fit, and one against too little memory too."""
        matrix = self.now.matrix
        problems = problems_of(rule, after.facts, matrix)
        uncovered = (error for error in after.errors if error.rule_id == rule.id and error not in self.now.errors)
        is_ended = problem in self.now.errors and problem not in after.errors
        if ((problem in problems if problem.item else problems) and not is_ended) or any(uncovered):
            return Message("it would not be enough here")
        if changes.is_lost(rule, self.now, after.facts):
            return Message("whether it would be enough cannot be told")
        for standing, message in after.errors.items() if fix.get("cuda") else ():
            other = matrix.find(standing.rule_id)
            if other is not None and _FITS.intersection(other.keys()):
                return Message("it would leave {}: {}", other.id, message)
        then = _predicted(self.now.facts, after.facts) if rule.effect == "oom" else None
        if then is not None and after.facts.value("memory.verdict") == "does-not-fit":
            return then
        return after.objection(self.now) or lost_by_model(self.now.facts, after.facts, matrix)


#: The prediction for a run with a fix, by its verdict: the least and the most GiB that its process takes.
_THEN = {
    "fits": "with it the run takes {} to {} GiB, which fits",
    "tight": "with it the run takes {} to {} GiB, which is tight",
    "does-not-fit": "with it the run takes {} to {} GiB, which does not fit",
}


def _predicted(now: FactSet, after: FactSet) -> Message | None:
    """Return the prediction for the run after a change; None if it is the same as before."""
    sizes = [[facts.number(f"memory.{column}_gib") for column in ("needed", "most")] for facts in (now, after)]
    verdict = str(after.value("memory.verdict"))
    return Message(_THEN[verdict], *sizes[1]) if verdict in _THEN and sizes[0] != sizes[1] else None


def _offered(
    fix: Mapping[str, Any],
    remedy: changes.Remedy | None = None,
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
        set={key: changes.written(value) for key, value in fix["set"].items()},
        env={key: changes.written(value) for key, value in fix["env"].items()},
        commands=() if withheld else commands,
        withheld=withheld,
        pins=remedy.pins if remedy is not None else {},
    )


_PIN = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]*)[=>]=([0-9][0-9a-z.]*(?:\+[a-z0-9.]+)?)")


def check_fixes(rule: Rule, cases: "Iterable[RuleCase]", matrix: Matrix) -> Iterator[str]:
    """Yield each fix that, applied to environments that match, never ends the match. ``cases`` are the rule's tests."""
    matching = [case.facts for case in cases if case.got == "match"]
    offered = [_offer_alone(rule, facts, matrix) for facts in matching]
    for number, fix in enumerate(matrix.texts(rule)["fix"] if matching else ()):
        reasons = [fixes[number].withheld for fixes in offered]
        # A fix may help only some of the environments that a rule covers; one that never helps is wrong.
        if all(reasons):
            yield f"fix {number + 1} ({fix['summary'].get('en', '')}) never helps: {reasons[0]}"


def check_first_fix(rule: Rule, cases: "Iterable[RuleCase]", matrix: Matrix) -> Iterator[str]:
    """Yield why a first fix that installs something never cures. It cures if, for some matching test with the usual
    torchvision and torchaudio, it is offered and leaves no error of any rule."""
    fixes = matrix.texts(rule)["fix"]
    if rule.status != "active" or not fixes or fixes[0]["kind"] != "constraint":
        return
    reasons = []
    for case in (case for case in cases if case.got == "match"):
        reason = _not_cured(rule, case.test, matrix)
        if reason is None:
            return
        reasons.append(f"test {case.number}: {reason}")
    yield f"fix 1 never cures: {'; '.join(reasons)}"


def _not_cured(rule: Rule, test: Mapping[str, Any], matrix: Matrix) -> str | None:
    from envdoctor.judge.selftest import facts_of  # with the lint alone: `check` imports fixes too

    facts = facts_of({**test, "facts": _with_companions(test["facts"], matrix)}, matrix)
    judgement = judge(facts, matrix, Policy())
    own = judgement._replace(findings=tuple(finding for finding in judgement.findings if finding.id == rule.id))
    if not own.findings:
        return "the rule does not apply beside torchvision and torchaudio"
    first = with_fixes(own, matrix).findings[0].fixes[0]
    if first.withheld is not None:
        return f"withheld: {first.withheld}"
    # The facts after the commands: of a range the lowest release is installed.
    pairs = _PIN.findall(" ".join(first.commands))
    pins = [Fact(f"pkg.{name}", version, "the command", "given") for name, version in pairs]
    errors = errors_of(with_facts(facts, pins, matrix), matrix)[0]
    return f"leaves {', '.join(problem.rule_id for problem in errors)}" if errors else None


def _with_companions(facts: Mapping[str, Any], matrix: Matrix) -> dict[str, Any]:
    """Return the facts with the torchvision and torchaudio of torch's release, and their requirements."""
    values = dict(facts)
    for item in values.get("torch_companion", []):
        values.setdefault(f"pkg.{item['package']}", item["version"])
    torch = values.get("pkg.torch")
    release = base_release(torch) if isinstance(torch, str) else None
    row = torch_row(release, matrix) if release else None
    if row is None or not isinstance(torch, str):
        return values
    tag = torch.partition("+")[2]
    dists = list(values.get("dist", []))
    for name in ("torchvision", "torchaudio"):
        if f"pkg.{name}" not in values and isinstance(row.get(name), str):
            values[f"pkg.{name}"] = row[name] + (f"+{tag}" if re.fullmatch(r"cu\d+|cpu", tag) else "")
            dists.append({"name": name, "version": values[f"pkg.{name}"], "requires": [f"torch=={release}"]})
    if "torch.cuda" not in values and not tag:
        values["torch.cuda"] = row.get("pypi_cuda", "absent")
    return {**values, "dist": dists} if dists else values
