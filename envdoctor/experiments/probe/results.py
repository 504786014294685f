"""What a session found, as facts for the rules and as the report's own section."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.experiments.probe.catalogue import FIRST, Probe
from envdoctor.experiments.probe.released import ALL_RUN, ReleasedResults
from envdoctor.experiments.probe.reproducer import JudgedCase, Result, cases_of, grouped, is_length, script_of, text_of
from envdoctor.experiments.probe.running import UNUSABLE, Outcome
from envdoctor.experiments.probe.session import Session
from envdoctor.experiments.probe.verdict import cause_of, failure_of, text_in
from envdoctor.facts.values import ABSENT, Absent, Fact, Records, Unknown, Value
from envdoctor.system.message import Message, joined

_Item = Mapping[str, Value]
_ORIGIN = Message("envdoctor probe")
#: Cases told one by one in the section; their number is told whatever it is.
_MOST_CASES = 2000
_MOST_INFO = 200
#: Attention backends that a job may force; "default" leaves the choice to torch.
_FORCED = ("math", "flash", "efficient", "cudnn")
#: How a statement that was run can end.
_OUTCOMES = ("works", "fails", "crashes", "hangs")
#: ``peft/peft_model.py:37``, ``peft/__init__.py:12``, ``six.py:3``, ``torch/_C.abi3.so:0``
_PLACE = re.compile(r"([^:.]+)(?:\.py|\.[^:]*\.so|\.so)?:(\d{1,7})\Z")


class Results(NamedTuple):
    """What the experiments gave: facts for the rules, and the report's section.

    ``failed`` is why no experiment could run, a sentence, or None; ``unmeasured`` sentences about what was asked for
    and gave no case.
    """

    facts: Sequence[Fact]
    section: dict[str, Any]
    failed: Message | None
    unmeasured: Sequence[Message] = ()


def results_of(
    session: Session,
    probes: Mapping[str, Probe],
    *,
    suite: str,
    asked: Sequence[str],
    using: bool | Unknown,
    known: ReleasedResults = ALL_RUN,
) -> Results:
    """Judge the session. ``asked`` are the names that were asked for, or none for the whole ``suite``; ``using`` is
    whether training would use the device, ``known`` what was not run."""
    outcomes = session.outcomes
    if session.unusable is not None:
        outcomes = [session.unusable, *(outcome for outcome in outcomes if "torch" not in outcome.job.needs)]
    cases = cases_of(outcomes)
    outcomes = [outcome for outcome in outcomes if not outcome.again]
    session = session._replace(outcomes=outcomes)
    found = grouped(outcomes, cases)
    records = [*_records([result for result, _ in found], probes, using)]
    title = ", ".join(asked) or suite
    facts = [Fact(key, value, _ORIGIN, "probe") for key, value in _values(session, records, asked)]
    facts.append(Fact("probe.suite", title, _ORIGIN, "probe"))
    facts += [Fact("import_run", runs, _ORIGIN, "probe") for runs in _import_runs(outcomes)]
    section = _section(session, cases, found, probes, suite=title, using=using, known=known)
    failed = None
    wanted = [probe for probe in probes.values() if not asked or {probe.name, *probe.settles} & set(asked)]
    if session.unusable is not None and any("torch" in probe.usual.needs for probe in wanted):
        ending, detail = session.unusable.ending, session.unusable.detail
        what = detail if ending in UNUSABLE else Message("the import of torch ended with {}: {}", ending, detail)
        failed = Message("the experiments could not run: {}", what)
    unmeasured = [*_not_measured(section, probes, asked), *_model_not_measured(session, cases)]
    return Results(facts, section, failed, unmeasured)


def _values(session: Session, records: Sequence[_Item], asked: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Yield the facts ``probe.*``. The list of results is complete if the whole suite ran: then a missing result is
    known to be absent."""
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
    yield "probe", Records(tuple(records), incomplete)


