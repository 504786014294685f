"""Is half-precision attention as accurate as half precision allows when all logits share a large offset?

The math backend of torch before 2.5 rounds the logits to the half dtype: invisible with normal inputs (2 times the
unavoidable error), 95 times with the offset that trained q and k biases bring. On the CPU the default of 2.4.1 does it
in fp16. https://github.com/pytorch/pytorch/pull/128922 (float32 intermediates since 2.5; a switch takes them back:
``allow_fp16_bf16_reduction_math_sdp``). Under fp16 autocast the same gave NaN:
https://github.com/pytorch/pytorch/issues/119131.

Forward only, four calls: cheap enough to run before every training.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.attention_case import prepare
from ..probing.backends import force
from ..probing.failure import failure
from ..probing.job import DTYPES, Emit, Job, wanted_dtypes
from ..probing.reference import measure

PROBE = {"title": "accuracy of half-precision attention", "attention": "sdpa"}

_SIZE = {"B": 2, "H": 2, "Hk": 2, "L": 96, "S": 96, "D": 64, "mask": "none", "layout": "bhsd", "dout": "plain"}


def run(job: Job, emit: Emit) -> None:
    """One observation for each of default and math × bf16 and fp16, for the judge ``attention``: the output only."""
    case = {**_SIZE, "stress": "shift-", "gqa": "", "number": 0}
    for name in wanted_dtypes(job, ("bf16", "fp16")):
        prepared = prepare(case, DTYPES[name])
        for backend in [job["backend"]] if job["backend"] else ["default", "math"]:
            found: dict[str, Any] = {"case": f"{backend} {name}", "params": case, "dtype": name, "backend": backend}
            found.update(judge="attention", gate=["o"], lse=prepared.expected.lse)
            try:
                with torch.no_grad(), force(backend):
                    given = [x.to(job["device"]) for x in prepared.inputs]
                    out = torch.nn.functional.scaled_dot_product_attention(*given)
                found.update(measure({"o": out}, prepared.expected, DTYPES[name]))
            except Exception as error:
                found.update(failure(error, job["device"]))
            emit(found)
