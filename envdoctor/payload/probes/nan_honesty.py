"""Does a NaN that enters attention come out again, in its own row and nowhere else?

torch 2.5.0 and 2.5.1 turn a NaN query into zeros on the CPU (default and flash, every dtype):
https://github.com/pytorch/pytorch/issues/141128. A watch on the loss is blind behind such a layer: training goes on
with numbers that look right. 2.4.1 and 2.13.0 hand the NaN on.

Two inputs for each dtype: a whole query row of NaN in a tiny sequence, and one NaN element in a longer one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "nan-honesty",
    "title": "NaN stays visible in attention",
    "settles": ["nan-honesty"],
    "needs": ["torch"],
    "suites": {
        "quick": [{"backend": "default"}],
        "full": [
            {"backend": "default"},
            {"backend": "math"},
            {"backend": "flash"},
            {"backend": "efficient", "devices": ["cuda"]},
            {"backend": "cudnn", "devices": ["cuda"]},
        ],
    },
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Two observations for each dtype, for the judge ``honesty``."""
    from ..probing.attention_case import DTYPES
    from ..probing.backends import is_known

    backend = job.get("backend") or "default"
    if not is_known(backend):
        emit({"case": "backend", "judge": "honesty", "skip": f"this torch has no {backend} backend to ask for"})
        return
    wanted = [job["dtype"]] if job.get("dtype") else list(DTYPES)
    for dtype in wanted:
        for case in ("row", "element"):
            emit({"dtype": dtype, **_observe(case, DTYPES[dtype], job.get("device") or "cpu", backend)})


def _observe(case: str, dtype: Any, device: str, backend: str) -> dict[str, Any]:
    import torch

    from ..probing.backends import failure, force

    # A whole row (1, 1, 16, 8), as small as it gets; one element of (1, 2, 40, 64), in a row of a head among others.
    shape, head, row = ((1, 1, 16, 8), 0, 3) if case == "row" else ((1, 2, 40, 64), 0, 7)
    q, k = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1))
    v = k if case == "row" else torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    q[0, head, row, slice(None) if case == "row" else 3] = float("nan")
    found: dict[str, Any] = {
        "case": case,
        "params": {"poisoned": case, "D": shape[3], "L": shape[2]},
        "judge": "honesty",
    }
    try:
        with torch.no_grad(), force(backend):
            given = [x.to(device) for x in (q, k, v)]
            out = torch.nn.functional.scaled_dot_product_attention(*given).float().cpu()
    except Exception as error:
        return {**found, **failure(error, device)}
    inside = int(torch.isnan(out[0, head, row]).sum())
    lost = int((~torch.isfinite(out)).sum()) - int((~torch.isfinite(out[0, head, row])).sum())
    return {**found, "row_nan": inside, "expected": shape[3], "elsewhere": lost}
