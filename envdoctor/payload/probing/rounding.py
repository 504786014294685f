"""Error against float64 in units of what rounding the exact result once would cost: for operations without a model."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DTYPES", "compare", "rounding_ratio"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def rounding_ratio(got: Any, exact: Any) -> tuple[Any, int, bool]:
    """(ratio or None, values that are not finite where the exact one is, judged) of one tensor against float64.

    ``judged`` is False when the exact result does not fit the dtype. The unit is the rms error of the exact result
    rounded once, at least 5 % of the dtype's spacing at the result's size, so that an exact zero is not divided by.
    """
    dtype = got.dtype
    got, exact = got.detach().double().cpu(), exact.detach().double().cpu()
    if float(exact.abs().max()) > torch.finfo(dtype).max:
        return None, 0, False
    bad = int((~torch.isfinite(got)).sum())
    if bad:
        return None, bad, True
    error = float((got - exact).pow(2).mean().sqrt())
    unit = float((exact.to(dtype).double() - exact).pow(2).mean().sqrt())
    floor = 0.05 * torch.finfo(dtype).eps * float(exact.pow(2).mean().sqrt()) + 1e-30
    return error / max(unit, floor), 0, True


def compare(got: dict[str, Any], exact: dict[str, Any]) -> dict[str, Any]:
    """``ratio``, ``nonfinite`` and ``unjudged`` of an observation for the judge ``rounding``, from tensors by name."""
    ratios: dict[str, float] = {}
    lost: dict[str, int] = {}
    unjudged: list[str] = []
    for name, tensor in got.items():
        ratio, bad, judged = rounding_ratio(tensor, exact[name])
        if not judged:
            unjudged.append(name)
        elif bad:
            lost[name] = bad
        else:
            ratios[name] = round(ratio, 3)
    return {"ratio": ratios, "nonfinite": lost, "unjudged": unjudged}
