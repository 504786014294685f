"""Is ``torch.nn.functional.rms_norm`` right for large inputs and with its own epsilon?

Up to 2.5.1 it computed in the input's dtype: fp16 inputs of 300 give an error 4,800 times that of rounding
(https://github.com/pytorch/pytorch/pull/134106, https://github.com/pytorch/pytorch/pull/147203), and its default
epsilon was the dtype's, 0.0078 in bf16, which scales small activations by half
(https://github.com/pytorch/pytorch/issues/189581). Gradients of weights that drop features, on some ROCm cards:
https://github.com/pytorch/pytorch/issues/183861.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.job import DTYPES, Emit, Job
from ..probing.rounding import compare, forward_backward, relative

PROBE = {"title": "rms_norm at large inputs and with its default epsilon"}


def run(job: Job, emit: Emit) -> None:
    """Observations for the judges ``rounding`` (inputs × 300, a weight with gradients) and ``change`` (epsilon)."""
    norm = getattr(torch.nn.functional, "rms_norm", None)
    if norm is None:
        emit({"case": "rms_norm", "skip": "this torch has no rms_norm (2.4 brought it)"})
        return
    device = job["device"]
    generator = torch.Generator().manual_seed(4)
    values, upstream = (torch.randn(64, 64, generator=generator) for _ in range(2))
    weight = 1 + 0.1 * torch.randn(64, generator=torch.Generator().manual_seed(5))
    small = torch.randn(8, 32, generator=torch.Generator().manual_seed(6)) * 0.05
    for name in ("bf16", "fp16"):
        dtype = DTYPES[name]
        common = {"dtype": name, "backend": "default"}
        for size in (1.0, 300.0):
            given = [(values * size).to(dtype), weight.to(dtype)]
            gradient = upstream.to(dtype)
            low = _named(lambda x, w: norm(x, (64,), w, 1e-6), [value.to(device) for value in given], gradient)
            high = _named(_exact, [value.double() for value in given], gradient)
            case = {"case": f"{name} inputs x {size:g}", "judge": "rounding", "params": {"scale": size}}
            emit({**common, **case, **compare(low, high)})
        tiny = small.to(dtype)
        difference = relative(norm(tiny.to(device), (32,)), norm(tiny.float().to(device), (32,)))
        case = {"case": f"{name} default epsilon against fp32", "judge": "change", "params": {"epsilon": "default"}}
        emit({**common, **case, "signature": "wrong-scale", "tensors": ["o"], "relative": difference, "limit": 0.05})


def _exact(x: Any, weight: Any) -> Any:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def _named(operation: Any, given: list[Any], upstream: Any) -> dict[str, Any]:
    return dict(zip(("o", "dx", "dw"), forward_backward(operation, given, lambda shape: upstream).values()))
