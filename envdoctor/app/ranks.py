"""The facts of every process of a job that a launcher started, gathered on rank 0 by children of the judged Python."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.drift import to_compare

if TYPE_CHECKING:
    from envdoctor.sandbox.target import Answer, Task

__all__ = ["Launched", "Others", "all_ranks", "asked_of_target", "gather_ranks", "launched"]

#: The variables of each launcher: rank, number of ranks, and how many of them run here (srun: on how many machines).
#: Open MPI and PMI come before Slurm, whose variables their processes inherit.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
)
#: torch.distributed's own (https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization).
_PORT = "29500"
_MOST_RANKS = 1_000_000
#: What an import of torch may take beside the wait for others.
_START_SECONDS = 120.0
#: Bytes of one document when it is unpacked.
_LONGEST = 4 << 20
#: They name a device of one process on purpose.
_OF_ONE_RANK = ("env.CUDA_VISIBLE_DEVICES", "env.NVIDIA_VISIBLE_DEVICES")


class Launched(NamedTuple):
    """This process in its job: ``rank`` of ``world``, where rank 0 is met (``served``: by torchrun's own store, not by
    rank 0 itself), and which restart of the job this is."""

    rank: int
    world: int
    address: str
    port: int
    served: bool
    attempt: str


class Others(NamedTuple):
    """Facts files by the names of their machines, how many ranks each speaks for (empty: machines are counted), and
    sentences about what did not come."""

    documents: Mapping[str, Mapping[str, Any]]
    ranks: Mapping[str, int]
    problems: Sequence[str]


def launched(environ: Mapping[str, str]) -> Launched:
    """What the launcher says. Raises :class:`UsageProblem` where none did."""
    found = next((names for names in _LAUNCHERS if names[0] in environ and names[1] in environ), None)
    if found is None:
        names = ", ".join(rank_name for rank_name, *_ in _LAUNCHERS)
        raise UsageProblem(f"--all-ranks: no launcher started this process (none of {names}): use torchrun or srun")
    rank_name, world_name, here_name = found
    rank, world = _number(environ, rank_name, _MOST_RANKS), _number(environ, world_name, _MOST_RANKS)
    if not rank < world:
        raise UsageProblem(f"--all-ranks: {rank_name}={rank} is not below {world_name}={world}")
    address = environ.get("MASTER_ADDR") or _first_host(environ.get("SLURM_STEP_NODELIST", ""))
    if not address and environ.get(here_name) == environ[world_name]:
        address = "127.0.0.1"
    if not address:
        raise UsageProblem("--all-ranks: MASTER_ADDR is not set: it names the machine of rank 0")
    return Launched(
        rank,
        world,
        address,
        _number({"MASTER_PORT": _PORT, **environ}, "MASTER_PORT", 65536),
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def _number(environ: Mapping[str, str], name: str, below: int) -> int:
    text = environ[name]
    if not re.fullmatch("[0-9]{1,7}", text) or int(text) > below:
        raise UsageProblem(f"--all-ranks: {name}={text}: a number up to {below} is expected")
    return int(text)


def _first_host(listed: str) -> str:
    """``node003`` of Slurm's ``node[003-010,12],login1``."""
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", listed).partition(",")[0]


def all_ranks(sources: Sources, matrix: Matrix, seconds: float) -> Callable[[Gathered], Others] | None:
    """What brings rank 0 the facts of the others; None on these, whose facts are sent then.

    Raises :class:`UsageProblem` and :class:`JobError`.
    """
    here = launched(sources.environ)
    if here.rank == 0:
        return lambda gathered: gather_ranks(here, gathered, sources, matrix, seconds)
    _exchange(here, collect_facts(sources, matrix), sources, matrix, seconds)
    return None


def gather_ranks(here: Launched, gathered: Gathered, sources: Sources, matrix: Matrix, seconds: float) -> Others:
    """What rank 0 gets, its own facts among it, after at most ``seconds``. Ranks of one machine with the same facts are
    one entry. Raises :class:`UsageProblem` and :class:`JobError`."""
    records = _exchange(here, gathered, sources, matrix, seconds)
    members: dict[tuple[str, str], list[int]] = {}
    pieces: dict[str, list[str]] = {}
    missing: list[int] = []
    for record in records:
        for rank, host, digest in record.get("ranks", ()):
            members.setdefault((host, digest), []).append(rank)
        if "document" in record:
            pieces.setdefault(record["digest"], []).extend(record["document"])
        missing += record.get("missing", ())
    documents = {digest: _unpacked("".join(parts)) for digest, parts in pieces.items()}
    named, ranks = {}, {}
    unread: list[int] = []
    for (host, digest), numbers in members.items():
        document = documents.get(digest)
        if document is None:
            unread += numbers
        else:
            name = f"{host} (rank{'s' if len(numbers) > 1 else ''} {_ranges(numbers)})"
            named[name], ranks[name] = document, len(numbers)
    problems = []
    if missing:
        problems.append(f"of {here.world} ranks these sent no facts in {seconds:g} s: {_ranges(missing)}")
    if unread:
        problems.append(f"the facts of the ranks {_ranges(unread)} are too many or too long to be compared")
    return Others(named, ranks, problems)


def _exchange(
    here: Launched, gathered: Gathered, sources: Sources, matrix: Matrix, seconds: float
) -> Sequence[Mapping[str, Any]]:
    from envdoctor.report.facts_json import document
    from envdoctor.sandbox.target import Task

    reduced = to_compare(document(gathered.facts, matrix.registry), matrix.registry, without=_OF_ONE_RANK)
    data = json.dumps(reduced, sort_keys=True).encode()
    job = {
        **here._asdict(),
        "seconds": seconds,
        "digest": hashlib.sha256(data).hexdigest(),
        "document": base64.b64encode(zlib.compress(data, 9)).decode(),
    }
    answer = asked_of_target(
        Task("ranks.py", job, needs=("torch",), seconds=seconds + _START_SECONDS), gathered, sources, "--all-ranks"
    )
    if answer.ending != "ok":
        why = answer.detail or answer.ending
        raise JobError(f"rank {here.rank} of {here.world} did not reach {here.address}:{here.port}: {why}")
    return answer.records


def asked_of_target(task: Task, gathered: Gathered, sources: Sources, option: str) -> Answer:
    """Run a task in the interpreter that is judged. Raises :class:`UsageProblem` where there is none."""
    import tempfile

    from envdoctor.observe.sources import DOCUMENTS
    from envdoctor.sandbox.target import Place, run_in_target

    python = gathered.facts.value("python.executable")
    if gathered.target.kind in ("path", "root", *DOCUMENTS) or not isinstance(python, str):
        raise UsageProblem(f"{option} asks the interpreter that is judged, and {gathered.target.path} names none")
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as scratch:
        place = Place(python, sources.environ, sources.folder(), os.path.realpath(scratch))
        (answer,) = run_in_target([task], place)
    return answer


def _unpacked(text: str) -> Mapping[str, Any] | None:
    """A document that a rank sent; None when it is none."""
    try:
        stream = zlib.decompressobj()
        document = json.loads(stream.decompress(base64.b64decode(text, validate=True), _LONGEST))
    except (ValueError, zlib.error, RecursionError):
        return None
    tables = isinstance(document, dict) and isinstance(document.get("facts"), dict)
    return document if tables and isinstance(document.get("complete"), list) else None


def _ranges(numbers: Iterable[int], most: int = 8) -> str:
    """``0-3, 6``"""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in rows]
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")
