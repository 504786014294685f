"""Does a bf16 all-reduce give the sum and the average of what the processes gave?

NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001). Sums over two
processes with gloo on the CPU, sums and averages with NCCL over the visible GPUs, at most eight; with one visible GPU
only the average over one rank. Small integers are exact in bf16, so that the results of every rank must be equal.
"""

from __future__ import annotations

import os
import tempfile

import torch

from ..probing.collective import finish, start
from ..probing.kit import Emit, Job, judged

PROBE = {
    "title": "bf16 all-reduce between processes",
    "suites": {"full": [{}]},
    "seconds": {"cpu": 90, "cuda": 180},
    "memory_mib": 3000,
}

_SIZES = (1, 7, 8, 1000, 4097)
#: Each process must give up before the probe's own time is over.
_SECONDS = 60


def run(job: Job, emit: Emit) -> None:
    """One observation a size and operation, for the judge ``exact``."""
    cuda = job["device"] == "cuda"
    backend = "nccl" if cuda else "gloo"
    world = min(8, torch.cuda.device_count()) if cuda else 2
    case = judged("exact", "wrong-sum", ["o"], dtype="bf16", backend=backend, limit=0.0)
    available = getattr(torch.distributed, "is_" + backend + "_available", lambda: True)
    if not torch.distributed.is_available() or not available():
        emit({**case, "case": "all-reduce", "skip": f"this torch has no {backend}"})
        return
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        given = {"world": world, "backend": backend, "file": os.path.join(folder, "meeting-point"), "seconds": _SECONDS}
        given.update(sizes=_SIZES, averages=cuda)
        children = [start({**given, "rank": rank}) for rank in range(world)]
        results = [finish(child, _SECONDS) for child in children]
    for rank, result in enumerate(results):
        if "error" in result:
            emit({**case, "case": f"rank {rank}", "error": f"a process of {world} {result['error']}"[:500]})
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
