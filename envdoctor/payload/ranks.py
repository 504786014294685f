"""Hand the facts, or the results, of every rank of a job to rank 0, through the store of torch.distributed.

Every rank runs this. The first one that comes with a document sends it, the others with the same one its digest alone:
rank 0 receives at most ``MOST_DOCUMENTS`` of ``LONGEST_DOCUMENT`` bytes, and some 100 bytes a rank. The store is where
processes meet before a group of gloo is made, and no group is made: in one, every rank connects to every other one.
"""

from __future__ import annotations

import datetime
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: Different documents of a job, and bytes of one, in base64.
MOST_DOCUMENTS = 256
LONGEST_DOCUMENT = 64 << 10
LONGEST_HOST = 64
#: Characters of what else a rank says of itself.
LONGEST_MORE = 1000
#: Ranks in one record, and characters in one text: what a line may hold.
_RANKS_AT_ONCE = 300
_PIECE = 2000
_PIECES_AT_ONCE = 24


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Send; on rank 0 also wait for the others and hand over what came."""
    ends = time.monotonic() + job["seconds"]
    store = meet(job)
    send(store, job)
    if job["rank"] == 0:
        came, missing = collect(store, job["world"], ends)
        hand_over(came, documents(store, came, ends), missing, emit)


def meet(job: dict[str, Any]) -> Any:
    """Return the store of this job's processes; rank 0 serves it unless torchrun does."""
    from torch.distributed import PrefixStore, TCPStore

    serves = job["rank"] == 0 and not job["served"]
    if serves:
        _allow_many_files()
    limit = datetime.timedelta(seconds=job["seconds"])
    served = TCPStore(job["address"], job["port"], None, serves, timeout=limit, wait_for_workers=False)
    return PrefixStore("envdoctor/" + job["attempt"], served)


def _allow_many_files() -> None:
    """Raise the limit of open files, usually 1,024, as far as this user may: every rank is a connection."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def send(store: Any, job: dict[str, Any], more: str = "") -> None:
    """Say that this rank is here, with its document; ``more`` is some text that rank 0 gets with its name."""
    digest, document = job["digest"], job["document"]
    if len(document) > LONGEST_DOCUMENT:
        digest = "too long"
    elif store.add("sent/" + digest, 1) == 1:
        if store.add("documents", 1) <= MOST_DOCUMENTS:
            store.set("document/" + digest, document)
        else:
            store.set("document/" + digest, "")
    # The last word: where rank 0 serves the store, it may end as soon as it has it.
    words = (socket.gethostname()[:LONGEST_HOST], digest, more[:LONGEST_MORE])
    store.set("rank/" + str(job["rank"]), "\0".join(words))


def collect(store: Any, world: int, ends: float) -> tuple[list[list[Any]], list[int]]:
    """Return ``[rank, host, digest, more]`` of those that came before the end, and the ranks that did not."""
    came: list[list[Any]] = []
    missing = []
    for rank in range(world):
        text = waited(store, "rank/" + str(rank), ends)
        if text is None:
            missing.append(rank)
        else:
            came.append([rank, *text.split("\0")[:3]])
    return came, missing


def documents(store: Any, came: list[list[Any]], ends: float) -> dict[str, str]:
    """Return the documents of those that came, by digest; empty where there is none."""
    digests = sorted({entry[2] for entry in came} - {"too long"})
    return {digest: waited(store, "document/" + digest, ends) or "" for digest in digests}


def hand_over(
    came: list[list[Any]], documents: dict[str, str], missing: list[Any], emit: Callable[[dict[str, Any]], None]
) -> None:
    """Emit ``{"ranks": [[rank, host, digest], ...]}``, ``{"digest": ..., "document": [pieces]}`` and ``{"missing":
    [ranks]}``, as many of each as it takes."""
    for start in range(0, len(came), _RANKS_AT_ONCE):
        emit({"ranks": [entry[:3] for entry in came[start : start + _RANKS_AT_ONCE]]})
    for digest, text in documents.items():
        pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        for start in range(0, len(pieces), _PIECES_AT_ONCE):
            emit({"digest": digest, "document": pieces[start : start + _PIECES_AT_ONCE]})
    for start in range(0, len(missing), _RANKS_AT_ONCE):
        emit({"missing": missing[start : start + _RANKS_AT_ONCE]})


def waited(store: Any, key: str, ends: float) -> str | None:
    """Return the text under the key as soon as it is there; None when the time is over before."""
    left = ends - time.monotonic()
    try:
        if left > 0.01:  # the store counts milliseconds, and 0 of them are no limit to it
            store.wait([key], datetime.timedelta(seconds=left))
        return str(store.get(key).decode("utf-8", "replace")) if store.check([key]) else None
    except RuntimeError:
        return None