def _records(results: Sequence[Result], probes: Mapping[str, Probe], in_use: bool | Unknown) -> Iterator[_Item]:
    """Yield each result as a record. ``in_use`` is whether training would use the device.

    A kernel that was forced, and that nothing ran when the choice was torch's own, is not in use either.
    """
    taken: dict[tuple[str, str, str | None], set[str]] = {}
    for one in results:
        if one.backend in (None, "default"):
            taken.setdefault((one.name, one.device, one.dtype), set()).update(one.nodes)
    for one in results:
        own_choice, probe = taken.get((one.name, one.device, one.dtype)), probes.get(one.name)
        spared = one.backend in _FORCED and own_choice is not None and not own_choice.intersection(one.nodes)
        attention = probe.attention if probe is not None else None
        columns = {name: value for name, value in one._asdict().items() if name not in ("nodes", "why", "lse")}
        columns["attention"] = one.backend if attention == "backend" else attention
        columns["node"], columns["tensors"] = ", ".join(one.nodes)[:400], ", ".join(one.tensors)
        columns["ratio"] = None if one.ratio is None else round(one.ratio, 3)
        columns["detail"], columns["settles"] = one.why[:1000], ", ".join(probe.settles) if probe is not None else None
        known = {name: ABSENT if value is None or value == "" else value for name, value in columns.items()}
        yield {**known, "in_use": False if spared and in_use is True else in_use}


def result_of(record: _Item, ranks: str) -> Result:
    """Return the result of another rank's record, with the ``ranks`` that had it."""
    said: dict[str, Any] = {name: value for name, value in record.items() if not isinstance(value, (Absent, Unknown))}
    said["tensors"] = tuple(said["tensors"].split(", ")) if "tensors" in said else ()
    told = Result(**{name: value for name, value in said.items() if name in Result._fields})
    return told._replace(
        wrong=int(told.wrong),
        cases=int(told.cases),
        nodes=(said["node"],) if "node" in said else (),
        why=said.get("detail", ""),
        ranks=ranks or None,
    )


def _import_runs(outcomes: Iterable[Outcome]) -> Iterable[Records]:
    """Yield the list of the runs, if there was such a job; incomplete if its child did not end by itself."""
    for outcome in outcomes:
        if outcome.job.entries:
            items = tuple(_import_run(seen) for seen in outcome.observations if seen.get("judge") == "import")
            yield Records(items, None if outcome.ending == "ok" else Message("{}: {}", outcome.ending, outcome.detail))


def _import_run(seen: Mapping[str, Any]) -> Mapping[str, Value]:
    cause, outcome = cause_of(seen), seen.get("outcome")
    # As links name the places in which something is asked for: peft/peft_model:37 of peft/peft_model.py:37.
    place = _PLACE.match(text_in(cause, "place"))
    return {
        "entry": str(seen.get("case"))[:200],
        "outcome": outcome if outcome in _OUTCOMES else "crashes",
        "error": ABSENT if outcome == "works" else failure_of(seen),
        "place": f"{place[1].removesuffix('/__init__')}:{place[2]}" if place else ABSENT,
        "name": text_in(cause, "name") or ABSENT,
    }


def _section(
    session: Session,
    cases: Sequence[JudgedCase],
    found: Sequence[tuple[Result, JudgedCase | None]],
    probes: Mapping[str, Probe],
    *,
    suite: str,
    using: bool | Unknown,
    known: ReleasedResults,
) -> dict[str, Any]:
    """Return the section ``probe``: what ran where, time and memory, counts by probe, every wrong group and case.

    ``seconds`` is the whole run, ``peak_mib`` the largest single child. ``in_use``: whether training would use this
    device; None when that is not known, for the reason ``in_use_unknown``. ``unusable`` is why nothing could run.
    ``reproducer`` are the lines of a script that shows the worst failure alone. ``seed`` draws the same inputs again.
    ``released`` are the experiments on released code that need not run, with their right cases in CI (``clean``), or
    ``why`` they ran.
    """
    seed = next((outcome.job.seed for outcome in session.outcomes), None)
    environment = {
        case: {key: value for key, value in seen.items() if key not in ("kind", "case", "probe", "device")}
        for case, seen in session.environment.items()
    }
    wrong = [case for case in cases if case.verdict.wrong]
    failing = (case for result, case in found if case is not None and result.verdict == "fail")
    info = [seen for outcome in session.outcomes for seen in outcome.observations if seen.get("kind") == "info"]
    return {
        "suite": suite,
        "seed": seed,
        "released": known._asdict(),
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
        "groups": [result for result, _ in found if result.wrong],
        "skipped": _skipped(cases),
        "wrong": len(wrong),
        "wrong_cases": [_case(case) for case in wrong[:_MOST_CASES]],
        "errors": _errors_by_length(cases),
        "info": [dict(seen) for seen in info[:_MOST_INFO]],
        "reproducer": next(filter(None, (script_of(case, session.environment, seed) for case in failing)), None),
    }


