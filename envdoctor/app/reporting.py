"""The frame of every judging command: the matrix, the gate, and the report; with several machines in one run, each
target is judged by itself, and the answers become one report. And the gaps of a run that looks complete: a clean report
about nothing would be believed."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from envdoctor.app.errors import UsageProblem
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Unknown
from envdoctor.judge.finding import SEVERITIES, Finding, Policy, exit_code, stale
from envdoctor.judge.judging import Judgement, judge
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.observe.request import Target
from envdoctor.observe.sources import DOCUMENTS
from envdoctor.report.report import Notice, Report, TargetOutcome
from envdoctor.system.message import Message, as_message, did_you_mean


class Judging:
    """One run of a command: it begins with the matrix (None: the shipped one) and the gate, and ends in a report.
    Raises :class:`~envdoctor.app.errors.UsageProblem` for the severity of a rule that never existed."""

    def __init__(self, policy: Policy | None, matrix: Matrix | None, exit_zero: bool) -> None:
        self._started = time.perf_counter()
        self._exit_zero = exit_zero
        self.matrix = matrix or load_matrix()
        self._policy, self._renamed = _under_present_names(policy or Policy(), self.matrix)

    def judged(self, facts: FactSet, rules: Matrix, predict: Callable[[FactSet], FactSet] | None = None) -> Judgement:
        """Return the judgement by these rules, with fixes; ``predict`` gives changed facts with the run's memory."""
        judgement = judge(facts, rules, self._policy)
        if not judgement.findings:
            return judgement
        from envdoctor.remedy.fixes import with_fixes  # a healthy environment needs none

        return with_fixes(judgement, rules, predict)

    def of_rules(self, judgement: Judgement) -> list[Notice]:
        """Return the notices about rules that cannot be evaluated, and about the policy's ignores and rules."""
        text, files = "{}: this rule was not checked: {}", self.matrix.files
        unread = [Notice("warning", Message(text, files[rule.id], rule.problems[0])) for rule in self.matrix.broken]
        return [*unread, *self._renamed, *_ignore_notices(judgement, self._policy, self.matrix)]

    def report(
        self,
        command: str,
        target: Target,
        judgement: Judgement,
        notices: Iterable[Notice],
        *,
        incomplete: bool = False,
        **sections: Any,
    ) -> Report:
        """Return the report with its exit code: 3 if the job could not be done, 1 for findings at the gate, else 0.
        ``exit_zero`` turns 1 into 0 only. ``sections`` are the command's other parts of the report."""
        return Report(
            command=command,
            target=target,
            facts=judgement.facts,
            registry=self.matrix.registry,
            matrix_version=self.matrix.version,
            matrix_source=self.matrix.source,
            findings=judgement.findings,
            not_checked=judgement.not_checked,
            rules_checked=judgement.rules_checked,
            exit_code=exit_code(judgement.findings, incomplete=incomplete, exit_zero=self._exit_zero),
            notices=tuple(notices),
            passed=judgement.passed,
            plan=judgement.plan,
            **sections,
            elapsed_seconds=time.perf_counter() - self._started,
        )


def _under_present_names(policy: Policy, matrix: Matrix) -> tuple[Policy, list[Notice]]:
    """Return the policy with every rule under its present id, and notices of former ids. Raises :class:`UsageProblem`
    for the severity of a rule that never existed."""
    notices: list[Notice] = []
    ids = matrix.origins() if policy.severities or policy.ignores else {}

    def present(rule_id: str, where: str) -> str:
        now = rule_id if rule_id in ids else _now(rule_id, matrix)
        if now != rule_id:
            notices.append(Notice("note", Message("{} {} names {} by its former id", where, rule_id, now)))
        return now

    for rule_id in policy.severities:
        if rule_id not in ids and matrix.retired(rule_id) is None:
            hint = did_you_mean(rule_id, ids, Message("`envdoctor matrix list` names them"))
            raise UsageProblem("rules: {}: there is no such rule; {}", rule_id, hint)
    renamed = policy._replace(
        baseline=policy.baseline and tuple(entry._replace(id=_now(entry.id, matrix)) for entry in policy.baseline),
        severities={present(rule_id, "rules:"): level for rule_id, level in policy.severities.items()},
        ignores=tuple(
            entry._replace(id=present(entry.id, Message("{}: the ignore of", entry.origin))) for entry in policy.ignores
        ),
    )
    return renamed, notices


def _now(rule_id: str, matrix: Matrix) -> str:
    return str((matrix.retired(rule_id) or {}).get("now", rule_id))


