"""What torch is and how it is set up here: device, cost of a CUDA context, cuDNN, allocator, SDPA switches and order.

The record that every other result is read against. One release of torch takes another attention kernel when the wheel
of cuDNN beside it changes (https://github.com/pytorch/pytorch/pull/162073,
https://github.com/pytorch/pytorch/pull/171627), when ``TORCH_CUDNN_SDPA_DEPRIORITIZED`` is set, and by GPU: so what
torch reports at run time is recorded, and nothing is inferred. Expandable segments are tried, because that a setting is
accepted does not mean that it works (https://github.com/pytorch/pytorch/issues/187343).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "context",
    "title": "torch, device and settings",
    "settles": [],
    "needs": ["torch"],
    "cap": False,
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Emit one observation of the kind ``environment``."""
    import torch

    emit({"kind": "environment", "case": "build", "torch": torch.__version__})
