"""The results of a session: cases that came out alike together, as facts for the rules and as the report's section."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.experiments.probe.catalogue import FIRST, UNUSABLE, Outcome, Probe
from envdoctor.experiments.probe.recording import ALL_RUN, ReleasedResults
from envdoctor.experiments.probe.reproducer import script_of
from envdoctor.experiments.probe.session import JudgedCase, Session, cases_of
from envdoctor.experiments.probe.verdict import cause_of, failure_of, float_of, text_in, text_of
from envdoctor.facts.values import ABSENT, Absent, Fact, Records, Unknown, Value
from envdoctor.system.message import NOTHING, Message, joined

_Item = Mapping[str, Value]
_ORIGIN = Message("envdoctor probe")
#: Wrong cases that the section lists; it counts all of them.
_MOST_CASES = 2000
_MOST_INFO = 200
#: Attention backends that a job may force; "default" leaves the choice to torch.
_FORCED = ("math", "flash", "efficient", "cudnn")
#: The outcomes of a statement that was run.
_OUTCOMES = ("works", "fails", "crashes", "hangs")
#: ``peft/peft_model.py:37``, ``peft/__init__.py:12``, ``six.py:3``, ``torch/_C.abi3.so:0``
_PLACE = re.compile(r"([^:.]+)(?:\.py|\.[^:]*\.so|\.so)?:(\d{1,7})\Z")
#: From the worst to the best.
_ORDER = ("fail", "crash", "oom", "timeout", "killed", "garbage", "error", "partial", "warn", "pass", "skip")
#: The verdict and the signature of an ending in a record.
_ENDED = {
    **{name: (name, name) for name in ("timeout", "killed", "crash", "garbage")},
    **{name: ("error", name) for name in ("failed", "lost", *UNUSABLE)},
    **{"oom": ("oom", "out-of-memory"), "sticky": ("error", "sticky-error")},
    "output-limit": ("garbage", "output-limit"),
}
#: The signature of a job that was done alone after it had ended so beside others; else "died-once".
_ONCE = {"crash": "crashed-once", "timeout": "hung-once"}
_MODULI = (128, 64, 32, 16)
#: A key length below this fits into one tile of every kernel.
_SHORT = 16


class Result(NamedTuple):
    """Cases of one probe on one device, in one dtype and with one backend and model, that came out alike, or a child
    that died: a record for the rules and the report.

    ``wrong`` of the ``cases`` with this probe, device, dtype and backend came out so; 0 if they are right: then the
    fields below ``why`` are empty. ``ratio`` is the worst error in units of unavoidable rounding, None if no ratio is
    finite. ``nodes`` are the autograd nodes that ran, the most frequent first; ``masks``, ``stresses``, ``lengths`` and
    ``cured_by`` values of parameters, ``lse`` the least and largest logsumexp of a row, ``example`` the case to show.
    ``tile`` is what the lengths share (:func:`_tile`), ``batch`` the property of the batch that matters
    (:func:`_batch`), ``ranks`` the machines and ranks of a job, if only some of them have the result.
    """

    name: str = ""
    device: str = ""
    dtype: str | None = None
    backend: str | None = None
    model: str | None = None
    verdict: str = ""
    signature: str = ""
    wrong: int = 0
    cases: int = 0
    tensors: tuple[str, ...] = ()
    ratio: float | None = None
    nodes: tuple[str, ...] = ()
    why: str = NOTHING
    masks: tuple[str, ...] = ()
    stresses: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    tile: str | None = None
    lse: tuple[float, float] | None = None
    example: str | None = None
    ranks: str | None = None
    cured_by: tuple[str, ...] = ()
    batch: str | None = None


_Family = tuple[str, str, str | None, str | None]


def groups_of(outcomes: Sequence[Outcome]) -> list[Result]:
    """Return the results, by probe in the order of the run, the worst first. A child that died has its own result."""
    return [result for result, _ in grouped(outcomes, cases_of(outcomes))]


def grouped(outcomes: Sequence[Outcome], cases: Iterable[JudgedCase]) -> list[tuple[Result, JudgedCase | None]]:
    """Return :func:`groups_of` outcomes with these cases, each with the case to show, if there is one."""
    outcomes = [outcome for outcome in outcomes if not outcome.again]
    families: dict[_Family, list[JudgedCase]] = {_family(outcome): [] for outcome in outcomes}
    for case in cases:
        entry = case.observation
        family = (str(entry.get("probe")), str(entry.get("device")), text_of(entry, "dtype"), text_of(entry, "backend"))
        families.setdefault(family, []).append(case)
    results: list[tuple[Result, JudgedCase | None]] = []
    counts = {family: sum(case.verdict.verdict != "skip" for case in members) for family, members in families.items()}
    for family, members in families.items():
        right = [case for case in members if case.verdict.verdict == "pass"]
        kinds: dict[tuple[str, str | None], list[JudgedCase]] = {}
        for case in members:
            kinds.setdefault((case.verdict.signature, case.param("model")), []).append(case)
        for (_, model), alike in kinds.items():
            same = [case for case in right if case.param("model") == model]
            results.append(_result(family, model, alike, counts[family], same))
    for outcome in outcomes:
        dead = Result(*(family := _family(outcome)), wrong=1, cases=counts[family], why=outcome.detail)
        if outcome.ending != "ok":
            verdict, signature = _ENDED[outcome.ending]
            results.append((dead._replace(verdict=verdict, signature=signature), None))
        if outcome.earlier:
            text = "at first {}, in a process with other experiments: {}"
            once = dead._replace(verdict="warn", signature=_ONCE.get(outcome.earlier, "died-once"))
            results.append((once._replace(why=Message(text, outcome.earlier, outcome.earlier_detail)), None))
    places = {name: place for place, name in enumerate(dict.fromkeys(outcome.job.probe for outcome in outcomes))}
    return sorted(results, key=lambda pair: (places.get(pair[0].name, len(places)), _rank(pair[0].verdict)))


def _result(
    family: _Family, model: str | None, alike: Sequence[JudgedCase], ran: int, right: Sequence[JudgedCase]
) -> tuple[Result, JudgedCase]:
    """Return the result of these cases beside the ``right`` ones, with the case of the largest error. If values were
    lost it is the first case, because a grid begins simply."""
    verdict, signature = min((case.verdict.verdict for case in alike), key=_rank), alike[0].verdict.signature
    same = [case for case in alike if case.verdict.verdict == verdict]
    worst = max(same, key=lambda case: 0.0 if "nan" in signature else case.verdict.ratio or 0.0)
    ratios = [case.verdict.ratio for case in alike if case.verdict.ratio is not None]
    nodes = Counter(node for case in alike if (node := text_of(case.observation, "node")) is not None)
    result = Result(
        *(*family, model, verdict, signature, 0, ran),
        tensors=tuple(dict.fromkeys(name for case in alike for name in case.verdict.tensors)),
        ratio=max((ratio for ratio in ratios if math.isfinite(ratio)), default=None),
        nodes=tuple(node for node, _ in nodes.most_common()),
        why=worst.verdict.why,
    )
    if not worst.verdict.wrong:
        return result, worst
    record = result._replace(
        wrong=len(same),
        masks=_params(alike, "mask"),
        stresses=_params(alike, "stress"),
        lengths=_params(alike, "S"),
        tile=_tile(alike, right),
        lse=_lse(alike),
        example=worst.title,
        cured_by=_params(alike, "cured_by"),
        batch=_batch(signature, alike, right),
    )
    return record, worst


def _params(cases: Iterable[JudgedCase], name: str) -> tuple[str, ...]:
    """Return the values of a parameter in these cases: numbers in order, words in alphabetical order."""
    values = {value for case in cases if (value := case.param(name)) is not None}
    return tuple(sorted(values, key=lambda text: (float(text) if _is_length(text) else math.inf, text)))


def _lse(cases: Iterable[JudgedCase]) -> tuple[float, float] | None:
    pairs = [case.observation.get("lse") for case in cases]
    both = [[float_of(end) for end in pair] for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]
    ends = [pair for pair in both if all(map(math.isfinite, pair))]
    return (min(pair[0] for pair in ends), max(pair[1] for pair in ends)) if ends else None


def _tile(cases: Sequence[JudgedCase], right: Iterable[JudgedCase]) -> str | None:
    """Return what these cases' key lengths share and those of comparable right ones do not: ``%128=64``, ``<16``.

    Comparable cases have a mask and a stress of the wrong cases. One length alone shares everything with itself, and a
    key of length 1 has gradients of zero: neither counts.
    """
    wrong = sorted({int(text) for text in _params(cases, "S") if _is_length(text)})
    shared = {name: _params(cases, name) or ("",) for name in ("mask", "stress")}
    alike = [case for case in right if all((case.param(name) or "") in shared[name] for name in shared)]
    others = {int(text) for case in alike if (text := case.param("S")) and _is_length(text) and text != "1"}
    if not wrong or not others:
        return None
    if wrong[-1] < _SHORT <= min(others):
        return f"<{_SHORT}"
    for modulus in _MODULI if len(wrong) > 1 else ():
        rests = {length % modulus for length in wrong}
        if len(rests) == 1 and not rests & {length % modulus for length in others}:
            return f"%{modulus}={rests.pop()}"
    return None


def _batch(signature: str, cases: Sequence[JudgedCase], right: Sequence[JudgedCase]) -> str | None:
    """Return the property of the batch that matters: ``padded``, ``size`` or ``any``; None if it was not varied."""
    if signature.startswith("mask-"):
        return "padded"
    if not any(case.param("padding") for case in (*cases, *right)):
        return None
    if not signature.startswith("batch-"):
        return "any"
    return "size" if "none" in _params(cases, "padding") else "padded"


def _family(outcome: Outcome) -> _Family:
    return outcome.job.probe, outcome.device, outcome.job.dtype, outcome.job.backend


def _is_length(text: str) -> bool:
    """Return whether a text is a number of keys: a recording may hold other digits, or thousands of them."""
    return text.isascii() and text.isdigit() and len(text) < 10


def _rank(verdict: str) -> int:
    return _ORDER.index(verdict) if verdict in _ORDER else 0


class Results(NamedTuple):
    """The results of the experiments: facts for the rules, and the report's section.

    ``failed`` is why no experiment could run, a sentence, or None; ``unmeasured`` has sentences about experiments
    without a case.
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
    names: Sequence[str],
    using: bool | Unknown,
    released: ReleasedResults = ALL_RUN,
) -> Results:
    """Judge the session. ``names`` are the requested experiments, or none for the whole ``suite``; ``using`` is whether
    training would use the device, ``released`` has the experiments that were not run."""
    outcomes = session.outcomes
    if session.unusable is not None:
        outcomes = [session.unusable, *(outcome for outcome in outcomes if "torch" not in outcome.job.needs)]
    cases = cases_of(outcomes)
    outcomes = [outcome for outcome in outcomes if not outcome.again]
    session = session._replace(outcomes=outcomes)
    groups = grouped(outcomes, cases)
    records = [*_records([result for result, _ in groups], probes, using)]
    title = ", ".join(names) or suite
    values = (*_values(session, records, names), ("probe.suite", title), *_import_runs(outcomes))
    facts = [Fact(key, value, _ORIGIN, "probe") for key, value in values]
    section = _section(session, cases, groups, probes, suite=title, using=using, released=released)
    failed = None
    experiments = [probe for probe in probes.values() if not names or {probe.name, *probe.settles} & set(names)]
    if session.unusable is not None and any("torch" in probe.usual.needs for probe in experiments):
        ending, detail = session.unusable.ending, session.unusable.detail
        cause = detail if ending in UNUSABLE else Message("the import of torch ended with {}: {}", ending, detail)
        failed = Message("the experiments could not run: {}", cause)
    unmeasured = [*_not_measured(section, probes, names), *_model_not_measured(session, cases)]
    return Results(facts, section, failed, unmeasured)


