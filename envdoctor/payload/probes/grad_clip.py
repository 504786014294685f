"""Does clipping keep the direction of large gradients, in the dtype that the recipe trains in?

A norm is computed in the gradients' dtype: in fp16 one above 65504 is inf although every gradient is finite, and
``clip_grad_norm_`` then writes 0 everywhere without a word: https://github.com/pytorch/pytorch/issues/46849. By design,
and so information unless the recipe trains fp16 weights; in bf16 and fp32 the clipped gradients must have the norm that
was asked for.
"""

from __future__ import annotations

import torch

from ..probing.job import DTYPES, Emit, Job, loaded_dtype

PROBE = {"title": "gradient clipping in half precision"}

#: 2048 x 2048 elements of standard deviation 44.7 have a norm of 91,500.
_SIZE, _DEVIATION = 2048, 44.7


def run(job: Job, emit: Emit) -> None:
    """One observation a dtype, for the judge ``change``: how far the norm after clipping is from 1."""
    values = torch.randn(_SIZE, _SIZE, generator=torch.Generator().manual_seed(2)) * _DEVIATION
    for name in ("bf16", "fp32", "fp16"):
        weight = torch.nn.Parameter(torch.zeros(_SIZE, _SIZE, dtype=DTYPES[name], device=job["device"]))
        weight.grad = values.to(DTYPES[name]).to(job["device"]).clone()  # clipping works in place
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
                **({"judge": "change"} if name != "fp16" or loaded_dtype(job) == "fp16" else {"kind": "info"}),
            }
        )
