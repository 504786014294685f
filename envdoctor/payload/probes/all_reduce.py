"""Do numbers that processes add up and exchange come out as they must, and how fast?

NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001).
All-reduce in bf16 and float32, and what sharded training uses (reduce-scatter, all-gather), over two processes with
gloo on the CPU; with NCCL over the visible GPUs, at most eight, averages as well; with one visible GPU only the
average over one rank. Small integers are exact, so that the results of every rank must be equal.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.collective import has_backend, together
from ..probing.kit import Emit, Job, judged

PROBE = {
    "title": "sums and exchanges between processes",
    "suites": {"quick": [{"devices": ["cpu"]}], "full": [{}], "card": [{"bandwidth": True, "devices": ["cuda"]}]},
    "seconds": {"cpu": 90, "cuda": 240},
    "memory_mib": 2000,
    # Eight processes, each with torch, a context and the buffers of NCCL.
    "cuda_memory_mib": 16000,
}

#: Elements of what is summed. NCCL sends small messages, middle ones and those of 32 MiB in different ways; gloo has a
#: path of its own from 262,144 elements on.
_SIZES = {"cpu": (1, 7, 8, 513, 1000, 4097, 300_001, 1 << 21), "cuda": (1, 7, 8, 1000, 4097, 300_001, 1 << 24)}
#: Bytes of the messages that are timed, and how much more than one of them a process needs: integers of 64 bits to say
#: what must come out, and their comparisons.
_TIMED, _ROOM = tuple(1 << power for power in range(10, 29, 2)), 40


def run(job: Job, emit: Emit) -> None:
    """Emit an observation for each sum and exchange that was tried, for the judge ``exact``, and the speeds of all."""
    cuda = job["device"] == "cuda"
    backend = "nccl" if cuda else "gloo"
    world = min(8, torch.cuda.device_count()) if cuda else 2
    case = judged("exact", "wrong-sum", ["o"], dtype="bf16", backend=backend, limit=0.0)
    if not has_backend(backend):
        emit({**case, "case": "all-reduce", "skip": f"this torch has no {backend}"})
        return
    free = min((torch.cuda.mem_get_info(number)[0] for number in range(world)), default=0) if cuda else 1 << 34
    wanted = _TIMED if job["options"].get("bandwidth") and world > 1 else ()
    timed = [size for size in wanted if size * _ROOM <= free]
    given = {"world": world, "backend": backend, "sizes": _SIZES[job["device"]], "averages": cuda, "exchanges": True}
    results = together({**given, "timed": timed})
    for rank, result in enumerate(results):
        if "error" in result:
            emit({**case, **unfinished(f"rank {rank}", f"a process of {world} {result['error']}")})
            return
    # What one rank got wrong is wrong, whatever the others say.
    worst: dict[str, int] = {}
    for result in results:
        for title, wrong in result["sums"]:
            worst[title] = max(worst.get(title, 0), wrong)
    for title, wrong in worst.items():
        words = f"{title} over {world} process{'es' if world > 1 else ''}"
        found = {"difference": float(wrong), "detail": f"{wrong} elements are wrong"}
        emit({**case, "case": words, "params": {"world_size": world, "what": title}, **found})
    if timed:
        # All wait for the slowest.
        speeds = {title: min(result["speeds"][title] for result in results) for title in results[0]["speeds"]}
        emit({"kind": "info", "case": "bus bandwidth in GB/s", "world_size": world, "measured": speeds})
    if len(timed) < len(wanted):
        text = f"messages of more than {max(timed, default=0) >> 10} KiB were not tried: too little memory is free"
        emit({"case": "large messages", "error": text, "partial": True})


def unfinished(case: str, text: str) -> dict[str, Any]:
    """Why there is no result; slices of one card (MIG), which NCCL refuses, and bf16, which gloo does not add before
    torch 2.2, are nothing that is broken."""
    refused = any(part in text for part in ("Duplicate GPU", "Invalid scalar type"))
    return {"case": case, "skip" if refused else "error": text[:500]}
