"""The experiments of every rank of a job on rank 0: the differences between ranks, and the missing ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from envdoctor.app.ranks import START_SECONDS, Launched, on_host, packed, ranges, read, records_of
from envdoctor.experiments.probe.catalogue import SUITES, Outcome, Probe, outcome_of
from envdoctor.experiments.probe.results import Results, result_of
from envdoctor.experiments.probe.session import Session
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Absent, Fact, Records, Unknown, Value
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.facts_file import SCHEMA, FactsFileError, facts_of_document
from envdoctor.system.message import Message
from envdoctor.system.target import Place, Task, run_in_target

#: The experiment, and the one that computes its inputs.
NAME, COMPUTES = "ranks", "devices"
#: Seconds of the all-reduce on each rank, twice, and of the wait for a rank 0 that itself waits as long as it may.
_REDUCE_SECONDS = 180.0
#: Machines that a text names, and refusals that are shown.
_MOST_MACHINES = 8
#: Columns that tell two results apart.
_IDENTITY = ("name", "device", "dtype", "backend", "signature", "model")

_Item = Mapping[str, Value]


class Met(NamedTuple):
    """The results of all ranks on rank 0, empty on the others: the ``outcome`` of the comparison, wrong results
    ``elsewhere`` (machine, ranks on it, results), how many ranks sent results, sentences about them (``notes``) and
    about missing ranks (``problems``)."""

    outcome: Outcome | None = None
    elsewhere: Sequence[tuple[str, Sequence[int], Sequence[_Item]]] = ()
    answered: int = 0
    notes: Sequence[Message] = ()
    problems: Sequence[Message] = ()


def for_ranks(chosen: Sequence[Probe], probes: Mapping[str, Probe]) -> list[Probe]:
    """Return the experiments that every rank runs: the chosen ones, and the one whose results are compared. A rank has
    one GPU, so there is nothing to compare within it."""
    computes = replace(probes[COMPUTES], suites={suite: [{"contents": True}] for suite in SUITES})
    return [*(probe for probe in chosen if probe.name not in (NAME, COMPUTES)), computes]


def meet(
    here: Launched,
    seconds: float,
    session: Session,
    results: Results,
    *,
    refused: Message | None,
    place: Place,
    probes: Mapping[str, Probe],
    matrix: Matrix,
) -> Met:
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
        return Met()
    (comparison,) = probes[NAME].jobs("full", device)
    cases = tuple(record for record in records if "case" in record)
    met = _read(here, seconds, [record for record in records if "case" not in record], matrix)
    return met._replace(outcome=outcome_of(comparison, answer._replace(records=cases)))


def _wrong(results: Results) -> Sequence[_Item]:
    """Return the results that are wrong, from the facts."""
    value = next(fact.value for fact in results.facts if fact.key == "probe")
    items = value.items if isinstance(value, Records) else ()
    return [item for item in items if item["verdict"] not in ("pass", "skip")]


def _read(here: Launched, seconds: float, records: Sequence[Mapping[str, Any]], matrix: Matrix) -> Met:
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
    return Met(None, elsewhere, count, [note], problems)


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


def with_the_others(results: Results, met: Met) -> Results:
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
