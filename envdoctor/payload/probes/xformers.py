"""Does the installed xformers compute right attention outputs and gradients, with and without a bias?

Its wheels are built for one torch each, and a wrong pair either falls back or fails; the memory-efficient kernel is
also the origin of torch's, which gave NaN gradients with masks and with large values:
https://github.com/pytorch/pytorch/issues/119320, https://github.com/pytorch/pytorch/issues/178251.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "xformers",
    "title": "xformers, forward and backward",
    "settles": ["xformers"],
    "needs": ["torch", "xformers"],
    "suites": {
        "quick": [{"dtype": "bf16", "devices": ["cuda"]}],
        "full": [{"dtype": "bf16", "devices": ["cuda"]}, {"dtype": "fp16", "devices": ["cuda"]}],
    },
    "seconds": {"cpu": 90, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation a case, for the judge ``attention``."""
    from ..probing.attention_case import DTYPES, observe, prepare
    from ..probing.packages import XFORMERS, xformers

    if job.get("device") != "cuda":
        emit({"case": "device", "judge": "attention", "skip": "the kernels of xformers need a GPU"})
        return
    dtype = DTYPES[job.get("dtype") or "bf16"]
    for case in XFORMERS:
        emit(observe(prepare(case, dtype, int(job["options"].get("seed") or 0)), dtype, "cuda", xformers))
