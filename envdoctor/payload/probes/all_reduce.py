"""Does a bf16 all-reduce over several processes add what each of them gave?

NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001). Two processes
with gloo on the CPU; one process for each of up to two GPUs with NCCL. Sums of small integers are exact in bf16, so the
results must be equal.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "all-reduce",
    "title": "bf16 all-reduce over two processes",
    "settles": ["all-reduce"],
    "needs": ["torch"],
    "suites": {"full": [{}]},
    "seconds": {"cpu": 90, "cuda": 180},
    "memory_mib": 3000,
}

_SIZES = (1, 7, 8, 1000, 4097)
#: Each process must give up before the probe's own time is over.
_SECONDS = 60

_SCRIPT = """
import datetime, sys, torch, torch.distributed as dist
rank, world, backend, path, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5])
device = "cuda:%d" % (rank % max(1, torch.cuda.device_count())) if backend == "nccl" else "cpu"
if backend == "nccl":
    torch.cuda.set_device(device)
dist.init_process_group(backend, init_method="file://" + path, rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=seconds))
for size in map(int, sys.argv[6].split(",")):
    value = (torch.arange(size, device=device) % 64 + rank).to(torch.bfloat16)
    dist.all_reduce(value)
    expected = (torch.arange(size, device=device) % 64 * world + world * (world - 1) // 2).to(torch.bfloat16)
    print(size, int((value != expected).sum()), flush=True)
dist.destroy_process_group()
"""


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation a size, for the judge ``exact``."""
    import subprocess

    import torch

    cuda = job["device"] == "cuda"
    backend = "nccl" if cuda else "gloo"
    world = min(2, torch.cuda.device_count()) if cuda else 2
    case: dict[str, Any] = {
        "judge": "exact",
        "dtype": "bf16",
        "backend": backend,
        "signature": "wrong-sum",
        "tensors": ["o"],
        "limit": 0.0,
    }
    available = getattr(torch.distributed, "is_" + backend + "_available", lambda: True)
    if not torch.distributed.is_available() or not available():
        emit({**case, "case": "all-reduce", "skip": f"this torch has no {backend}"})
        return
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        path = os.path.join(folder, "meeting-point")
        command = [sys.executable, "-c", _SCRIPT]
        rest = [str(world), backend, path, str(_SECONDS), ",".join(map(str, _SIZES))]
        children = [
            subprocess.Popen([*command, str(rank), *rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(world)
        ]
        results = []
        for child in children:
            try:
                results.append((*child.communicate(timeout=_SECONDS), child.returncode))
            except subprocess.TimeoutExpired:
                child.kill()
                results.append((*child.communicate(), None))
    for rank, (_, trouble, code) in enumerate(results):
        if code != 0:
            last = trouble.strip().splitlines()[-1] if trouble.strip() else ""
            reason = "did not finish" if code is None else f"ended with {code}"
            emit({**case, "case": f"rank {rank}", "error": f"a process of {world} {reason}: {last}"[:500]})
            return
    for line in results[0][0].splitlines():
        size, wrong = line.split()
        emit(
            {
                **case,
                "case": f"{size} elements over {world} processes",
                "params": {"elements": int(size), "world_size": world},
                "difference": float(wrong),
                "detail": f"{wrong} elements are wrong",
            }
        )
