"""The machines of a job. The facts of every process that a launcher started, gathered on rank 0 by children of the
judged Python; and ``envdoctor compare``: do machines agree with each other, by the facts files that they wrote?"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Gathered, Sources, collect_facts, working_directory
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact
from envdoctor.judge.finding import Policy
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.facts_file import (
    FactsFileError,
    drift_between,
    facts_of_document,
    load_facts_document,
    to_compare,
)
from envdoctor.observe.request import Target
from envdoctor.report.report import Notice, Report
from envdoctor.system.message import Message
from envdoctor.system.target import ChildAnswer, Place, Task, run_in_target, scratch_folder

#: Seconds of an import of torch, beside the wait for others.
START_SECONDS = 120.0
#: Bytes of one document when it is unpacked.
_LONGEST = 4 << 20
#: Facts that rightly differ between ranks: they name the device of one process.
_OF_ONE_RANK = ("env.CUDA_VISIBLE_DEVICES", "env.NVIDIA_VISIBLE_DEVICES")
#: The variables of each launcher: rank, number of ranks, how many of them run here, and the number among these.
#: Open MPI and PMI come before Slurm, whose variables their processes inherit.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", "SLURM_LOCALID"),
)
#: torch.distributed's own (https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization).
_PORT = "29500"
_MOST_RANKS = 1_000_000


class Launched(NamedTuple):
    """This process in its job: ``rank`` of ``world``, where rank 0 is met (``served``: by torchrun's own store, not by
    rank 0 itself), which restart of the job this is, and its number among the processes of its machine, if known."""

    rank: int
    world: int
    address: str
    port: int
    served: bool
    attempt: str
    local: int | None = None


class Others(NamedTuple):
    """Facts files by the names of their machines, how many ranks each stands for, and sentences about missing ranks."""

    documents: Mapping[str, Mapping[str, Any]]
    ranks: Mapping[str, int]
    problems: Sequence[Message]


class _Came(NamedTuple):
    """The records of the child: hosts with the numbers of their ranks and their document, the ranks whose document
    cannot be read, and the missing ranks."""

    sent: Sequence[tuple[str, list[int], Mapping[str, Any]]]
    unread: Sequence[int]
    missing: Sequence[Any]


def launched(environ: Mapping[str, str]) -> Launched:
    """Return this process in its job, by its launcher. Raises :class:`UsageProblem` if no launcher is known."""
    launcher = next((names for names in _LAUNCHERS if names[0] in environ and names[1] in environ), None)
    if launcher is None:
        names = ", ".join(rank_name for rank_name, *_ in _LAUNCHERS)
        raise UsageProblem("--all-ranks: no launcher started this process (none of {}): use torchrun or srun", names)
    rank_name, world_name, here_name, local_name = launcher
    rank, world = _number(environ, rank_name, _MOST_RANKS), _number(environ, world_name, _MOST_RANKS)
    if not rank < world:
        raise UsageProblem("--all-ranks: {}={} is not below {}={}", rank_name, rank, world_name, world)
    # Of Slurm's list the first host: ``node003`` of ``node[003-010,12],login1``.
    nodes = re.sub(r"\[([^][,-]*)(?:[,-][^][]*)?\]", r"\1", environ.get("SLURM_STEP_NODELIST", ""))
    address = environ.get("MASTER_ADDR") or nodes.partition(",")[0]
    if not address and environ.get(here_name) == environ[world_name]:
        address = "127.0.0.1"
    if not address:
        raise UsageProblem("--all-ranks: MASTER_ADDR is not set: it names the machine of rank 0")
    return Launched(
        rank,
        world,
        address,
        _number({"MASTER_PORT": _PORT, **environ}, "MASTER_PORT", 65535),
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
        _number(environ, local_name, _MOST_RANKS) if local_name in environ else None,
    )


def _number(environ: Mapping[str, str], name: str, most: int) -> int:
    text = environ[name]
    if not re.fullmatch("[0-9]{1,7}", text) or int(text) > most:
        raise UsageProblem("--all-ranks: {}={}: a number up to {} is expected", name, text, most)
    return int(text)


def all_ranks(sources: Sources, matrix: Matrix, seconds: float) -> Callable[[Gathered], Others] | None:
    """Return a function that brings rank 0 the facts of the others; on the others, send the facts and return None.
    Raises :class:`UsageProblem` and :class:`JobError`."""
    here = launched(sources.environ)
    if here.rank == 0:
        return lambda gathered: _gather_ranks(here, gathered, sources, matrix, seconds)
    _exchange(here, collect_facts(sources, matrix), sources, matrix, seconds)
    return None


def _gather_ranks(here: Launched, gathered: Gathered, sources: Sources, matrix: Matrix, seconds: float) -> Others:
    """Return the facts that rank 0 gets, its own included; ranks of one machine with the same facts are one entry."""
    came = read(_exchange(here, gathered, sources, matrix, seconds))
    names = [on_host(host, numbers) for host, numbers, _ in came.sent]
    problems = []
    if came.missing:
        text = "of {} ranks these sent no facts in {} s: {}"
        problems.append(Message(text, here.world, f"{seconds:g}", ranges(came.missing)))
    if came.unread:
        text = "the facts of the ranks {} are too many or too long to be compared"
        problems.append(Message(text, ranges(came.unread)))
    documents = dict(zip(names, (document for _, _, document in came.sent), strict=True))
    return Others(documents, dict(zip(names, (len(numbers) for _, numbers, _ in came.sent), strict=True)), problems)


def _exchange(
    here: Launched, gathered: Gathered, sources: Sources, matrix: Matrix, seconds: float
) -> Sequence[Mapping[str, Any]]:
    from envdoctor.report.facts_text import document

    python = gathered.interpreter
    if python is None:
        raise UsageProblem("--all-ranks asks the interpreter that is judged, and {} names none", gathered.target.path)
    own = to_compare(document(gathered.facts, matrix.registry), matrix.registry, without=_OF_ONE_RANK)
    job = {**here._asdict(), "seconds": seconds, **packed(own)}
    task = Task("ranks.py", job, needs=("torch",), seconds=seconds + START_SECONDS)
    with scratch_folder("envdoctor-") as scratch:
        (answer,) = run_in_target([task], Place(python, sources.environ, sources.folder(), scratch))
    return records_of(answer, here)


def packed(document: Mapping[str, Any]) -> dict[str, str]:
    """Return a document in the form in which it is sent, and its digest, which equal documents share."""
    data = json.dumps(document, sort_keys=True).encode()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    return {"digest": hashlib.sha256(data).hexdigest(), "document": text}


def read(records: Iterable[Mapping[str, Any]]) -> _Came:
    """Return the records of the child, joined by host and document."""
    members: dict[tuple[str, str], list[int]] = {}
    pieces: dict[str, list[str]] = {}
    missing: list[Any] = []
    for record in records:
        for rank, host, digest in record.get("ranks", ()):
            members.setdefault((host, digest), []).append(rank)
        if "document" in record:
            pieces.setdefault(record["digest"], []).extend(record["document"])
        missing += record.get("missing", ())
    documents = {digest: _unpacked("".join(parts)) for digest, parts in pieces.items()}
    every = [(host, numbers, documents.get(digest)) for (host, digest), numbers in members.items()]
    sent = [(host, numbers, document) for host, numbers, document in every if document is not None]
    return _Came(sent, [rank for _, numbers, document in every if document is None for rank in numbers], missing)


def _unpacked(text: str) -> Mapping[str, Any] | None:
    """Return a document that a rank sent; None if it is invalid."""
    try:
        stream = zlib.decompressobj()
        document = json.loads(stream.decompress(base64.b64decode(text, validate=True), _LONGEST))
    except (ValueError, zlib.error, RecursionError):
        return None
    tables = isinstance(document, dict) and isinstance(document.get("facts"), dict)
    return document if tables and isinstance(document.get("complete"), list) else None


def records_of(answer: ChildAnswer, here: Launched) -> Sequence[Mapping[str, Any]]:
    """Return the records that the child handed over. Raises :class:`JobError` if it did not reach the others."""
    if answer.ending != "ok":
        reason = answer.detail or answer.ending
        raise JobError("rank {} of {} did not reach {}:{}: {}", here.rank, here.world, here.address, here.port, reason)
    return answer.records


def on_host(host: str, numbers: Sequence[int]) -> str:
    """Return a host with its ranks: ``node3 (ranks 24-31)``."""
    return f"{host} (rank{'s' if len(numbers) > 1 else ''} {ranges(numbers)})"


def ranges(numbers: Iterable[int], most: int = 8) -> str:
    """Return numbers as ranges: ``0-3, 6``; at most ``most`` of them."""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if not rows or number != rows[-1][1] + 1:
            rows.append([number, number])
        rows[-1][1] = number
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in rows]
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def compare(
    files: Sequence[str], *, policy: Policy | None = None, matrix: Matrix | None = None, exit_zero: bool = False
) -> Report:
    """Compare facts files, one a machine, and judge the differences; a machine has the name of its file. Raises
    :class:`UsageProblem` for fewer than two files, and for one that cannot be read."""
    if len(set(files)) < 2:
        raise UsageProblem("at least two facts files are compared; `envdoctor facts --format json` writes one")
    run = Judging(policy, matrix, exit_zero)
    here = working_directory() or Path("/")
    stems = [Path(name).stem for name in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    with told_as(None, FactsFileError):
        documents = {name: load_facts_document(here / file, file) for name, file in zip(names, files, strict=True)}
        for file, document in zip(files, documents.values(), strict=True):
            facts_of_document(document, file, run.matrix.registry)  # which refuses what is no fact
    shared, drift = drift_between(documents, run.matrix.registry)
    facts = FactSet([*shared, Fact("drift", drift, Message("the facts files"), "derived")])
    judgement = run.judged(facts, run.matrix.of_scopes("drift"))
    more = f", +{len(names) - 2}" if len(names) > 2 else ""
    target = Target("facts", f"{names[0]}, {names[1]}{more}", Message("--facts"))
    alone = _alone(dict(zip(names, files, strict=True)), run.matrix) if len(names) == 2 else ()
    return run.report("compare", target, judgement, [*run.of_rules(judgement), *alone])


def _alone(files: Mapping[str, str], matrix: Matrix) -> Iterator[Notice]:
    """Yield the errors of one of two machines that the other does not have."""
    from envdoctor.remedy.commands import before

    rules = matrix.of_scopes("environment")
    errors = {
        name: before(collect_facts(Sources(facts=file), matrix).facts, rules).errors for name, file in files.items()
    }
    for name, other in (names := list(files), names[::-1]):
        elsewhere = {problem.rule_id for problem in errors[other]}
        for problem, message in errors[name].items():
            if problem.rule_id not in elsewhere:
                yield Notice("warning", Message("{} alone has {}: {}", name, problem.rule_id, message))