def _ignore_notices(judgement: Judgement, policy: Policy, matrix: Matrix) -> Iterator[Notice]:
    """Yield notices of ignores that ended, name no rule or match nothing, and of baseline findings that are gone."""
    for entry in judgement.expired:
        release = matrix.fixed_in(entry.id) if entry.until_fixed else ""
        text = "{}: the ignore of {} ended on {}: the finding is back"
        ended = "{}: the ignore of {} ended with {}, which has the fix"
        yield Notice("warning", Message(ended if release else text, entry.origin, entry.id, release or entry.until))
    ids = matrix.origins() if policy.ignores else {}
    for entry in (ignore for ignore in policy.ignores if ignore.id not in ids):
        yield Notice("warning", Message("{}: the ignore of {} names no rule of this matrix", entry.origin, entry.id))
    for entry in judgement.dead:
        yield Notice("note", Message("{}: the ignore of {} matched nothing: it can be removed", entry.origin, entry.id))
    entries = stale(policy.baseline or (), judgement.findings, judgement.passed)
    if entries:
        text = Message(
            "findings of the baseline that are gone: {}; --write-baseline beside --baseline drops them", len(entries)
        )
        yield Notice("note", text)


#: The options of one machine, by the name behind ``--target-``.
Typed = Mapping[str, str]

_MOST = 24
#: Exit codes from the best to the worst.
_WORSE = (0, 1, 3, 2)


def targets_of(options: Mapping[str, Sequence[str]]) -> list[Typed]:
    """Return every combination of the values of the given options. Raises :class:`UsageProblem` if they are too many to
    read."""
    chosen = {name: list(dict.fromkeys(values)) for name, values in options.items() if values}
    targets: list[Typed] = [dict(zip(chosen, values, strict=True)) for values in product(*chosen.values())]
    if len(targets) > _MOST:
        raise UsageProblem("{} targets: at most {} are judged in one run", len(targets), _MOST)
    return targets


def check_targets(targets: Sequence[Typed], judged: Callable[[Typed], Report]) -> Report:
    """Return one report for all targets: a finding of some targets has their names; the exit code is the worst.
    ``judged`` returns the report of one target. The facts are those that all targets share."""
    reports = [judged(target) for target in targets]
    if len(reports) == 1:
        return reports[0]
    differing = [name for name in targets[0] if len({target[name] for target in targets}) > 1]
    names = [", ".join(f"{name} {target[name]}" for name in differing) for target in targets]
    first, outcomes = reports[0], []
    names_of: dict[Notice, list[str]] = {}
    for name, report in zip(names, reports, strict=True):
        shown = [finding.severity for finding in report.shown()]
        outcomes.append(TargetOutcome(name, shown.count("error"), shown.count("warning"), report.exit_code))
        for notice in report.notices:
            names_of.setdefault(notice, []).append(name)
    notices = [
        notice if len(where) == len(reports) else notice._replace(text=Message("{}: {}", "; ".join(where), notice.text))
        for notice, where in names_of.items()
    ]
    shared = first.facts.copy()
    for fact in first.facts:
        if any(report.facts.value(fact.key) != fact.value for report in reports):
            shared.add(fact._replace(value=Unknown(Message("it differs between the targets"))))
    not_checked = {entry.id: entry for report in reports for entry in report.not_checked}
    return first.changed(
        facts=shared,
        findings=_findings(reports, targets, names),
        not_checked=tuple(not_checked.values()),
        rules_checked=min(report.rules_checked for report in reports),
        exit_code=max((report.exit_code for report in reports), key=_WORSE.index),
        notices=tuple(notices),
        passed=tuple(name for name in first.passed if all(name in report.passed for report in reports)),
        plan=first.plan if all(report.plan == first.plan for report in reports) else None,
        unjudged=tuple(dict.fromkeys(text for report in reports for text in report.unjudged)),
        targets=tuple(outcomes),
        elapsed_seconds=sum(report.elapsed_seconds for report in reports),
    )


