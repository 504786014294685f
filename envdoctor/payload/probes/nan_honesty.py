"""Does a NaN that enters attention come out again, in its own row and nowhere else?

torch 2.5.0 and 2.5.1 turn a NaN query into zeros on the CPU (default and flash, every dtype):
https://github.com/pytorch/pytorch/issues/141128. A watch on the loss is blind behind such a layer: training goes on
with numbers that look right. 2.4.1 and 2.13.0 hand the NaN on.

Two inputs for each dtype: a whole query row of NaN in a tiny sequence, and one NaN element in a longer one. The full
suite adds two with fewer than 16 keys: there the default and the flash kernel of 2.13.0 on the CPU give zeros, in every
dtype, however many queries there are (2.4.1 and the math kernel do not). Harmless in training, but a test of a watch on
a tiny model sees nothing: a warning, not a failure.
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
            {"backend": "default", "options": {"short": True}},
            {"backend": "math"},
            {"backend": "flash"},
            {"backend": "efficient", "devices": ["cuda"]},
            {"backend": "cudnn", "devices": ["cuda"]},
        ],
    },
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


#: case -> (shape of the queries, number of keys, what is NaN of row ``_ROW`` of the first head). A whole row in a
#: sequence as small as it gets with 16 keys; one element in a row of a head among others; rows with a handful of keys.
_CASES = {
    "row": ((1, 1, 16, 8), 16, slice(None)),
    "element": ((1, 2, 40, 64), 40, 3),
    "row, 8 keys": ((1, 2, 8, 64), 8, slice(None)),
    "row, 15 keys": ((1, 2, 40, 64), 15, slice(None)),
}
_SHORT = 16
_ROW = {"row": 3}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation for each dtype and case, for the judge ``honesty``."""
    from ..probing.attention_case import DTYPES
    from ..probing.backends import is_known

    backend = job.get("backend") or "default"
    if not is_known(backend):
        emit({"case": "backend", "judge": "honesty", "skip": f"this torch has no {backend} backend to ask for"})
        return
    wanted = [job["dtype"]] if job.get("dtype") else list(DTYPES)
    for dtype in wanted:
        for case in _CASES:
            # One dtype is enough for short ones: they come out alike in all.
            if _CASES[case][1] >= _SHORT or (job["options"].get("short") and dtype == wanted[0]):
                emit({"dtype": dtype, **_observe(case, DTYPES[dtype], job.get("device") or "cpu", backend)})


def _observe(case: str, dtype: Any, device: str, backend: str) -> dict[str, Any]:
    import torch

    from ..probing.backends import failure, force

    shape, keys, poisoned = _CASES[case]
    row = _ROW.get(case, 7)
    shapes = (shape, (*shape[:2], keys, shape[3]), (*shape[:2], keys, shape[3]))
    seeds = (0, 1, 1 if case == "row" else 2)
    q, k, v = (
        torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype) for size, seed in zip(shapes, seeds)
    )
    q[0, 0, row, poisoned] = float("nan")
    found: dict[str, Any] = {
        "case": case,
        "params": {"poisoned": case, "D": shape[3], "L": shape[2], "S": keys},
        "judge": "honesty",
        "soft": keys < _SHORT,
    }
    try:
        with torch.no_grad(), force(backend):
            given = [x.to(device) for x in (q, k, v)]
            out = torch.nn.functional.scaled_dot_product_attention(*given).float().cpu()
    except Exception as error:
        return {**found, **failure(error, device)}
    inside = int(torch.isnan(out[0, 0, row]).sum())
    lost = int((~torch.isfinite(out)).sum()) - int((~torch.isfinite(out[0, 0, row])).sum())
    return {**found, "row_nan": inside, "expected": shape[3], "elsewhere": lost}
