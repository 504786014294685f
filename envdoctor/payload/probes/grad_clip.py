"""Does clipping keep the direction of large gradients, in the dtype that the recipe trains in?

A norm is computed in the gradients' dtype: in fp16 one above 65504 is inf although every gradient is finite, and
``clip_grad_norm_`` then writes 0 everywhere without a word: https://github.com/pytorch/pytorch/issues/46849. By design,
and so information unless the recipe trains fp16 weights; in bf16 and fp32 the clipped gradients must have the norm that
was asked for. And all of them are clipped: a model's matrices, norms and biases by the same factor, one by one and many
at once (``foreach``), against float64: https://github.com/pytorch/pytorch/issues/140066.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.job import DTYPES, Emit, Job, judged, loaded_dtype
from ..probing.rounding import relative

PROBE = {"title": "gradient clipping in half precision"}

#: 2048 x 2048 elements of standard deviation 44.7 have a norm of 91,500.
_SIZE, _DEVIATION = 2048, 44.7
#: Like those of a model: an embedding, a matrix and its bias, a norm, one number.
_SHAPES = ((97, 33), (33, 65), (65,), (33,), (1,))


def run(job: Job, emit: Emit) -> None:
    """One observation a dtype, for the judge ``change``: how far the norm after clipping is from 1."""
    values = torch.randn(_SIZE, _SIZE, generator=torch.Generator().manual_seed(2)) * _DEVIATION
    for name in ("bf16", "fp32", "fp16"):
        weight = torch.nn.Parameter(torch.zeros(_SIZE, _SIZE, dtype=DTYPES[name], device=job["device"]))
        weight.grad = values.to(DTYPES[name]).to(job["device"]).clone()  # clipping works in place
        true = float(weight.grad.double().norm())
        norm = float(torch.nn.utils.clip_grad_norm_([weight], 1.0))
        after = float(weight.grad.double().norm())
        case = judged("change", "norm-overflows", ["gradients"], dtype=name, backend="default", limit=0.05)
        case.update(case=f"a norm of {true:.0f} clipped to 1", params={"norm": round(true)})
        if name == "fp16" and loaded_dtype(job) != "fp16":
            case["kind"] = "info"
        emit({**case, "relative": abs(after - 1.0), "detail": f"norm {norm:g}, afterwards {after:g}"})
    for foreach in (False, True):
        emit(_several(foreach, job["device"]))


def _several(foreach: bool, device: str) -> dict[str, Any]:
    """The judged case of several parameters."""
    generator = torch.Generator().manual_seed(9)
    drawn = [torch.randn(*shape, generator=generator) for shape in _SHAPES]
    weights = [torch.nn.Parameter(torch.zeros_like(value, device=device)) for value in drawn]
    for weight, value in zip(weights, drawn):
        weight.grad = value.clone().to(device)
    total = torch.cat([value.double().flatten() for value in drawn]).norm()
    said = torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=foreach)
    errors = [relative(weight.grad, value.double() / total) for weight, value in zip(weights, drawn)]
    told = f"a norm of {float(said):.6g} where it is {float(total):.6g}; off by {max(errors):.2g}"
    case = judged("change", "clipping-differs", ["gradients"], dtype="fp32", limit=1e-4, params={"foreach": foreach})
    case.update(case=f"{len(drawn)} parameters, " + ("at once" if foreach else "one by one"), detail=told)
    relative_error = max(abs(float(said) / float(total) - 1), *errors)
    return {**case, "backend": "foreach" if foreach else "default", "relative": relative_error}
