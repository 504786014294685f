"""Hand the facts of every rank of a job to rank 0, through the store of torch.distributed.

Every rank runs this. The first one that comes with a document sends it, the others with the same one its digest alone:
rank 0 receives at most ``MOST_DOCUMENTS`` of ``LONGEST_DOCUMENT`` bytes, and some 100 bytes a rank. The store is where
processes meet before a group of gloo is made, and no group is made: in one, every rank connects to every other one.
"""

from __future__ import annotations

import datetime
import socket
import time
from collections.abc import Callable
from typing import Any

#: Different documents of a job, and bytes of one, in base64.
MOST_DOCUMENTS = 256
LONGEST_DOCUMENT = 64 << 10
LONGEST_HOST = 64
#: Ranks in one record, and characters in one text: what a line may hold.
_RANKS_AT_ONCE = 300
_PIECE = 2000
_PIECES_AT_ONCE = 24


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Send; on rank 0 also wait for the others and hand over what came."""
    from torch.distributed import PrefixStore, TCPStore

    ends = time.monotonic() + job["seconds"]
    served = TCPStore(
        job["address"],
        job["port"],
        None,
        job["rank"] == 0 and not job["served"],
        timeout=datetime.timedelta(seconds=job["seconds"]),
        wait_for_workers=False,
    )
    store = PrefixStore("envdoctor/" + job["attempt"], served)
    _send(store, job)
    if job["rank"] == 0:
        _collect(store, job["world"], ends, emit)


def _send(store: Any, job: dict[str, Any]) -> None:
    digest, document = job["digest"], job["document"]
    if len(document) > LONGEST_DOCUMENT:
        digest = "too long"
    elif store.add("sent/" + digest, 1) == 1:
        if store.add("documents", 1) <= MOST_DOCUMENTS:
            store.set("document/" + digest, document)
        else:
            store.set("document/" + digest, "")
    # The last word: where rank 0 serves the store, it may end as soon as it has it.
    store.set("rank/" + str(job["rank"]), socket.gethostname()[:LONGEST_HOST] + "\0" + digest)


def _collect(store: Any, world: int, ends: float, emit: Callable[[dict[str, Any]], None]) -> None:
    came: list[list[Any]] = []
    missing = []
    for rank in range(world):
        said = _waited(store, "rank/" + str(rank), ends)
        if said is None:
            missing.append(rank)
        else:
            came.append([rank, *said.split("\0")[:2]])
    digests = sorted({digest for _, _, digest in came} - {"too long"})
    hand_over(came, {digest: _waited(store, "document/" + digest, ends) or "" for digest in digests}, missing, emit)


def hand_over(
    came: list[list[Any]], documents: dict[str, str], missing: list[Any], emit: Callable[[dict[str, Any]], None]
) -> None:
    """Emit ``{"ranks": [[rank, host, digest], ...]}``, ``{"digest": ..., "document": [pieces]}`` and ``{"missing":
    [ranks]}``, as many of each as it takes."""
    for start in range(0, len(came), _RANKS_AT_ONCE):
        emit({"ranks": came[start : start + _RANKS_AT_ONCE]})
    for digest, text in documents.items():
        pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        for start in range(0, len(pieces), _PIECES_AT_ONCE):
            emit({"digest": digest, "document": pieces[start : start + _PIECES_AT_ONCE]})
    for start in range(0, len(missing), _RANKS_AT_ONCE):
        emit({"missing": missing[start : start + _RANKS_AT_ONCE]})


def _waited(store: Any, key: str, ends: float) -> str | None:
    """The text under the key as soon as it is there; None when the time is over before."""
    left = ends - time.monotonic()
    try:
        if left > 0.01:  # the store counts milliseconds, and 0 of them are no limit to it
            store.wait([key], datetime.timedelta(seconds=left))
        return str(store.get(key).decode("utf-8", "replace")) if store.check([key]) else None
    except RuntimeError:
        return None
