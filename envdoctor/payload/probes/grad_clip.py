"""Does clipping keep the direction of large gradients, in the dtype that the recipe trains in?

A norm is computed in the gradients' dtype: in fp16 one above 65504 is inf although every gradient is finite, and
``clip_grad_norm_`` then writes 0 everywhere without a word: https://github.com/pytorch/pytorch/issues/46849. By design,
and so information unless the recipe trains fp16 weights; in bf16 and fp32 the clipped gradients must have the norm that
was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "grad-clip",
    "title": "gradient clipping in half precision",
    "settles": ["grad-clip"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}

#: 2048 x 2048 elements of standard deviation 44.7 have a norm of 91,500.
_SIZE, _DEVIATION = 2048, 44.7


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation a dtype, for the judge ``change``: how far the norm after clipping is from 1."""
    import torch

    device = job["device"]
    fp16 = str(job["recipe"].get("load_dtype")).lower() in ("fp16", "float16", "half")
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(_SIZE, _SIZE, generator=generator) * _DEVIATION
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32), ("fp16", torch.float16)):
        weight = torch.nn.Parameter(torch.zeros(_SIZE, _SIZE, dtype=dtype, device=device))
        weight.grad = values.to(dtype).to(device).clone()  # clipping works in place
        true = float(weight.grad.double().norm())
        norm = float(torch.nn.utils.clip_grad_norm_([weight], 1.0))
        after = float(weight.grad.double().norm())
        emit(
            {
                "case": f"a norm of {true:.0f} clipped to 1",
                "dtype": name,
                "backend": "default",
                "signature": "norm-overflows",
                "tensors": ["gradients"],
                "params": {"norm": round(true)},
                "relative": abs(after - 1.0),
                "limit": 0.05,
                "detail": f"norm {norm:g}, afterwards {after:g}",
                **({"judge": "change"} if name != "fp16" or fp16 else {"kind": "info"}),
            }
        )