def _findings(reports: Sequence[Report], targets: Sequence[Typed], names: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings; equal message and advice make one finding. ``targets`` are empty if it holds for all."""
    alike: dict[str, list[tuple[int, Finding]]] = {}
    for number, report in enumerate(reports):
        for finding in report.findings:
            how_sure = (finding.confidence, finding.gate, finding.superseded_by, finding.caveats)
            key = (finding.fingerprint, finding.message, how_sure, [fix.withheld is None for fix in finding.fixes])
            alike.setdefault(repr((key, [fix.commands for fix in finding.fixes])), []).append((number, finding))
    one_each = [
        same[0][1]._replace(targets=_holding({number for number, _ in same}, targets, names)) for same in alike.values()
    ]
    return tuple(sorted(one_each, key=lambda finding: -SEVERITIES.index(finding.severity)))


def _holding(numbers: set[int], targets: Sequence[Typed], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of some targets: the one value that they alone have, or each name; empty for all targets."""
    if len(numbers) == len(targets):
        return ()
    for option in targets[0]:
        for value in dict.fromkeys(target[option] for target in targets):
            if numbers == {number for number, target in enumerate(targets) if target[option] == value}:
                return (f"{option} {value}",)
    return tuple(names[number] for number in sorted(numbers))


_MOST_UNREAD = 5


class Unjudged(NamedTuple):
    """A sentence about a gap; ``asked``: the question of this run was about it, which makes the run incomplete."""

    text: Message
    asked: bool


def unjudged(
    facts: FactSet,
    target: Target,
    model: str | None,
    unread: Sequence[Message],
    code: Sequence[str] = (),
    *,
    typed: bool = True,
    started: bool = False,
    named: bool = True,
) -> tuple[Unjudged, ...]:
    """Return the parts of the environment, of the model and of the code in question that were not judged. A facts file
    that was written by hand has no gaps: its reader knows it. ``unread``: parts of the environment in which an error
    may stand. ``typed``: the user named the model, not a recipe. ``started``: a recipe, which is judged itself, starts
    the code, and the user did not name it. ``named``: the user named the environment; one that nobody did and that has
    neither torch nor transformers is not what anybody trains in."""
    gaps = [Unjudged(text, asked=True) for text in unread]
    if target.kind not in (*DOCUMENTS, "none") or "package_damage" in facts:
        dists = facts.records("dist")
        if dists is not None and not dists and dists.incomplete is None:
            gaps.append(Unjudged(Message("no package is installed in {}", target.path), asked=True))
        elif dists is not None and all(one.text("version") is None for one in facts.each("dist")):
            told = facts.items("refused")
            gaps.append(Unjudged(Message("no version of a package is known from {}", target.path), asked=not told))
        elif facts.absent("pkg.torch"):
            text = Message("torch is not installed there: nothing about training was judged")
            gaps.append(Unjudged(text, asked=model is not None or not (named or facts.text("pkg.transformers"))))
        gaps += _unread_files(facts)
    elif target.kind == "none" and target.path:  # nobody named it, and this run is of another
        text = Message("{} has neither torch nor transformers: name what runs this by --python or --lock", target.path)
        gaps.append(Unjudged(text, asked=True))
    if target.kind == "lock" and facts.unknown("python.minor") and facts.records("dist"):
        text = Message("whether an installer accepts the list, for no Python is known: give --target-python 3.11")
        gaps.append(Unjudged(text, asked=False))
    others = [kind for kind in facts.words("machine.accelerators") or () if kind != "nvidia"]
    if others and not facts.items("gpu"):
        text = Message("what is special about this accelerator: {}; only NVIDIA GPUs are covered", ", ".join(others))
        gaps.append(Unjudged(text, asked=False))
    if no_model := unknown_model(facts, model):
        gaps.append(Unjudged(no_model, asked=typed))
    pin = facts.unknown("pin.state")
    if pin is not None and not facts.unknown("pin.revision") and facts.text("model.path") is not None:
        gaps.append(Unjudged(Message("{} and its pin: {}", model, pin.reason), asked=True))
    return (*gaps, *(_unread_code(facts, code, started) if code else ()))


def _unread_files(facts: FactSet) -> Iterator[Unjudged]:
    """Yield the installed files that could not be read, and may hold anything."""
    if "package_damage" not in facts:
        return
    unread = [item for item in facts.items("package_damage") if item.get("kind") == "unread"]
    closed = [item for item in facts.items("metadata_problem") if item.get("kind") == "no-access"]
    active = [(item.get("name"), item.get("requires")) for item in facts.items("dist") if item.get("active") is True]
    texts = [Message("{}: {}", item.get("package"), item.get("file")) for item in unread]
    texts += [as_message(str(item.get("detail"))) for item in closed]
    damage = facts.unknown("package_damage")
    if damage is not None and facts.records("dist") is not None:
        texts.append(Message("the installed files: {}", damage.reason))
    texts += [Message("what {} requires: {}", name, gap.reason) for name, gap in active if isinstance(gap, Unknown)]
    yield from (Unjudged(text, asked=True) for text in texts[:_MOST_UNREAD])
    if len(texts) > _MOST_UNREAD:
        yield Unjudged(Message("{} more packages could not be read", len(texts) - _MOST_UNREAD), asked=True)


def unknown_model(facts: FactSet, model: str | None) -> Message | None:
    """Return a sentence about the model in question, if neither its files nor its name tell anything about it."""
    if model is None or any(not facts.unknown(f"model.{name}") for name in ("type", "family")):
        return None
    text = "nothing is known of the model {}: it is not in the table of shapes; give a folder with its config.json"
    return Message(text, model)


def _unread_code(facts: FactSet, code: Sequence[str], started: bool) -> Iterator[Unjudged]:
    """Yield what was not read of the code; asked for is a file that was named, or all if nothing was read, and of code
    that a recipe starts a file that may not run at all. Of one that certainly does not, a rule speaks."""
    read = facts.value("code.files")
    items = [item for item in facts.items("code_unread") if not (item.get("named") and item.get("broken") is True)]
    if isinstance(read, Unknown):
        yield Unjudged(Message("{}: {}", ", ".join(code), read.reason), asked=not started)
    for item in items[:_MOST_UNREAD]:
        text = Message("{}: {}", item.get("place"), item.get("reason"))
        asked = item.get("broken") is not False if started else not read or item.get("named") is True
        yield Unjudged(text, asked=asked)
    if len(items) > _MOST_UNREAD:
        yield Unjudged(Message("{} more files of the code could not be read", len(items) - _MOST_UNREAD), asked=False)
