"""Error against float64: relative, and in units of what rounding the exact result once would cost."""

from __future__ import annotations

from typing import Any

import torch


def forward_backward(operation: Any, inputs: Any, upstream: Any = None) -> dict[str, Any]:
    """``o`` and the gradients ``d0``, ``d1``, … of an operation; ``upstream`` gives the output's gradient for its shape
    (None: the output is one number), which is cast to its dtype and device."""
    leaves = [value.detach().requires_grad_() for value in inputs]
    out = operation(*leaves)
    out.backward(None if upstream is None else upstream(out.shape).to(out.device, out.dtype))
    return {"o": out.detach(), **{f"d{number}": leaf.grad for number, leaf in enumerate(leaves)}}


def vector(model: Any, of: str = "grad") -> Any:
    """The gradients of all parameters of a model (or with ``of`` "data" these themselves) as one float64 vector on the
    CPU; zeros for a parameter that has none."""
    parts = [(parameter, getattr(parameter, of)) for parameter in model.parameters()]
    found = [torch.zeros_like(parameter) if part is None else part for parameter, part in parts]
    return torch.cat([part.detach().double().cpu().flatten() for part in found])


def relative(got: Any, exact: Any) -> float:
    """The norm of the error in units of the norm of the exact result."""
    got, exact = got.detach().double().cpu(), exact.detach().double().cpu()
    return float((got - exact).norm() / exact.norm())


def lost(tensor: Any) -> int:
    """How many values are not finite."""
    return int((~torch.isfinite(tensor.detach())).sum())


def compare(got: dict[str, Any], exact: dict[str, Any]) -> dict[str, Any]:
    """``ratio``, ``nonfinite`` and ``unjudged`` of an observation for the judge ``rounding``, from tensors by name.

    A tensor whose exact result does not fit its dtype is unjudged. The unit is the rms error of the exact result
    rounded once, at least 5 % of the dtype's spacing at the result's size, so that an exact zero is not divided by.
    """
    ratio: dict[str, float] = {}
    nonfinite: dict[str, int] = {}
    unjudged: list[str] = []
    for name, tensor in got.items():
        dtype, found, truth = tensor.dtype, tensor.detach().double().cpu(), exact[name].detach().double().cpu()
        if float(truth.abs().max()) > torch.finfo(dtype).max:
            unjudged.append(name)
        elif lost(found):
            nonfinite[name] = lost(found)
        else:
            unit = rms(truth.to(dtype).double() - truth)
            floor = 0.05 * torch.finfo(dtype).eps * rms(truth) + 1e-30
            ratio[name] = round(rms(found - truth) / max(unit, floor), 3)
    return {"ratio": ratio, "nonfinite": nonfinite, "unjudged": unjudged}


def rms(values: Any) -> float:
    """The root of the mean square."""
    return float(values.square().mean().sqrt())
