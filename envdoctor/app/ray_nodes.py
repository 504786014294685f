"""The facts of every node of a Ray cluster, gathered by a child of the judged Python."""

from __future__ import annotations

import json
from collections.abc import Callable

from envdoctor.app.errors import JobError
from envdoctor.app.facts import Gathered, Sources
from envdoctor.app.others import START_SECONDS, Others, ask_target, read
from envdoctor.sandbox.target import Task

__all__ = ["ray_nodes"]


def ray_nodes(sources: Sources, seconds: float) -> Callable[[Gathered], Others]:
    """What brings the facts of every node of the Ray cluster that the judged Python finds, one task a node."""
    return lambda gathered: _gather_nodes(gathered, sources, seconds)


def _gather_nodes(gathered: Gathered, sources: Sources, seconds: float) -> Others:
    given = {"model": sources.model, "assignments": [*sources.configured, *sources.assignments], "gpu": sources.gpu}
    job = {
        "seconds": seconds,
        "sources": json.dumps(given),
        "temporary": sources.environ.get("RAY_TMPDIR") or sources.environ.get("TMPDIR") or "/tmp",  # noqa: S108 (Ray's)
    }
    task = Task("ray_nodes.py", job, needs=("ray",), seconds=seconds + START_SECONDS, memory_mib=4000)
    answer = ask_target(task, gathered, sources, "--ray")
    refused = [str(record[key]) for record in answer.records for key in ("skip", "error") if key in record]
    if answer.ending != "ok" or refused:
        raise JobError(f"--ray: no cluster was asked: {'; '.join(refused) or answer.detail or answer.ending}")
    came = read(answer.records)
    nodes = {host: came.documents.get(digest) for host, digest in came.members}
    problems = [
        f"{node}: {text}" for node, text in (record["failed"] for record in answer.records if "failed" in record)
    ]
    late = [*came.missing, *(host for host, document in nodes.items() if document is None)]
    if late:
        problems.append(f"these nodes sent no facts in {seconds:g} s, or too many: {', '.join(late[:8])}")
    return Others({host: document for host, document in nodes.items() if document is not None}, {}, problems)
