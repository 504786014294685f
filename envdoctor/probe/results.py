"""What a session found, as facts for the rules and as the report's own section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.probe.catalogue import FIRST, Probe
from envdoctor.probe.grouping import Case, Group, cases_of, example, groups_of, records_of
from envdoctor.probe.running import total_peak
from envdoctor.probe.section import ProbeChild, ProbeGroup, ProbeSection, ProbeSkipped
from envdoctor.probe.session import Session

__all__ = ["model_not_measured", "not_measured", "probe_facts", "results_of", "section_of"]

_ORIGIN = "envdoctor probe"
#: Cases told one by one in the section; their number is told whatever it is.
_MOST_CASES = 2000


def probe_facts(
    session: Session,
    groups: Sequence[Group],
    probes: Mapping[str, Probe],
    *,
    suite: str,
    asked: Sequence[str],
    using: bool | Unknown,
) -> list[Fact]:
    """``probe.*``. The list of results is complete when the whole suite ran: then a result that is not there is known
    not to be."""
    settles = {probe.name: probe.settles for probe in probes.values()}
    incomplete = f"only {', '.join(asked)} ran" if asked else None
    reason: Unknown | None = None
    if session.unusable is not None:
        incomplete = f"no experiment could run: {session.unusable.detail}"
        reason = Unknown(incomplete)
    device = session.environment.get("device", {})
    name, cudnn = device.get("name"), device.get("cudnn")
    values: dict[str, Value] = {
        "probe.device": reason or session.device or Unknown("no experiment ran"),
        "probe.device_name": reason or (name if isinstance(name, str) else ABSENT),
        "probe.cudnn": reason or (cudnn if isinstance(cudnn, str) and cudnn[:1].isdigit() else ABSENT),
        "probe.suite": ", ".join(asked) if asked else suite,
        "probe": Records(records_of(groups, settles, using), incomplete),
    }
    return [Fact(key, value, _ORIGIN, "probe") for key, value in values.items()]


def section_of(
    session: Session, groups: Sequence[Group], probes: Mapping[str, Probe], *, suite: str, using: bool | Unknown
) -> ProbeSection:
    """The section ``probe``: what ran where, time and memory, counts by probe, every group and case that is not right.

    ``seconds`` is the whole run, ``peak_mib`` the largest single child.
    """
    environment = {
        case: {key: value for key, value in seen.items() if key not in ("kind", "case", "probe", "device")}
        for case, seen in session.environment.items()
    }
    cases = cases_of(session.outcomes)
    wrong = [case for case in cases if case.verdict.wrong]
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
        "peak_mib": total_peak(session.outcomes),
        "probes": _probes(session, cases, probes),
        "groups": [_group(group) for group in groups if group.verdict not in ("pass", "skip")],
        "skipped": _skipped(cases),
        "wrong": len(wrong),
        "wrong_cases": [_case(case) for case in wrong[:_MOST_CASES]],
        "info": [
            dict(seen) for outcome in session.outcomes for seen in outcome.observations if seen.get("kind") == "info"
        ][:200],
        "reproducer": None,
    }


def _probes(session: Session, cases: Sequence[Case], probes: Mapping[str, Probe]) -> list[ProbeChild]:
    """One entry for each child, in the order of the run."""
    entries: list[ProbeChild] = []
    for outcome in session.outcomes:
        job = outcome.job
        own = set(map(id, outcome.observations))
        counts = Counter(case.verdict.verdict for case in cases if id(case.observation) in own)
        probe = probes.get(job.probe)
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
    worst = group.worst
    return {
        "name": group.name,
        "device": group.device,
        "dtype": group.dtype,
        "backend": group.backend,
        "model": group.model,
        "verdict": group.verdict,
        "signature": group.signature,
        "wrong": max(1, sum(case.verdict.verdict == group.verdict for case in group.cases)),
        "cases": group.ran,
        "tensors": list(group.tensors),
        "ratio": group.ratio,
        "nodes": list(group.nodes),
        "masks": list(group.values("mask")),
        "stresses": list(group.values("stress")),
        "lengths": list(group.values("S")),
        "tile": group.tile,
        "lse": list(group.lse) if group.lse else None,
        "example": example(worst) if worst is not None else None,
        "why": group.detail or (worst.verdict.why if worst is not None else ""),
    }


def _case(case: Case) -> dict[str, Any]:
    seen, verdict = case.observation, case.verdict
    kept = {key: seen.get(key) for key in ("probe", "device", "dtype", "backend", "params", "node", "lse", "ratio")}
    return {
        **{key: value for key, value in kept.items() if value is not None},
        "case": example(case),
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


def results_of(session: Session) -> list[Group]:
    """The groups of a session's outcomes; of a torch that cannot be used one group alone says so."""
    if session.unusable is not None:
        return groups_of([session.unusable])
    return groups_of(session.outcomes)


def not_measured(section: ProbeSection, probes: Mapping[str, Probe], asked: Sequence[str]) -> list[str]:
    """A sentence for each probe that was ``asked`` for by a name and that gave nothing to judge, with the reason.

    One that ended badly is no matter of this: how it ended says why.
    """
    sentences = []
    for probe in probes.values():
        if probe.name == FIRST or not {probe.name, *probe.settles} & set(asked):
            continue
        children = [entry for entry in section["probes"] if entry["name"] == probe.name]
        if any(entry["ending"] != "ok" or set(entry["counts"]) - {"skip"} for entry in children):
            continue
        reasons = [entry["why"] for entry in section["skipped"] if entry["name"] == probe.name]
        if not children:
            reasons = [f"it has nothing to run on the device {section['device']}"]
        sentences.append(
            f"{probe.name} measured nothing: {'; '.join(reasons[:3]) or 'it saw no case that can be judged'}"
        )
    return sentences


def model_not_measured(session: Session) -> list[str]:
    """A sentence when a model was given, experiments tried to build it, and none of them could measure it."""
    if not any(outcome.job.model for outcome in session.outcomes):
        return []
    own = [case for case in cases_of(session.outcomes) if (case.param("model") or "").split(" ")[0] == "own"]
    if not own or any(case.verdict.verdict != "skip" for case in own):
        return []
    return [f"the model that was given was not measured, only others: {own[0].verdict.why}"]