def _probes(session: Session, cases: Sequence[JudgedCase], probes: Mapping[str, Probe]) -> list[dict[str, Any]]:
    """Return one entry for each child, in the order of the run: what it ran, its verdicts by name, how it ended, and
    what it took (seconds, MiB)."""
    verdicts = {id(case.observation): case.verdict.verdict for case in cases}
    entries = []
    for outcome in session.outcomes:
        job, probe = outcome.job, probes.get(outcome.job.probe)
        counts = Counter(verdicts[id(seen)] for seen in outcome.observations if id(seen) in verdicts)
        about = {"name": job.probe, "title": probe.title if probe else job.probe, "device": outcome.device}
        asked = {"dtype": job.dtype, "backend": job.backend, "options": dict(job.options)}
        ended = {name: getattr(outcome, name) for name in ("ending", "detail", "seconds", "cpu_seconds", "peak_mib")}
        entry = {**about, **asked, "counts": dict(sorted(counts.items())), **ended}
        entries.append({**entry, "import_s": outcome.begin.get("import_s")})
    return entries


def _case(case: JudgedCase) -> dict[str, Any]:
    seen, verdict = case.observation, case.verdict
    kept = {key: seen.get(key) for key in ("probe", "device", "dtype", "backend", "params", "node", "lse", "ratio")}
    return {
        **{key: value for key, value in kept.items() if value is not None},
        "case": case.title,
        "verdict": verdict.verdict,
        "signature": verdict.signature,
        "why": verdict.why,
    }


def _skipped(cases: Sequence[JudgedCase]) -> list[dict[str, Any]]:
    """Return why something was not measured, with the number of cases."""
    reasons = Counter(
        (str(case.observation.get("probe")), case.verdict.why) for case in cases if case.verdict.verdict == "skip"
    )
    return [{"name": name, "why": why, "cases": count} for (name, why), count in reasons.items()]


def _errors_by_length(cases: Iterable[JudgedCase]) -> list[dict[str, Any]]:
    """Return the points of a plot: the worst of the cases of one experiment, dtype, backend and number of keys, in the
    order of ``length``; cases without a length or a measure are left out. ``ratio`` is in units of unavoidable
    rounding, None if no ratio is finite; ``not_finite``: some case had values that are not finite."""
    points: dict[tuple[str | int | None, ...], list[JudgedCase]] = {}
    for case in cases:
        length, seen = case.param("S") or "", case.observation
        if case.verdict.verdict == "skip" or not is_length(length):
            continue
        where = [text_of(seen, name) for name in ("probe", "device", "dtype", "backend")]
        points.setdefault((*where, int(length)), []).append(case)
    found = []
    for place, alike in points.items():
        ratios = [ratio for case in alike if (ratio := case.verdict.ratio) is not None and math.isfinite(ratio)]
        point = dict(zip(("name", "device", "dtype", "backend", "length"), place, strict=True))
        point |= {"cases": len(alike), "wrong": sum(case.verdict.wrong for case in alike)}
        point["not_finite"] = any(case.verdict.signature.startswith("nan-") for case in alike)
        found.append({**point, "ratio": max(ratios, default=None)})
    return sorted(found, key=lambda point: (point["name"], str(point["dtype"]), str(point["backend"]), point["length"]))


def _not_measured(section: dict[str, Any], probes: Mapping[str, Probe], asked: Sequence[str]) -> Iterator[Message]:
    """Yield a sentence for each probe that was ``asked`` for by name and gave nothing to judge, with the reason.

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
        why = joined(reasons[:3]) if reasons else Message("it saw no case that can be judged")
        yield Message("{} measured nothing: {}", probe.name, why)


def _model_not_measured(session: Session, cases: Sequence[JudgedCase]) -> Iterator[Message]:
    """Yield a sentence if a model was given, experiments tried to build it, and none could measure it."""
    own = [case for case in cases if (case.param("model") or "").split(" ")[0] == "own"]
    given = any(outcome.job.model for outcome in session.outcomes)
    if given and own and all(case.verdict.verdict == "skip" for case in own):
        yield Message("the model that was given was not measured, only others: {}", own[0].verdict.why)