def _values(session: Session, records: Sequence[_Item], names: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Yield the facts ``probe.*``. The list of results is complete if the whole suite ran."""
    incomplete = Message("only {} ran", ", ".join(names)) if names else None
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

    A forced kernel that torch never chose by itself is not in use either.
    """
    own_nodes: dict[tuple[str, str, str | None], set[str]] = {}
    for row in results:
        if row.backend in (None, "default"):
            own_nodes.setdefault((row.name, row.device, row.dtype), set()).update(row.nodes)
    for row in results:
        own_choice, probe = own_nodes.get((row.name, row.device, row.dtype)), probes.get(row.name)
        spared = row.backend in _FORCED and own_choice is not None and not own_choice.intersection(row.nodes)
        attention = probe.attention if probe is not None else None
        columns = {name: value for name, value in row._asdict().items() if name not in ("nodes", "why", "lse")}
        columns["attention"] = row.backend if attention == "backend" else attention
        columns["node"], columns["tensors"] = ", ".join(row.nodes)[:400], ", ".join(row.tensors)
        columns["ratio"] = None if row.ratio is None else round(row.ratio, 3)
        columns["detail"], columns["settles"] = row.why[:1000], ", ".join(probe.settles) if probe is not None else None
        record = {name: ABSENT if value is None or value == "" else value for name, value in columns.items()}
        yield {**record, "in_use": False if spared and in_use is True else in_use}


def result_of(record: _Item, ranks: str) -> Result:
    """Return the result of another rank's record, with the ``ranks`` that had it."""
    fields: dict[str, Any] = {name: value for name, value in record.items() if not isinstance(value, (Absent, Unknown))}
    fields["tensors"] = tuple(fields["tensors"].split(", ")) if "tensors" in fields else ()
    result = Result(**{name: value for name, value in fields.items() if name in Result._fields})
    return result._replace(
        wrong=int(result.wrong),
        cases=int(result.cases),
        nodes=(fields["node"],) if "node" in fields else (),
        why=fields.get("detail", ""),
        ranks=ranks or None,
    )


def _import_runs(outcomes: Iterable[Outcome]) -> Iterable[tuple[str, Value]]:
    """Yield the fact of the runs, if there was such a job; incomplete if its child did not end by itself."""
    for outcome in outcomes:
        if outcome.job.entries:
            items = tuple(_import_run(record) for record in outcome.observations if record.get("judge") == "import")
            reason = None if outcome.ending == "ok" else Message("{}: {}", outcome.ending, outcome.detail)
            yield "import_run", Records(items, reason)


def _import_run(observation: Mapping[str, Any]) -> Mapping[str, Value]:
    cause, outcome = cause_of(observation), observation.get("outcome")
    # The form of places in links: peft/peft_model:37 for peft/peft_model.py:37.
    place = _PLACE.match(text_in(cause, "place"))
    return {
        "entry": str(observation.get("case"))[:200],
        "outcome": outcome if outcome in _OUTCOMES else "crashes",
        "error": ABSENT if outcome == "works" else failure_of(observation),
        "place": f"{place[1].removesuffix('/__init__')}:{place[2]}" if place else ABSENT,
        "name": text_in(cause, "name") or ABSENT,
    }


def _section(
    session: Session,
    cases: Sequence[JudgedCase],
    groups: Sequence[tuple[Result, JudgedCase | None]],
    probes: Mapping[str, Probe],
    *,
    suite: str,
    using: bool | Unknown,
    released: ReleasedResults,
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
        case: {key: value for key, value in record.items() if key not in ("kind", "case", "probe", "device")}
        for case, record in session.environment.items()
    }
    wrong = [case for case in cases if case.verdict.wrong]
    failing = (case for result, case in groups if case is not None and result.verdict == "fail")
    skips = (case for case in cases if case.verdict.verdict == "skip")
    skipped = Counter((str(case.observation.get("probe")), case.verdict.why) for case in skips)
    info = [record for outcome in session.outcomes for record in outcome.observations if record.get("kind") == "info"]
    return {
        "suite": suite,
        "seed": seed,
        "released": released._asdict(),
        "device": session.device,
        "in_use": None if isinstance(using, Unknown) else using,
        "in_use_unknown": using.reason if isinstance(using, Unknown) else None,
        "environment": environment,
        "unusable": session.unusable.detail if session.unusable is not None else None,
        "jobs": len(session.outcomes),
        "cases": sum(case.verdict.verdict != "skip" for case in cases),
        "seconds": round(session.seconds, 2),
        "peak_mib": max((child.peak_mib for child in session.outcomes if child.peak_mib is not None), default=None),
        "probes": _probes(session, cases, probes),
        "groups": [result for result, _ in groups if result.wrong],
        "skipped": [{"name": name, "why": why, "cases": count} for (name, why), count in skipped.items()],
        "wrong": len(wrong),
        "wrong_cases": [_case(case) for case in wrong[:_MOST_CASES]],
        "errors": _errors_by_length(cases),
        "info": [dict(record) for record in info[:_MOST_INFO]],
        "reproducer": next(filter(None, (script_of(case, session.environment, seed) for case in failing)), None),
    }


def _probes(session: Session, cases: Sequence[JudgedCase], probes: Mapping[str, Probe]) -> list[dict[str, Any]]:
    """Return one entry for each child in order: experiment, verdicts by name, ending, and cost (seconds, MiB)."""
    verdicts = {id(case.observation): case.verdict.verdict for case in cases}
    entries = []
    for outcome in session.outcomes:
        job, probe = outcome.job, probes.get(outcome.job.probe)
        counts = Counter(verdicts[id(record)] for record in outcome.observations if id(record) in verdicts)
        about = {"name": job.probe, "title": probe.title if probe else job.probe, "device": outcome.device}
        parameters = {"dtype": job.dtype, "backend": job.backend, "options": dict(job.options)}
        ending = {name: getattr(outcome, name) for name in ("ending", "detail", "seconds", "cpu_seconds", "peak_mib")}
        entry = {**about, **parameters, "counts": dict(sorted(counts.items())), **ending}
        entries.append({**entry, "import_s": outcome.begin.get("import_s")})
    return entries


def _case(case: JudgedCase) -> dict[str, Any]:
    record, verdict = case.observation, case.verdict
    data = {key: record.get(key) for key in ("probe", "device", "dtype", "backend", "params", "node", "lse", "ratio")}
    return {
        **{key: value for key, value in data.items() if value is not None},
        "case": case.title,
        "verdict": verdict.verdict,
        "signature": verdict.signature,
        "why": verdict.why,
    }


def _errors_by_length(cases: Iterable[JudgedCase]) -> list[dict[str, Any]]:
    """Return the points of a plot: the worst of the cases of one experiment, dtype, backend and number of keys, in the
    order of ``length``; cases without a length or a measure are left out. ``ratio`` is in units of unavoidable
    rounding, None if no ratio is finite; ``not_finite``: some case had values that are not finite."""
    points: dict[tuple[str | int | None, ...], list[JudgedCase]] = {}
    for case in cases:
        length, observation = case.param("S") or "", case.observation
        if case.verdict.verdict == "skip" or not _is_length(length):
            continue
        where = [text_of(observation, name) for name in ("probe", "device", "dtype", "backend")]
        points.setdefault((*where, int(length)), []).append(case)
    rows = []
    for place, alike in points.items():
        ratios = [ratio for case in alike if (ratio := case.verdict.ratio) is not None and math.isfinite(ratio)]
        point = dict(zip(("name", "device", "dtype", "backend", "length"), place, strict=True))
        point |= {"cases": len(alike), "wrong": sum(case.verdict.wrong for case in alike)}
        point["not_finite"] = any(case.verdict.signature.startswith("nan-") for case in alike)
        rows.append({**point, "ratio": max(ratios, default=None)})
    return sorted(rows, key=lambda point: (point["name"], str(point["dtype"]), str(point["backend"]), point["length"]))


def _not_measured(section: dict[str, Any], probes: Mapping[str, Probe], names: Sequence[str]) -> Iterator[Message]:
    """Yield a sentence for each probe of these ``names`` that gave nothing to judge, with the reason.

    A probe that ended badly is left out: its ending says why.
    """
    for probe in probes.values():
        if probe.name == FIRST or not {probe.name, *probe.settles} & set(names):
            continue
        children = [entry for entry in section["probes"] if entry["name"] == probe.name]
        if any(entry["ending"] != "ok" or set(entry["counts"]) - {"skip"} for entry in children):
            continue
        reasons = [entry["why"] for entry in section["skipped"] if entry["name"] == probe.name]
        if not children:
            reasons = [Message("it has nothing to run on the device {}", section["device"])]
        reason = joined(reasons[:3]) if reasons else Message("it saw no case that can be judged")
        yield Message("{} measured nothing: {}", probe.name, reason)


def _model_not_measured(session: Session, cases: Sequence[JudgedCase]) -> Iterator[Message]:
    """Yield a sentence if a model was given and experiments tried to build it, but could not measure it."""
    own = [case for case in cases if (case.param("model") or "").split(" ")[0] == "own"]
    is_given = any(outcome.job.model for outcome in session.outcomes)
    if is_given and own and all(case.verdict.verdict == "skip" for case in own):
        yield Message("the model that was given was not measured, only others: {}", own[0].verdict.why)
