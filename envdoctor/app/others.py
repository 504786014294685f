"""What processes and nodes of a job hand each other: facts reduced to what is compared, packed, and read again."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.app.errors import UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts
from envdoctor.knowledge.matrix import Matrix, load_matrix
from envdoctor.observe.documents.drift import to_compare

if TYPE_CHECKING:
    from envdoctor.sandbox.target import Answer, Task

__all__ = ["START_SECONDS", "Came", "Others", "ask_target", "own_facts", "packed", "print_own", "read"]

#: What an import of torch may take beside the wait for others.
START_SECONDS = 120.0
#: Bytes of one document when it is unpacked.
_LONGEST = 4 << 20
#: They name a device of one process on purpose.
_OF_ONE_RANK = ("env.CUDA_VISIBLE_DEVICES", "env.NVIDIA_VISIBLE_DEVICES")


class Others(NamedTuple):
    """Facts files by the names of their machines, how many ranks each speaks for (empty: machines are counted), and
    sentences about what did not come."""

    documents: Mapping[str, Mapping[str, Any]]
    ranks: Mapping[str, int]
    problems: Sequence[str]


class Came(NamedTuple):
    """What the child handed over: numbers by host and digest, documents by digest, who did not come."""

    members: Mapping[tuple[str, str], list[int]]
    documents: Mapping[str, Mapping[str, Any] | None]
    missing: Sequence[Any]


def own_facts(gathered: Gathered, matrix: Matrix) -> dict[str, str]:
    """What is compared of the facts, packed, and its digest."""
    from envdoctor.report.facts_json import document

    return packed(to_compare(document(gathered.facts, matrix.registry), matrix.registry, without=_OF_ONE_RANK))


def packed(document: Mapping[str, Any]) -> dict[str, str]:
    """A document as it is sent, and the digest by which others tell that they have the same."""
    data = json.dumps(document, sort_keys=True).encode()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    return {"digest": hashlib.sha256(data).hexdigest(), "document": text}


def print_own(given: str) -> None:
    """Print this machine's facts and their digest: what a node of Ray is asked for. ``given`` are fields of
    :class:`Sources` as JSON."""
    matrix = load_matrix()
    print(json.dumps(own_facts(collect_facts(Sources(**json.loads(given)), matrix), matrix)))


def read(records: Iterable[Mapping[str, Any]]) -> Came:
    members: dict[tuple[str, str], list[int]] = {}
    pieces: dict[str, list[str]] = {}
    missing: list[Any] = []
    for record in records:
        for rank, host, digest in record.get("ranks", ()):
            members.setdefault((host, digest), []).append(rank)
        if "document" in record:
            pieces.setdefault(record["digest"], []).extend(record["document"])
        missing += record.get("missing", ())
    return Came(members, {digest: _unpacked("".join(parts)) for digest, parts in pieces.items()}, missing)


def ask_target(task: Task, gathered: Gathered, sources: Sources, option: str) -> Answer:
    """Run a task in the interpreter that is judged. Raises :class:`UsageProblem` where there is none."""
    from envdoctor.sandbox.target import Place, run_in_target, scratch_folder

    python = gathered.interpreter
    if python is None:
        raise UsageProblem(f"{option} asks the interpreter that is judged, and {gathered.target.path} names none")
    with scratch_folder("envdoctor-") as scratch:
        (answer,) = run_in_target([task], Place(python, sources.environ, sources.folder(), scratch))
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
