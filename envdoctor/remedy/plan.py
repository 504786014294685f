"""One set of changes for all errors: the smallest that ends them and breaks nothing, judged as a whole. It also meets
the unmet requirements of the training stack."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Value
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.finding import Finding, OfferedFix, Plan
from envdoctor.judge.judging import Judgement, Problem, problem_of
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule
from envdoctor.remedy.candidates import Candidates, years_moved
from envdoctor.remedy.commands import NOTHING, After, Before, Predict, Remedy, against, before, place_of, try_remedy
from envdoctor.remedy.fixes import with_fixes
from envdoctor.remedy.own_keys import own_keys
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import same_start

#: Sets of changes that are judged before the best one so far is taken: each costs 10 to 20 ms.
_BUDGET = 80
#: Changes of one fix, and releases of one package, that the search goes on with.
_OF_A_FIX = 3
#: The cost of changing a package; torch brings gigabytes, and packages that are compiled for it.
_COSTS: Mapping[str, float] = {"torch": 4.0}
#: The part of its cost that a package has where a list leaves its release open.
_OPEN = 0.5
#: Costs, in changed packages: of an error that stays, a removed package, a setting that changes the training.
_LEFT, _REMOVED, _SETTING = 8.0, 1.5, 4.0
#: The expected cost of each standing error: a change that ends two comes before one that ends one.
_STANDING = 1.0
#: The extra cost of another way to the same errors: it helps only if the first leads nowhere.
_AGAIN = 6.0
#: The extra cost of the later of two changes that may end an error, of a package that no fix of its rule names, and of
#: other releases of one that a fix names.
_LATER, _UNNAMED, _UNKNOWN = 0.05, 0.5, 2.0
#: The costs of each year that a package is moved, of each one back beyond the first, and the most that these cost.
_YEAR, _YEAR_BACK, _LONGEST = 0.1, 2.0, 2.0


class _Node(NamedTuple):
    """A set of changes with its outcome; ``given_up`` are the errors that the search leaves as they are."""

    remedy: Remedy
    after: After
    given_up: frozenset[Problem] = frozenset()


def with_plan(
    judgement: Judgement, matrix: Matrix, predict: Predict | None = None, *, for_code: bool = False
) -> Judgement:
    """Return the judgement with the plan for its errors; without one if no error is shown, or none can be ended by
    packages and settings. ``predict`` is that of :func:`~envdoctor.remedy.fixes.with_fixes`. Errors of the user's own
    code are left out, unless the plan is ``for_code``."""
    shown = [finding for finding in judgement.findings if finding.ignored is None and finding.superseded_by is None]
    errors = [finding for finding in shown if finding.severity == "error" and finding.status == "active"]
    findings = {problem_of(finding): finding for finding in errors}
    # What is to be changed is then the code, and not the environment.
    of_code = {rule.id for rule in matrix.rules if rule.each == "broken_use"} if not for_code else set()
    is_advised = {problem for problem, case in findings.items() if not case.fixes or case.fixes[0].kind == "advice"}
    own = {problem for problem in is_advised if problem.rule_id in of_code}
    if own == findings.keys():
        return judgement
    now = before(judgement.facts, matrix, predict)
    accepted = {problem_of(finding) for finding in judgement.findings if finding.ignored is not None}
    aims = [problem for problem in findings if problem in now.errors and problem not in own]
    aims += [problem for problem in now.all_errors if problem not in findings and problem not in accepted]
    # What cannot be run decides which releases are taken; often that ends a contradiction of the list too.
    aims.sort(key=lambda problem: getattr(matrix.find(problem.rule_id), "effect", "") == "install")
    search = _Search(now, aims, {problem: finding.fixes for problem, finding in findings.items()})
    # With a fix for each error that the search had no judgements left for.
    node = search.completed(search.run(), aims, lambda problem, after: problem in after.errors)
    # Where there is no torch, nothing tells which releases an installer would take: that is a set of its own.
    if node.remedy == NOTHING or ("torch" in node.remedy.pins and judgement.facts.absent("pkg.torch")):
        return judgement
    needs = _requirements(shown, judgement.facts, matrix)
    node = search.completed(node, needs, lambda problem, after: _stands(problem, after.facts), but="torch")
    met = [problem for problem in needs if not _stands(problem, node.after.facts)]
    cleared = [problem for problem in findings if problem not in node.after.errors]
    rest = [problem for problem in findings if problem in node.after.errors]
    kinds = ("constraint", "uninstall", "set", "env")
    curable = [case for case in rest if any(fix.withheld is None and fix.kind in kinds for fix in findings[case].fixes)]
    note = None
    if curable and cleared:
        note = Message("no set of these fixes clears both {} and {}", curable[0].rule_id, cleared[0].rule_id)
    remedy = node.remedy
    plan = Plan(
        constraints=tuple(name + specifier for name, specifier in remedy.pins.items()),
        uninstall=remedy.removed,
        set=remedy.settings,
        env=remedy.variables,
        commands=remedy.commands(place_of(judgement.facts), matrix.rows("packages", "package")),
        clears=tuple(finding.fingerprint for finding in (*map(findings.get, cleared), *map(needs.get, met)) if finding),
        leaves=tuple(findings[problem].fingerprint for problem in rest),
        note=note,
        keys=own_keys(remedy.settings, judgement.facts, matrix),
        again=tuple(_built_for_the_old(remedy, judgement.facts, node.after.facts, matrix)),
    )
    if not cleared:
        return judgement
    return _agreed(judgement, plan.clears, remedy.pins, matrix, predict)._replace(plan=plan)


def _agreed(
    judgement: Judgement, ended: Collection[str], pins: Mapping[str, str], matrix: Matrix, predict: Predict | None
) -> Judgement:
    """Return the judgement with fixes that agree with the plan. The fixes of a finding that it ended are judged again,
    if the first one takes other releases. A fix of another finding is withheld, if it takes a package elsewhere."""
    stale = (case for case in judgement.findings if case.fingerprint in ended and not _agrees(case, pins))
    again = with_fixes(judgement._replace(findings=tuple(stale)), matrix, predict, pins)
    fixes = {finding.fingerprint: finding.fixes for finding in again.findings}
    for case in judgement.findings:
        if case.fingerprint not in ended:
            fixes[case.fingerprint] = tuple(_unless_changed(fix, pins) for fix in case.fixes)
    findings = (case._replace(fixes=fixes.get(case.fingerprint, case.fixes)) for case in judgement.findings)
    return judgement._replace(findings=tuple(findings))


def _agrees(finding: Finding, pins: Mapping[str, str]) -> bool:
    first = next((fix for fix in finding.fixes if fix.withheld is None), None)
    return first is None or first.pins.items() <= pins.items()


def _unless_changed(fix: OfferedFix, pins: Mapping[str, str]) -> OfferedFix:
    other = next((name for name, pin in fix.pins.items() if pins.get(name, pin) != pin), None)
    if other is None or fix.withheld is not None:
        return fix
    return fix._replace(commands=(), withheld=Message("what ends the errors takes {}", other + pins[other]))


def _built_for_the_old(remedy: Remedy, facts: FactSet, after: FactSet, matrix: Matrix) -> Iterator[str]:
    """Yield the packages with files compiled against torch that stay while torch's minor release, or the major release
    of its CUDA, changes. Leave out packages that are known to be built for the new torch. Yield none for a list, where
    nothing is installed."""
    ends = [(facts.text(key), after.text(key), parts) for key, parts in (("pkg.torch", 2), ("torch.cuda", 1))]
    is_kept = all(old is None or new is None or same_start(old, new, parts) for old, new, parts in ends)
    if is_kept or facts.records("refused") is not None:
        return
    fitting = {build.text("package") for build in after.each("extension") if build.value("built_ok") is True}
    for row in matrix.rows("torch-extensions", "package"):
        name = row["name"]
        if facts.text(f"pkg.{name}") is not None and name not in {*remedy.pins, *remedy.removed, *fitting}:
            yield name


def _requirements(shown: Iterable[Finding], facts: FactSet, matrix: Matrix) -> dict[Problem, Finding]:
    """Return the warnings about unmet requirements of packages whose imports may fail because of them, by the table
    import-needs: the plan meets them too."""
    needing = {row["name"] for row in matrix.rows("import-needs")}
    findings: dict[Problem, Finding] = {}
    for finding in shown:
        problem, rule = problem_of(finding), matrix.find(finding.id)
        if finding.severity == "warning" and rule is not None and rule.each == "conflict":
            record = _stands(problem, facts)
            askers = record.get("required_by") if record else None
            if isinstance(askers, tuple) and needing.intersection(asker.partition(" ")[0] for asker in askers):
                findings[problem] = finding
    return findings


def _stands(problem: Problem, facts: FactSet) -> Mapping[str, Value] | None:
    """Return the record of the unmet requirement that the problem is about, when it is there."""
    package = dict(problem.item).get("package")
    return next((item for item in facts.items("conflict") if item.get("package") == package), None)


class _Search:
    """Best first over the fixes of the errors and their combinations, within a budget of judgements."""

    def __init__(self, now: Before, aims: Iterable[Problem], offered: Mapping[Problem, Iterable[OfferedFix]]) -> None:
        self._now, self._aims, self._offered = now, list(aims), offered
        self._budget = _BUDGET
        self._seen: set[frozenset[tuple[str, str]]] = {NOTHING.parts}
        self._order = count()

    def run(self) -> _Node:
        """Return the best set of changes; nothing changed when none helps."""
        start = _Node(NOTHING, After(self._now.facts, self._now.errors, None))
        waiting = [(0.0, next(self._order), start)]
        best = start
        reached: set[frozenset[Problem]] = set()
        later: set[frozenset[tuple[str, str]]] = set()
        while waiting:
            cost, number, node = heappop(waiting)
            errors = frozenset(node.after.errors) - node.given_up
            if errors in reached and node.remedy.parts not in later:
                later.add(node.remedy.parts)
                heappush(waiting, (cost + _AGAIN, number, node))
                continue
            reached.add(errors)
            if not node.after.new(self._now) and self._worth(node) < self._worth(best):
                best = node
            # Errors that the changes brought come first.
            standing = [error for error in self._aims if error in node.after.errors]
            open_ = (error for error in (*node.after.new(self._now), *standing) if error not in node.given_up)
            problem = next(open_, None)
            if problem is None:
                return self._without_needless(node)
            if problem in self._now.all_errors:
                given_up = node._replace(given_up=node.given_up | {problem})
                heappush(waiting, (cost + _LEFT, next(self._order), given_up))
            for extra, remedy in self._candidates(problem, node.after.facts):
                added = self._judged(node.remedy + remedy)
                if added is None:
                    continue
                worth = self._size(added.remedy) + _LEFT * len(node.given_up) + extra
                worth += _STANDING * len(added.after.errors.keys() - node.given_up)
                heappush(waiting, (worth, next(self._order), added._replace(given_up=node.given_up)))
        return self._without_needless(best)

    def completed(
        self, node: _Node, problems: Iterable[Problem], stands: Callable[[Problem, After], object], but: str = ""
    ) -> _Node:
        """Return the changes and those that end each of these problems that ``stands``, if that brings no error, breaks
        no other requirement and leaves the package ``but`` as it is."""
        for problem in problems:
            choices = self._candidates(problem, node.after.facts) if stands(problem, node.after) else ()
            nodes = (self._harmless(node.remedy + remedy, node) for _, remedy in choices if but not in remedy.pins)
            node = next((other for other in nodes if other and not stands(problem, other.after)), node)
        return node

    def _harmless(self, remedy: Remedy, node: _Node) -> _Node | None:
        """Return other changes in place of a node's; None if they break a requirement or bring an error."""
        after = try_remedy(remedy, self._now)
        is_worse = after.broken is not None or not set(after.errors) <= set(node.after.errors)
        return None if is_worse else _Node(remedy, after, node.given_up)

    def _judged(self, remedy: Remedy) -> _Node | None:
        """Judge changes as a whole; None if they were judged before, the budget is spent, or they break a requirement.
        Those that bring an error as well are kept: the search ends that error, or gives them up."""
        if remedy.parts in self._seen or self._budget <= 0 or against(remedy, self._now.facts):
            return None
        self._seen.add(remedy.parts)
        self._budget -= 1
        after = try_remedy(remedy, self._now)
        return None if after.broken and not after.new(self._now) else _Node(remedy, after)

    def _worth(self, node: _Node) -> tuple[int, float]:
        """Return the number of errors left, then the size of the remedy: less is better."""
        return sum(problem in node.after.errors for problem in self._aims), self._size(node.remedy)

    def _size(self, remedy: Remedy) -> float:
        packages = sum(self._cost(name, pin) for name, pin in remedy.pins.items())
        return packages + _REMOVED * len(remedy.removed) + len(remedy.variables) + _SETTING * len(remedy.settings)

    def _cost(self, name: str, pin: str) -> float:
        """Return the cost of another release of a package: less where a list leaves it open, else more by the time
        between both."""
        cost = _COSTS.get(name, 1.0)
        if self._now.facts.get(f"pkg.{name}").source == "preset":
            return _OPEN * cost
        years = years_moved(name, pin, self._now.facts, self._now.matrix)
        return cost + _YEAR * abs(years) + min(_LONGEST, _YEAR_BACK * max(0.0, -years - 1))

    def _without_needless(self, node: _Node) -> _Node:
        """Return the changes without those that a later change of the search made needless."""
        for name in node.remedy.pins if len(node.remedy.pins) > 1 else ():
            pins = {other: pin for other, pin in node.remedy.pins.items() if other != name}
            if name == "torch" or not pins:
                continue
            facts = tuple(fact for fact in node.remedy.facts if fact.key != f"pkg.{name}")
            remedy = node.remedy._replace(pins=pins, facts=facts)
            node = self._harmless(remedy, node) or node
        return node

    def _candidates(self, problem: Problem, facts: FactSet) -> Iterator[tuple[float, Remedy]]:
        """Yield changes that may end an error, with what they cost beside their size: the fixes of its rule, then other
        releases of the rule's packages."""
        rule = self._now.matrix.find(problem.rule_id)
        assert rule is not None
        choices, ranks, named = Candidates(facts, self._now.matrix), count(), set[str]()
        for fix in self._now.matrix.texts(rule)["fix"]:
            changes = [remedy for remedy in choices.of_fix(fix, problem) if isinstance(remedy, Remedy)]
            named.update(*(remedy.pins for remedy in changes))
            for remedy in (*changes[: _OF_A_FIX - 1], *changes[_OF_A_FIX - 1 :][-1:]):
                yield next(ranks) * _LATER, remedy
        names = dict.fromkeys(key[4:] for key in rule.keys() if key.startswith("pkg."))  # noqa: SIM118
        installed = [name for name in names if rule.each is None and facts.text(f"pkg.{name}") is not None]
        # Of a long range the fix that is offered may be none of the nearest.
        usable = (fix.pins for fix in self._offered.get(problem, ()) if fix.withheld is None and len(fix.pins) == 1)
        pins = [(name, pin[2:]) for alone in usable for name, pin in alone.items() if pin.startswith("==")]
        offered = (remedy for name, version in pins for remedy in choices.of_range(name, [version]))
        yield from ((next(ranks) * _LATER, remedy) for remedy in offered if isinstance(remedy, Remedy))
        for name in sorted(installed, key=lambda name: name == "torch"):
            versions = _releases(rule, name, choices)
            chosen = list(dict.fromkeys([*versions[: _OF_A_FIX - 1], *versions[-1:]]))
            extra = _UNKNOWN if name in named else _UNNAMED
            others = (remedy for remedy in choices.of_range(name, chosen) if isinstance(remedy, Remedy))
            yield from ((extra + next(ranks) * _LATER, remedy) for remedy in others)


def _releases(rule: Rule, name: str, choices: Candidates) -> list[str]:
    """Return the releases of a package with which the rule no longer applies, nearest first, the newest one last."""

    def is_ended(version: str) -> bool:
        facts = choices.facts.copy([*choices.facts, Fact(f"pkg.{name}", version, "", "")])
        return evaluate(rule, facts, choices.matrix.registry).holds is False

    fitting = list(filter(is_ended, choices.versions(name, ">=0")))
    newest = next((version for version in reversed(choices.matrix.ledger.published(name)) if version in fitting), None)
    return sorted(fitting, key=lambda version: version == newest)
