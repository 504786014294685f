"""What a session found, as facts for the rules and as the report's own section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.probe.catalogue import FIRST, Probe
from envdoctor.probe.errors import errors_by_length
from envdoctor.probe.grouping import Case, Group, cases_of, groups_of
from envdoctor.probe.import_runs import import_runs
from envdoctor.probe.records import records_of
from envdoctor.probe.reproducer import reproducer
from envdoctor.probe.running import UNUSABLE
from envdoctor.probe.section import ProbeChild, ProbeGroup, ProbeSection, ProbeSkipped
from envdoctor.probe.session import Session
from envdoctor.text.message import Message, joined

_ORIGIN = Message("envdoctor probe")
#: Cases told one by one in the section; their number is told whatever it is.
_MOST_CASES = 2000
_MOST_INFO = 200


class Results(NamedTuple):
    """What the experiments gave: facts for the rules, and the report's section.

    ``failed`` is why no experiment could run, a sentence, or None; ``unmeasured`` sentences about what was asked for
    and gave no case.
    """

    facts: Sequence[Fact]
    section: ProbeSection
    failed: Message | None
    unmeasured: Sequence[Message] = ()


def results_of(
    session: Session, probes: Mapping[str, Probe], *, suite: str, asked: Sequence[str], using: bool | Unknown
) -> Results:
    """Judge the session. ``asked`` are the names that were asked for, or none for the whole ``suite``; ``using`` is
    whether training would use the device."""
    outcomes = session.outcomes
    if session.unusable is not None:
        outcomes = [session.unusable, *(outcome for outcome in outcomes if "torch" not in outcome.job.needs)]
    cases = cases_of(outcomes)
    groups = groups_of(outcomes, cases)
    title = ", ".join(asked) or suite
    facts = [Fact(key, value, _ORIGIN, "probe") for key, value in _values(session, groups, probes, asked, using)]
    facts.append(Fact("probe.suite", title, _ORIGIN, "probe"))
    facts += [Fact("import_run", runs, _ORIGIN, "probe") for runs in import_runs(outcomes)]
    section = _section(session, cases, groups, probes, suite=title, using=using)
    failed = None
    if session.unusable is not None and _needed_torch(probes, asked):
        ending, detail = session.unusable.ending, session.unusable.detail
        what = detail if ending in UNUSABLE else Message("the import of torch ended with {}: {}", ending, detail)
        failed = Message("the experiments could not run: {}", what)
    unmeasured = [*_not_measured(section, probes, asked), *_model_not_measured(session, cases)]
    return Results(facts, section, failed, unmeasured)


def _needed_torch(probes: Mapping[str, Probe], asked: Sequence[str]) -> bool:
    """Whether anything that was to run needs torch."""
    wanted = [probe for probe in probes.values() if not asked or {probe.name, *probe.settles} & set(asked)]
    return any("torch" in probe.needs for probe in wanted)


def _values(
    session: Session, groups: Sequence[Group], probes: Mapping[str, Probe], asked: Sequence[str], using: bool | Unknown
) -> Iterator[tuple[str, Value]]:
    """``probe.*``. The list of results is complete when the whole suite ran: then a result that is not there is known
    not to be."""
    incomplete = Message("only {} ran", ", ".join(asked)) if asked else None
    reason: Unknown | None = None
    if session.unusable is not None:
        incomplete = Message("no experiment could run: {}", session.unusable.detail)
        reason = Unknown(incomplete)
    device = session.environment.get("device", {})
    name, cudnn = device.get("name"), device.get("cudnn")
    yield "probe.device", reason or session.device or Unknown(Message("no experiment ran"))
    yield "probe.device_name", reason or (name if isinstance(name, str) else ABSENT)
    yield "probe.cudnn", reason or (cudnn if isinstance(cudnn, str) and cudnn[:1].isdigit() else ABSENT)
    yield "probe", Records(records_of(groups, probes, using), incomplete)


def _section(
    session: Session,
    cases: Sequence[Case],
    groups: Sequence[Group],
    probes: Mapping[str, Probe],
    *,
    suite: str,
    using: bool | Unknown,
) -> ProbeSection:
    """The section ``probe``: what ran where, time and memory, counts by probe, every group and case that is not right.

    ``seconds`` is the whole run, ``peak_mib`` the largest single child.
    """
    environment = {
        case: {key: value for key, value in seen.items() if key not in ("kind", "case", "probe", "device")}
        for case, seen in session.environment.items()
    }
    wrong = [case for case in cases if case.verdict.wrong]
    info = [seen for outcome in session.outcomes for seen in outcome.observations if seen.get("kind") == "info"]
    return {
        "suite": suite,
        "device": session.device,
        "in_use": None if isinstance(using, Unknown) else using,
        "in_use_unknown": using.reason if isinstance(using, Unknown) else None,
        "environment": environment,
        "unusable": session.unusable.detail if session.unusable is not None else None,
        "jobs": len(session.outcomes),
        "cases": sum(case.verdict.verdict != "skip" for case in cases),
        "seconds": round(session.seconds, 2),
        "peak_mib": max((one.peak_mib for one in session.outcomes if one.peak_mib is not None), default=None),
        "probes": _probes(session, cases, probes),
        "groups": [_group(group) for group in groups if group.wrong],
        "skipped": _skipped(cases),
        "wrong": len(wrong),
        "wrong_cases": [_case(case) for case in wrong[:_MOST_CASES]],
        "errors": errors_by_length(cases),
        "info": [dict(seen) for seen in info[:_MOST_INFO]],
        "reproducer": reproducer(groups, session.environment),
    }


def _probes(session: Session, cases: Sequence[Case], probes: Mapping[str, Probe]) -> list[ProbeChild]:
    """One entry for each child, in the order of the run."""
    verdicts = {id(case.observation): case.verdict.verdict for case in cases}
    entries: list[ProbeChild] = []
    for outcome in session.outcomes:
        job, probe = outcome.job, probes.get(outcome.job.probe)
        counts = Counter(verdicts[id(seen)] for seen in outcome.observations if id(seen) in verdicts)
        entries.append(
            {
                "name": job.probe,
                "title": probe.title if probe else job.probe,
                "device": outcome.device,
                "dtype": job.dtype,
                "backend": job.backend,
                "options": dict(job.options),
                "counts": dict(sorted(counts.items())),
                "ending": outcome.ending,
                "detail": outcome.detail,
                "seconds": outcome.seconds,
                "cpu_seconds": outcome.cpu_seconds,
                "peak_mib": outcome.peak_mib,
                "import_s": outcome.begin.get("import_s"),
            }
        )
    return entries


def _group(group: Group) -> ProbeGroup:
    return {
        "name": group.name,
        "device": group.device,
        "dtype": group.dtype,
        "backend": group.backend,
        "model": group.model,
        "verdict": group.verdict,
        "signature": group.signature,
        "wrong": group.times,
        "cases": group.ran,
        "tensors": list(group.tensors),
        "ratio": group.ratio,
        "nodes": list(group.nodes),
        "masks": list(group.values("mask")),
        "stresses": list(group.values("stress")),
        "lengths": list(group.values("S")),
        "tile": group.tile,
        "lse": list(group.lse) if group.lse else None,
        "example": group.worst.title if group.worst is not None else None,
        "why": group.why,
        "ranks": None,
    }


def _case(case: Case) -> dict[str, Any]:
    seen, verdict = case.observation, case.verdict
    kept = {key: seen.get(key) for key in ("probe", "device", "dtype", "backend", "params", "node", "lse", "ratio")}
    return {
        **{key: value for key, value in kept.items() if value is not None},
        "case": case.title,
        "verdict": verdict.verdict,
        "signature": verdict.signature,
        "why": verdict.why,
    }


def _skipped(cases: Sequence[Case]) -> list[ProbeSkipped]:
    """Why something was not measured, with the number of cases."""
    reasons = Counter(
        (str(case.observation.get("probe")), case.verdict.why) for case in cases if case.verdict.verdict == "skip"
    )
    return [{"name": name, "why": why, "cases": count} for (name, why), count in reasons.items()]


def _not_measured(section: ProbeSection, probes: Mapping[str, Probe], asked: Sequence[str]) -> Iterator[Message]:
    """A sentence for each probe that was ``asked`` for by a name and that gave nothing to judge, with the reason.

    One that ended badly is no matter of this: how it ended says why.
    """
    for probe in probes.values():
        if probe.name == FIRST or not {probe.name, *probe.settles} & set(asked):
            continue
        children = [entry for entry in section["probes"] if entry["name"] == probe.name]
        if any(entry["ending"] != "ok" or set(entry["counts"]) - {"skip"} for entry in children):
            continue
        reasons = [entry["why"] for entry in section["skipped"] if entry["name"] == probe.name]
        if not children:
            reasons = [Message("it has nothing to run on the device {}", section["device"])]
        yield Message(
            "{} measured nothing: {}",
            probe.name,
            joined(reasons[:3]) if reasons else Message("it saw no case that can be judged"),
        )


def _model_not_measured(session: Session, cases: Sequence[Case]) -> Iterator[Message]:
    """A sentence when a model was given, experiments tried to build it, and none of them could measure it."""
    own = [case for case in cases if (case.param("model") or "").split(" ")[0] == "own"]
    given = any(outcome.job.model for outcome in session.outcomes)
    if given and own and all(case.verdict.verdict == "skip" for case in own):
        yield Message("the model that was given was not measured, only others: {}", own[0].verdict.why)
