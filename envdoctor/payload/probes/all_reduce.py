"""Does a bf16 all-reduce give the sum and the average of what the processes gave?

NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001). Sums over two
processes with gloo on the CPU, sums and averages with NCCL over the visible GPUs, at most eight; with one visible GPU
only the average over one rank. Small integers are exact in bf16, so that the results of every rank must be equal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

import torch

from ..probing.job import Emit, Job

PROBE = {
    "title": "bf16 all-reduce between processes",
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
    for name in (["sum"] if world > 1 else []) + (["average"] if backend == "nccl" else []):
        value = (torch.arange(size, device=device) % 8 + rank * 2).to(torch.bfloat16)
        dist.all_reduce(value, op=dist.ReduceOp.SUM if name == "sum" else dist.ReduceOp.AVG)
        terms = torch.arange(size, device=device) % 8 * world + world * (world - 1)
        expected = (terms if name == "sum" else terms // world).to(torch.bfloat16)
        print(name, size, int((value != expected).sum()), flush=True)
dist.destroy_process_group()
"""


def run(job: Job, emit: Emit) -> None:
    """One observation a size and operation, for the judge ``exact``."""
    cuda = job["device"] == "cuda"
    backend = "nccl" if cuda else "gloo"
    world = min(8, torch.cuda.device_count()) if cuda else 2
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
    # What one rank got wrong is wrong, whatever the others say.
    worst: dict[tuple[str, int], int] = {}
    for said, _, _ in results:
        for line in said.splitlines():
            name, size, count = line.split()
            worst[name, int(size)] = max(worst.get((name, int(size)), 0), int(count))
    for (name, elements), wrong in worst.items():
        emit(
            {
                **case,
                "case": f"{name} of {elements} elements over {world} process{'es' if world > 1 else ''}",
                "params": {"elements": elements, "world_size": world, "operation": name},
                "difference": float(wrong),
                "detail": f"{wrong} elements are wrong",
            }
        )
