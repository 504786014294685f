"""Does a NaN that enters attention come out again, in its own row and nowhere else?

torch 2.5.0 and 2.5.1 turn a NaN query into zeros on the CPU (default and flash, every dtype):
https://github.com/pytorch/pytorch/issues/141128. A watch on the loss is blind behind such a layer: training goes on
with numbers that look right. 2.4.1 and 2.13.0 hand the NaN on.

Two inputs for each dtype: a whole query row of NaN in a tiny sequence, and one NaN element in a longer one. The full
suite adds two with fewer than 16 keys: there the default and the flash kernel of 2.13.0 give zeros on some CPUs (not on
one that has AVX2 alone), in every dtype, however many queries there are (2.4.1 and the math kernel do not). Harmless in
training, but a test of a watch on a tiny model sees nothing: a warning, not a failure.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.backends import force, is_known
from ..probing.failure import failure
from ..probing.job import DTYPES, Emit, Job, wanted_dtypes
from ..probing.rounding import lost

PROBE = {
    "title": "NaN stays visible in attention",
    "attention": "sdpa",
    "suites": {
        "quick": [{"backend": "default"}],
        "full": [
            {"backend": "default", "short": True},
            {"backend": "math"},
            {"backend": "flash"},
            {"backend": "efficient", "devices": ["cuda"]},
            {"backend": "cudnn", "devices": ["cuda"]},
        ],
    },
}

#: case -> (shape of the queries, number of keys, row of the first head that is poisoned, what of it is NaN). A whole
#: row in a sequence as small as it gets with 16 keys; one element in a row of a head among others; rows with few keys.
_CASES = {
    "row": ((1, 1, 16, 8), 16, 3, slice(None)),
    "element": ((1, 2, 40, 64), 40, 7, 3),
    "row, 8 keys": ((1, 2, 8, 64), 8, 7, slice(None)),
    "row, 15 keys": ((1, 2, 40, 64), 15, 7, slice(None)),
}
_SHORT = 16


def run(job: Job, emit: Emit) -> None:
    """One observation for each dtype and case, for the judge ``honesty``."""
    backend = job["backend"] or "default"
    if not is_known(backend, emit):
        return
    wanted = wanted_dtypes(job, tuple(DTYPES))
    for dtype in wanted:
        for case in _CASES:
            # One dtype is enough for short ones: they come out alike in all.
            if _CASES[case][1] >= _SHORT or (job["options"].get("short") and dtype == wanted[0]):
                emit({"dtype": dtype, **_observe(case, DTYPES[dtype], job["device"], backend)})


def _observe(case: str, dtype: Any, device: str, backend: str) -> dict[str, Any]:
    shape, keys, row, poisoned = _CASES[case]
    shapes = (shape, (*shape[:2], keys, shape[3]), (*shape[:2], keys, shape[3]))
    seeds = (0, 1, 1 if case == "row" else 2)
    given = [
        torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype) for size, seed in zip(shapes, seeds)
    ]
    given[0][0, 0, row, poisoned] = float("nan")
    found: dict[str, Any] = {"case": case, "judge": "honesty", "soft": keys < _SHORT, "expected": shape[3]}
    found["params"] = {"poisoned": case, "D": shape[3], "L": shape[2], "S": keys}
    try:
        with torch.no_grad(), force(backend):
            out = torch.nn.functional.scaled_dot_product_attention(*[x.to(device) for x in given]).float().cpu()
        inside = out[0, 0, row]
        found.update(row_nan=int(torch.isnan(inside).sum()), elsewhere=lost(out) - lost(inside))
    except Exception as error:
        found.update(failure(error, device))
    return found
