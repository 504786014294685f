"""What do products of float32 really compute with, and do the switches agree with it?

TF32 keeps 10 bits of the mantissa: harmless in most training, an explanation of many "float32 does not reproduce"
reports, and a wrong reference for everybody who compares with float32. Not a bug: information, except when a switch
says one thing and the numbers another. https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "tf32",
    "title": "precision of float32 products",
    "settles": ["tf32"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}

#: Relative error of a product of 512 terms: float32 gives some 1e-7, TF32 and bf16 passes 1e-4 and more.
_EXACT = 1e-5


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """An observation for the judge ``change`` with TF32 switched off, information with the settings as they are."""
    import torch

    device = job["device"]
    switch = torch.get_float32_matmul_precision()
    emit(
        {"kind": "info", "case": "as set", "dtype": "fp32", "detail": f"{switch}: relative error {_error(device):.2g}"}
    )
    torch.set_float32_matmul_precision("highest")
    try:
        relative = _error(device)
    finally:
        torch.set_float32_matmul_precision(switch)
    emit(
        {
            "case": "float32 products at the highest precision",
            "judge": "change",
            "dtype": "fp32",
            "backend": "default",
            "signature": "inaccurate",
            "tensors": ["o"],
            "params": {"operation": "matmul"},
            "relative": relative,
            "limit": _EXACT,
        }
    )


def _error(device: str) -> float:
    import torch

    generator = torch.Generator().manual_seed(41)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    got = (left.to(device) @ right.to(device)).double().cpu()
    return float((got - exact).norm() / exact.norm())
