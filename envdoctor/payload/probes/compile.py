"""Does torch.compile give the numbers that eager gives?

Norm, attention with a mask and a loss in one function, eager and compiled, both against float64.
https://github.com/pytorch/pytorch/issues/143290, https://github.com/pytorch/pytorch/issues/136232,
https://github.com/pytorch/pytorch/issues/186775 (NaN losses with flex attention and fused masks),
https://github.com/pytorch/pytorch/issues/185517 (gradients of 0). Compiling takes 12 to 20 s on a CPU, so that this one
runs only when it is asked for (``--only compile``) or in the suite "long".
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..probing.kit import Emit, Job, forward_backward, lost, relative

PROBE = {
    "title": "torch.compile against eager",
    "attention": "sdpa",
    "suites": {"long": [{}]},
    "seconds": {"cpu": 240, "cuda": 300},
    "memory_mib": 4000,
}

#: Texts of an error that says that there is nothing to compile with.
_TOOLS = ("No working C compiler", "Python.h", "Failed to find C compiler", "InvalidCxxCompiler")


def run(job: Job, emit: Emit) -> None:
    """Observations for the judge ``batch``: the compiled error in units of the eager one."""
    generator = torch.Generator().manual_seed(51)
    given = [torch.randn(2, 33, 64, generator=generator).to(torch.bfloat16) for _ in range(3)]
    mask = torch.ones(2, 1, 33, 33, dtype=torch.bool).tril()
    mask[1, :, :, :8] = False
    mask[1, :, :8, 0] = True
    case = {"case": "norm, masked attention and loss", "judge": "batch", "dtype": "bf16", "backend": "inductor"}
    params = {"model": "block"}
    exact = _gradients(_model, [value.double() for value in given], mask)
    moved = [value.to(job["device"]) for value in given]
    eager = _gradients(_model, moved, mask.to(job["device"]))
    try:
        compiled = _gradients(torch.compile(_model), moved, mask.to(job["device"]))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        emit({**case, "params": params, "skip" if any(part in text for part in _TOOLS) else "error": text[:500]})
        return
    bad = {"gradients": lost(compiled)} if lost(compiled) else {}
    found = {"e1": relative(eager, exact), "eN": relative(compiled, exact), "nonfinite": bad}
    emit({**case, "params": params, **found})


def _model(query: Any, key: Any, value: Any, mask: Any) -> Any:
    normed = functional.layer_norm(query, (64,))
    out = functional.scaled_dot_product_attention(normed[:, None], key[:, None], value[:, None], attn_mask=mask)
    logits = out[:, 0].flatten(0, 1)
    targets = torch.arange(logits.shape[0], device=logits.device) % 64
    return functional.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), targets)


def _gradients(function: Any, given: list[Any], mask: Any) -> Any:
    found = forward_backward(lambda *leaves: function(*leaves, mask), given)
    return torch.cat([found[f"d{number}"].double().cpu().flatten() for number in range(3)])
