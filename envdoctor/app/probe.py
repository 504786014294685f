"""``envdoctor probe``: does this machine compute right numbers, with this torch, now?

And of a job the experiments of every rank, on rank 0: the differences between ranks, and the missing ranks.
"""

import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Gathered, Sources, collect_facts, with_assignments
from envdoctor.app.ranks import START_SECONDS, Launched, on_host, packed, ranges, read, records_of
from envdoctor.app.reporting import Judging, unknown_model
from envdoctor.experiments.probe import catalogue as experiments
from envdoctor.experiments.probe.catalogue import SUITES, Outcome, Probe, choose, find_probes, outcome_of
from envdoctor.experiments.probe.courtesy import Permission, ask, ask_local
from envdoctor.experiments.probe.recording import (
    ALL_RUN,
    RecordingError,
    ReleasedResults,
    read_recording,
    released,
    write_head,
    write_outcome,
)
from envdoctor.experiments.probe.results import Results, result_of, results_of
from envdoctor.experiments.probe.session import Session, Wishes, in_use, run_session, session_of
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Absent, Fact, Records, Unknown, Value, plain
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.finding import Policy
from envdoctor.judge.judging import Judgement
from envdoctor.matrix.entry_statements import entries
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.facts_file import SCHEMA, FactsFileError, facts_of_document
from envdoctor.observe.request import Target
from envdoctor.report.report import Notice, Report
from envdoctor.system.files import because_of
from envdoctor.system.message import Message
from envdoctor.system.target import Place, Task, run_in_target, scratch_folder


@dataclass(frozen=True)
class ProbeRequest:
    """A run of experiments: which, and where. ``only`` has names of probes, or rules' names; ``suite`` is quick,
    full, long or card; ``device`` auto, cpu or cuda. ``all_gpus`` shows every GPU to the experiments instead of
    one, ``force`` runs them on a GPU that is in use. ``record`` is a file that gets every observation; ``replay``
    one that is judged instead of running anything. ``workers`` is how many processes run at a time (None: as cores
    and memory allow; one on a GPU), ``payload`` the folder of the probes. All inputs are drawn from ``seed`` (None:
    a new one, the same on all ranks of a job). ``here`` is this process in its job, whose other processes run the
    same: they are waited for as long as ``wait`` says, in seconds."""

    suite: str = "quick"
    only: Sequence[str] = ()
    device: str = "auto"
    all_gpus: bool = False
    force: bool = False
    record: Path | None = None
    replay: Path | None = None
    sources: Sources = field(default_factory=Sources)
    workers: int | None = None
    payload: Path = experiments.PAYLOAD
    seed: int | None = None
    here: Launched | None = None
    wait: float = 300.0


