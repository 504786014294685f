"""What do products of float32 really compute with, and do the switches agree with it?

TF32 keeps 10 bits of the mantissa: harmless in most training, an explanation of many "float32 does not reproduce"
reports, and a wrong reference for everybody who compares with float32. Not a bug: information, except when a switch
says one thing and the numbers another. https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

import torch

from ..probing.job import Emit, Job, judged
from ..probing.rounding import relative

PROBE = {"title": "precision of float32 products"}

#: Relative error of a product of 512 terms: float32 gives some 1e-7, TF32 and bf16 passes 1e-4 and more.
_EXACT = 1e-5


def run(job: Job, emit: Emit) -> None:
    """An observation for the judge ``change`` with TF32 switched off, information with the settings as they are."""
    switch = torch.get_float32_matmul_precision()
    told = f"{switch}: relative error {_error(job['device']):.2g}"
    emit({"kind": "info", "case": "as set", "dtype": "fp32", "detail": told})
    torch.set_float32_matmul_precision("highest")
    try:
        error = _error(job["device"])
    finally:
        torch.set_float32_matmul_precision(switch)
    case = judged("change", "inaccurate", ["o"], dtype="fp32", backend="default", limit=_EXACT)
    case.update(case="float32 products at the highest precision", params={"operation": "matmul"})
    emit({**case, "relative": error})


def _error(device: str) -> float:
    generator = torch.Generator().manual_seed(41)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    return relative(left.to(device) @ right.to(device), left.double() @ right.double())
