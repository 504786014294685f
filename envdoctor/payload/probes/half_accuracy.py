"""Is half-precision attention as accurate as half precision allows when all logits share a large offset?

The math backend of torch before 2.5 rounds the logits to the half dtype: invisible with normal inputs (2 times the
unavoidable error), 95 times with the offset that trained q and k biases bring. On the CPU the default of 2.4.1 does it
in fp16. https://github.com/pytorch/pytorch/pull/128922 (float32 intermediates since 2.5; a switch takes them back:
``allow_fp16_bf16_reduction_math_sdp``). Under fp16 autocast the same gave NaN:
https://github.com/pytorch/pytorch/issues/119131.

Forward only, four calls: cheap enough to run before every training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "half-accuracy",
    "title": "accuracy of half-precision attention",
    "settles": ["half-accuracy"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation for each of default and math × bf16 and fp16, for the judge ``attention``: the output only."""
    import torch

    from ..probing.attention_case import DTYPES, prepare
    from ..probing.backends import failure, force
    from ..probing.reference import measure

    device = job.get("device") or "cpu"
    size = {"B": 2, "H": 2, "Hk": 2, "L": 96, "S": 96, "D": 64, "mask": "none", "layout": "bhsd", "dout": "plain"}
    case = {**size, "stress": "shift-", "gqa": "", "number": 0}
    for name in [job["dtype"]] if job.get("dtype") else ["bf16", "fp16"]:
        prepared = prepare(case, DTYPES[name])
        for backend in [job["backend"]] if job.get("backend") else ["default", "math"]:
            found: dict[str, Any] = {"case": f"{backend} {name}", "params": case, "dtype": name, "backend": backend}
            found.update(judge="attention", gate=["o"], lse=prepared.expected.lse)
            try:
                with torch.no_grad(), force(backend):
                    given = [x.to(device) for x in prepared.inputs]
                    out = torch.nn.functional.scaled_dot_product_attention(*given)
                found.update(measure({"o": out}, prepared.expected, DTYPES[name]))
            except Exception as error:
                found.update(failure(error, device))
            emit(found)