def probe(
    request: ProbeRequest,
    *,
    policy: Policy | None = None,
    matrix: Matrix | None = None,
    exit_zero: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Run the experiments in children of the target's interpreter and judge the results by the rules about probes.

    The target's torch is imported there and nowhere else. The report is incomplete (exit code 3) if torch cannot be
    used, if an experiment gave no answer and no rule covers it, or if a requested experiment measured nothing.
    With ``request.here``, rank 0 returns the report of all ranks; on the others it has their own results only.
    Raises :class:`UsageProblem` and :class:`JobError`.
    """
    run = Judging(policy, matrix, exit_zero)
    matrix = run.matrix
    probes = catalogue(request.payload)
    if request.replay is not None:
        gathered, results = _replay(request, matrix, probes)
        notes: list[Notice] = []
    else:
        gathered = collect_facts(request.sources, matrix, links="imports" in request.only)
        if no_model := unknown_model(gathered.facts, request.sources.model):
            raise JobError(no_model)  # before anything is started: other models would not answer the question
        results, notes = run_probes(gathered, request, matrix, probes, progress)
    facts, model = with_facts(gathered.facts, results.facts, matrix), request.sources.model
    judgement = run.judged(facts, matrix.of_scopes("probe"))
    open_ends = [results.failed] if results.failed else [*_unanswered(judgement, results.section), *results.unmeasured]
    if model is not None and facts.text("model.path") is None:
        text = "no files of {} are at hand: it was not measured, only tiny models of other families"
        open_ends.append(Message(text, model))
    notices = [*gathered.notices, *run.of_rules(judgement), *notes, *(Notice("error", text) for text in open_ends)]
    return run.report("probe", gathered.target, judgement, notices, incomplete=bool(open_ends), probe=results.section)


def catalogue(payload: Path = experiments.PAYLOAD) -> dict[str, experiments.Probe]:
    """Return every probe by name. Raises :class:`JobError`."""
    with told_as(JobError, experiments.CatalogueError):
        return find_probes(payload)


def run_probes(
    gathered: Gathered,
    request: ProbeRequest,
    matrix: Matrix,
    probes: Mapping[str, experiments.Probe],
    progress: Callable[[str], None] | None = None,
) -> tuple[Results, list[Notice]]:
    """Run the experiments of the request in the gathered environment; return their results, and notices about the run.
    Raises :class:`UsageProblem` and :class:`JobError`."""
    wishes, shipped = _wishes(gathered, request, probes, matrix)
    notices: list[Notice] = []
    python = gathered.needed_interpreter(Message("the experiments run"))
    permission = Permission("")
    environ, here = request.sources.environ, request.here
    if request.device != "cpu":
        gpus = gathered.facts.value("gpu")
        if here is not None:
            permission = ask_local(gpus, environ, here.local, force=request.force)
        else:
            every = request.all_gpus or request.suite == experiments.CARD
            permission = ask(gpus, environ, all_gpus=every, force=request.force)
        if permission.refused is not None and not (here is not None and here.rank):
            raise JobError(permission.refused)
        notices += [Notice("note", text) for text in permission.notes]
    head = {"suite": request.suite, "only": list(request.only), "asked_device": request.device, "released": shipped}
    with (
        scratch_folder("envdoctor-probe-") as scratch,
        _recorder(request, gathered.facts, head, matrix, scratch) as keep,
    ):
        place = Place(python, environ, request.sources.folder(), scratch, permission.visible, request.payload)
        sure = request.device == "cpu" or (request.device == "auto" and _no_accelerator(gathered.facts))
        tell = progress or (lambda text: None)
        session = session_of(())
        if permission.refused is None:
            first, workers = probes[experiments.FIRST], request.workers
            session = run_session(first, wishes, place, cpu_for_sure=sure, workers=workers, tell=tell, keep=keep)
        results = _judged(session, gathered.facts, request, probes, shipped)
        if here is None:
            return results._replace(unmeasured=[*results.unmeasured, *permission.left_out]), notices
        refused = permission.refused
        met = _meet(here, request.wait, session, results, refused=refused, place=place, probes=probes, matrix=matrix)
        if met.outcome is not None:
            keep(met.outcome)
            outcomes = [*session.outcomes, met.outcome]
            session = session_of(outcomes)._replace(seconds=session.seconds + met.outcome.seconds)
            results = _with_the_others(_judged(session, gathered.facts, request, probes, shipped), met)
        return results, [*notices, *(Notice("note", text) for text in met.notes)]


def _judged(
    session: Session,
    facts: FactSet,
    request: ProbeRequest,
    probes: Mapping[str, experiments.Probe],
    shipped: ReleasedResults,
) -> Results:
    using = in_use(session, facts.value("gpu"), facts.value("machine.accelerators"))
    return results_of(session, probes, suite=request.suite, names=request.only, using=using, released=shipped)


def _unanswered(judgement: Judgement, section: Mapping[str, Any]) -> list[Message]:
    """Return a sentence for each undecided result: an error that no rule reports as one, or a failure on a device that
    training may not use, which no rule judges."""
    columns = ("name", "device", "dtype", "backend", "signature", "ranks")
    answered = {tuple(map(finding.item.get, columns)) for finding in judgement.findings if finding.severity == "error"}
    sentences = []
    for group in section["groups"]:
        identity = tuple(getattr(group, column) for column in columns)
        is_failure = group.verdict == "fail" and section["in_use"] is not None
        if is_failure or group.verdict == "warn" or identity in answered or section["in_use"] is False:
            continue
        where = ("on", group.ranks) if group.ranks else ()
        words = " ".join(word for word in (*identity[:4], *where) if word)
        text = Message("no answer from {}: {}: {}", words, group.verdict, group.why)
        if group.verdict == "fail":
            failed = "{}: {}: {}; whether training uses this device is not known"
            text = Message(failed, words, group.signature, group.why)
        sentences.append(text)
    return sentences


def _wishes(
    gathered: Gathered, request: ProbeRequest, probes: Mapping[str, experiments.Probe], matrix: Matrix
) -> tuple[Wishes, ReleasedResults]:
    """Return the wishes, and the results that are known without a run: those of released code, unless a name, a longer
    suite or a model asks for more."""
    facts, results = gathered.facts, ALL_RUN
    if experiments.FIRST not in probes:
        raise JobError("the probe {} is missing from this installation of envdoctor", experiments.FIRST)
    try:
        chosen = choose(probes, request.only) if request.only else list(probes.values())
    except experiments.CatalogueError as error:
        raise UsageProblem("--only: {}", error) from None
    if request.suite == experiments.CARD:
        chosen = [replace(choice, usual=replace(choice.usual, speeds=matrix.rows("gpu-speeds"))) for choice in chosen]
    if request.here is not None:
        chosen = _for_ranks(chosen, probes)
    model = facts.text("model.path")
    if not request.only and request.suite == experiments.SUITES[0] and model is None:
        results = released(facts, matrix.rows, gathered.layout, request.payload)
        chosen = [choice for choice in chosen if choice.name not in results.clean]
    settings = (fact for fact in facts.below("recipe.") if not isinstance(fact.value, (Unknown, Records, Absent)))
    recipe = {fact.key.removeprefix("recipe."): plain(fact.value) for fact in settings}
    folder = os.path.join(request.sources.folder(), model) if model is not None else None
    seed = _drawn(request.here) if request.seed is None else request.seed
    installed = {fact.key[4:]: fact.value for fact in facts.below("pkg.") if isinstance(fact.value, str)}
    bare = request.device == "cpu" or _no_accelerator(facts)
    imports = tuple(entry.statement for entry in entries(matrix.rows, installed) if not (entry.needs_gpu and bare))
    return Wishes(chosen, bool(request.only), request.suite, request.device, folder, recipe, imports, seed), results


def _drawn(here: Launched | None) -> int:
    """Return a random seed; in a job, the seed that all its ranks draw, because their numbers are compared."""
    if here is None:
        return secrets.randbelow(1 << 31)
    return zlib.crc32(repr((here.address, here.port, here.world, here.attempt)).encode()) >> 1


def _no_accelerator(facts: FactSet) -> bool:
    return facts.value("machine.accelerators") == () and facts.value("gpu") == Records(())


@contextmanager
def _recorder(
    request: ProbeRequest, facts: FactSet, head: Mapping[str, object], matrix: Matrix, scratch: str
) -> Iterator[Callable[[Outcome], None]]:
    if request.record is None:
        yield lambda outcome: None
        return
    from envdoctor.report.facts_text import document

    file: IO[str]
    try:
        file = open(request.record, "w", encoding="utf-8", newline="\n")  # noqa: SIM115 (its error differs from ours)
    except OSError as error:
        raise JobError("{}: cannot be written: {}", request.record, because_of(error)) from None
    with file:
        write_head(file, document(facts, matrix.registry, public=True), **head)
        folders = {scratch: "<scratch>", request.sources.folder(): "<cwd>", os.path.expanduser("~"): "~"}
        yield lambda outcome: write_outcome(file, outcome, folders)


def _replay(request: ProbeRequest, matrix: Matrix, probes: Mapping[str, experiments.Probe]) -> tuple[Gathered, Results]:
    assert request.replay is not None
    try:
        recording = read_recording(request.replay)
        facts = facts_of_document(recording.facts, str(request.replay), matrix.registry)
    except (RecordingError, FactsFileError) as error:
        raise UsageProblem("--replay {}", error) from None
    facts = with_assignments(facts, request.sources, matrix)
    head = recording.head
    request = replace(request, suite=head.get("suite", "quick"), only=head.get("only", []))
    if not recording.outcomes:
        raise UsageProblem("--replay {}: nothing ran in this recording", request.replay)
    results = _judged(session_of(recording.outcomes), facts, request, probes, recording.released)
    return Gathered(facts, Target("facts", str(request.replay), Message("--replay"))), results


#: The experiment, and the one that computes its inputs.
NAME, COMPUTES = "ranks", "devices"
#: Seconds of the all-reduce on each rank, twice, and of the wait for a rank 0 that itself waits as long as it may.
_REDUCE_SECONDS = 180.0
#: Machines that a text names, and refusals that are shown.
_MOST_MACHINES = 8
#: Columns that tell two results apart.
_IDENTITY = ("name", "device", "dtype", "backend", "signature", "model")

_Item = Mapping[str, Value]


class _Met(NamedTuple):
    """The results of all ranks on rank 0, empty on the others: the ``outcome`` of the comparison, wrong results
    ``elsewhere`` (machine, ranks on it, results), how many ranks sent results, sentences about them (``notes``) and
    about missing ranks (``problems``)."""

    outcome: Outcome | None = None
    elsewhere: Sequence[tuple[str, Sequence[int], Sequence[_Item]]] = ()
    answered: int = 0
    notes: Sequence[Message] = ()
    problems: Sequence[Message] = ()


def _for_ranks(chosen: Sequence[Probe], probes: Mapping[str, Probe]) -> list[Probe]:
    """Return the experiments that every rank runs: the chosen ones, and the one whose results are compared. A rank has
    one GPU, so there is nothing to compare within it."""
    computes = replace(probes[COMPUTES], suites={suite: [{"contents": True}] for suite in SUITES})
    return [*(probe for probe in chosen if probe.name not in (NAME, COMPUTES)), computes]


def _meet(
    here: Launched,
    seconds: float,
    session: Session,
    results: Results,
    *,
    refused: Message | None,
    place: Place,
    probes: Mapping[str, Probe],
    matrix: Matrix,
) -> _Met:
    """Send the results of this rank, take part in the comparison, and on rank 0 return the results of the others.
    ``refused`` is why nothing ran here. Raises :class:`JobError` if the other processes were not reached."""
    from envdoctor.report.facts_text import document

    refused = refused or results.failed
    facts = FactSet([Fact("probe", Records(tuple(_wrong(results))), "", "")])
    data = document(facts, matrix.registry)["facts"]
    device = session.device or "cpu"
    # What this rank says of itself beside its document, in short.
    seen = (seen for outcome in session.outcomes for seen in outcome.observations if seen.get("case") == "contents")
    contents = next(seen, {})
    own: dict[str, Any] = {"name": str(contents.get("name", ""))[:60], "alike": str(contents.get("alike", ""))[:100]}
    own |= {"results": contents.get("results", {}), "refused": refused is not None}
    job = {**here._asdict(), "seconds": seconds, "device": device, "own": own}
    job.update(packed({"facts": data, "complete": [], "refused": refused or ""}))
    task = Task(f"probes/ranks.py:{NAME}", job, ("torch",), 2 * seconds + START_SECONDS + _REDUCE_SECONDS, 3000)
    (answer,) = run_in_target([task], place)
    records = records_of(answer, here)
    if here.rank:
        return _Met()
    (comparison,) = probes[NAME].jobs("full", device)
    cases = tuple(record for record in records if "case" in record)
    met = _read(here, seconds, [record for record in records if "case" not in record], matrix)
    return met._replace(outcome=outcome_of(comparison, answer._replace(records=cases)))


def _wrong(results: Results) -> Sequence[_Item]:
    """Return the results that are wrong, from the facts."""
    value = next(fact.value for fact in results.facts if fact.key == "probe")
    items = value.items if isinstance(value, Records) else ()
    return [item for item in items if item["verdict"] not in ("pass", "skip")]


def _read(here: Launched, seconds: float, records: Sequence[Mapping[str, Any]], matrix: Matrix) -> _Met:
    came = read(records)
    elsewhere = []
    refused: dict[str, list[str]] = {}
    unread = [*came.unread]
    for host, numbers, document in came.sent:
        items = _items(document, matrix)
        if isinstance(items, str):
            refused.setdefault(items, []).append(on_host(host, numbers))
        elif items is None:
            unread += numbers
        else:
            elsewhere.append((host, numbers, items))
    count = sum(len(numbers) for _, numbers, _ in elsewhere)
    machines = len({host for host, _, _ in elsewhere})
    problems = []
    if came.missing:
        text = "of {} ranks these did not come in {} s: {}"
        problems.append(Message(text, here.world, f"{seconds:g}", ranges(came.missing)))
    for reason, names in list(refused.items())[:_MOST_MACHINES]:
        problems.append(Message("nothing ran on {}: {}", _listed(names), reason))
    if unread:
        problems.append(Message("the results of the ranks {} are too many or cannot be read", ranges(unread)))
    note = Message("{} of {} ranks ran the experiments, on {} machine(s)", count, here.world, machines)
    return _Met(None, elsewhere, count, [note], problems)


def _items(document: Mapping[str, Any], matrix: Matrix) -> Sequence[_Item] | str | None:
    """Return the wrong results of a rank, or why nothing ran there; None if they cannot be read."""
    refused = document.get("refused")
    if not isinstance(refused, str) or refused:
        return refused[:500] if isinstance(refused, str) else None
    try:
        facts = facts_of_document({"schema": SCHEMA, "facts": document["facts"]}, "rank", matrix.registry)
    except FactsFileError:
        return None
    return facts.items("probe")


def _with_the_others(results: Results, met: _Met) -> Results:
    """Return the results of rank 0 with those of the others; a result of some ranks only names them."""
    results_by: dict[tuple[object, ...], tuple[_Item, dict[str, list[int]]]] = {}
    for item in _wrong(results):
        if item["name"] != NAME:
            results_by[_identity(item)] = (item, {})
    for host, numbers, items in met.elsewhere:
        for item in items:
            _, where = results_by.setdefault(_identity(item), (item, {}))
            where.setdefault(host, []).extend(numbers)
    ranks = {}
    for identity, (_, where) in results_by.items():
        everywhere = sum(map(len, where.values())) == met.answered
        ranks[identity] = "" if everywhere else _listed([on_host(*entry) for entry in where.items()])
    own = {_identity(group._asdict()): group for group in results.section["groups"]}
    groups = [group._replace(ranks=ranks.get(key) or None) for key, group in own.items()]
    groups += [result_of(item, ranks[key]) for key, (item, _) in results_by.items() if key not in own]
    facts = list(results.facts)
    for place, fact in enumerate(facts):
        if fact.key == "probe" and isinstance(fact.value, Records):
            here = {_identity(item) for item in fact.value}
            every = [*fact.value, *(item for key, (item, _) in results_by.items() if key not in here)]
            rows = tuple({**item, "ranks": ranks.get(_identity(item)) or ABSENT} for item in every)
            facts[place] = fact._replace(value=Records(rows, fact.value.incomplete))
    unmeasured = [*results.unmeasured, *met.problems]
    return results._replace(facts=facts, section={**results.section, "groups": groups}, unmeasured=unmeasured)


def _identity(item: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the columns that tell a result from others, of a record or a group."""
    values = (item.get(column) for column in _IDENTITY)
    return tuple(None if isinstance(value, (Absent, Unknown)) else value for value in values)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_MACHINES]) + (", ..." if len(names) > _MOST_MACHINES else "")
