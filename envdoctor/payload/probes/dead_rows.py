"""Do rows that may see no key at all stay harmless: the padding of a sample that is padded on the left?

Before torch 2.5 such rows come out as NaN, and 0 · NaN then enters dk and dv of the whole sample: finite outputs,
finite loss, NaN in the weights after one step. https://github.com/pytorch/pytorch/issues/103749,
https://github.com/pytorch/pytorch/issues/110213; zeros by definition since
https://github.com/pytorch/pytorch/pull/131060. On a B200 NaN in the outputs of exactly these rows was seen with 2.13:
https://github.com/unslothai/unsloth/pull/9848.

The upstream gradient of dead rows is 0, as a loss over the other tokens sends it. NaN in the output of dead rows alone
is a warning; NaN in a live row, dk or dv is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "dead-rows",
    "title": "rows that see no key",
    "settles": ["dead-rows"],
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

#: The last sample of left_dead is padding alone: a batch filled up with empty samples.
_MASKS = ("bool_left", "inf_left", "min_left", "bool_left_dead")


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation for each dtype and mask, for the judge ``attention``."""
    from ..probing.attention_case import DTYPES, observe, prepare
    from ..probing.backends import force, is_known
    from ..probing.sdpa import sdpa

    backend = job.get("backend") or "default"
    if not is_known(backend):
        emit({"case": "backend", "judge": "attention", "skip": f"this torch has no {backend} backend to ask for"})
        return
    size = {"B": 2, "H": 2, "Hk": 2, "L": 24, "S": 24, "D": 16, "layout": "bhsd", "dout": "plain", "stress": "unit"}
    for name in [job["dtype"]] if job.get("dtype") else ["bf16", "fp16"]:
        for number, mask in enumerate(_MASKS):
            prepared = prepare({**size, "mask": mask, "gqa": "", "number": number}, DTYPES[name])
            with force(backend):
                found = observe(prepared, DTYPES[name], job.get("device") or "cpu", sdpa)
            emit({"dtype": name, **found})
