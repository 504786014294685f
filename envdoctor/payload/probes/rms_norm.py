"""Is ``torch.nn.functional.rms_norm`` right for large inputs and with its own epsilon?

Up to 2.5.1 it computed in the input's dtype: fp16 inputs of 300 give an error 4,800 times that of rounding
(https://github.com/pytorch/pytorch/pull/134106, https://github.com/pytorch/pytorch/pull/147203), and its default
epsilon was the dtype's, 0.0078 in bf16, which scales small activations by half
(https://github.com/pytorch/pytorch/issues/189581). Gradients of weights that drop features, on some ROCm cards:
https://github.com/pytorch/pytorch/issues/183861.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "rms-norm",
    "title": "rms_norm at large inputs and with its default epsilon",
    "settles": ["rms-norm"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Observations for the judges ``rounding`` (inputs × 300, a weight with gradients) and ``change`` (epsilon)."""
    import torch

    from ..probing.rounding import DTYPES, compare

    norm = getattr(torch.nn.functional, "rms_norm", None)
    if norm is None:
        emit({"case": "rms_norm", "skip": "this torch has no rms_norm (2.4 brought it)"})
        return
    device = job["device"]
    generator = torch.Generator().manual_seed(4)
    values, upstream = (torch.randn(64, 64, generator=generator) for _ in range(2))
    for name in ("bf16", "fp16"):
        dtype = DTYPES[name]
        for size in (1.0, 300.0):
            x, g = (values * size).to(dtype), upstream.to(dtype)
            weight = (1 + 0.1 * torch.randn(64, generator=torch.Generator().manual_seed(5))).to(dtype)
            emit(
                {
                    "case": f"{name} inputs x {size:g}",
                    "judge": "rounding",
                    "dtype": name,
                    "backend": "default",
                    "params": {"scale": size},
                    **compare(
                        _forward_backward(norm, x, weight, g, device), _forward_backward(norm, x, weight, g, "exact")
                    ),
                }
            )
        small = (torch.randn(8, 32, generator=torch.Generator().manual_seed(6)) * 0.05).to(dtype)
        low = norm(small.to(device), (32,)).double().cpu()
        high = norm(small.float().to(device), (32,)).double().cpu()
        emit(
            {
                "case": f"{name} default epsilon against fp32",
                "judge": "change",
                "dtype": name,
                "backend": "default",
                "signature": "wrong-scale",
                "tensors": ["o"],
                "params": {"epsilon": "default"},
                "relative": float((low - high).norm() / high.norm()),
                "limit": 0.05,
            }
        )


def _forward_backward(norm: Any, x: Any, weight: Any, upstream: Any, device: str) -> dict[str, Any]:
    """Output and gradients; on ``exact`` in float64 by the formula."""
    if device == "exact":
        x, weight = x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
        out = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
        out.backward(upstream.double())
    else:
        x, weight = x.detach().to(device).requires_grad_(), weight.detach().to(device).requires_grad_()
        out = norm(x, (x.shape[-1],), weight, 1e-6)
        out.backward(upstream.to(device))
    return {"o": out, "dx": x.grad, "dw": weight.grad}
