"""Does torch's GradScaler keep its promises: gradients of the right size, no step with lost ones, a scale that falls?

Training in fp16 multiplies the loss, divides the gradients again before clipping and the step, and leaves a step out
when one of them is inf. https://docs.pytorch.org/docs/stable/notes/amp_examples.html; fused optimizers once stepped all
the same: https://github.com/pytorch/pytorch/pull/96106.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.job import Emit, Job
from ..probing.rounding import relative

PROBE = {"title": "GradScaler, with gradients that are finite and not"}

_SCALE = 1024.0


def run(job: Job, emit: Emit) -> None:
    """Three observations for each implementation of AdamW, for the judges ``change`` and ``exact``."""
    made = getattr(torch.amp, "GradScaler", None)
    if made is None and job["device"] == "cpu":
        emit({"case": "GradScaler", "skip": "this torch has no GradScaler for a CPU (2.3 brought it)"})
        return
    for way in ("foreach", "fused"):
        weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 64, device=job["device"]))
        common: dict[str, Any] = {"dtype": "fp32", "backend": way, "signature": "scaler", "params": {"optimizer": way}}
        try:
            optimizer = torch.optim.AdamW([weight], lr=1e-2, **{way: True})
        except (RuntimeError, TypeError, ValueError) as error:
            emit({"case": f"AdamW ({way})", "skip": f"{way} AdamW is not offered here: {error}"[:300], **common})
            continue
        scaler: Any = made(job["device"], init_scale=_SCALE) if made else torch.cuda.amp.GradScaler(init_scale=_SCALE)
        _backward(scaler, weight, 1.0)
        scaler.unscale_(optimizer)
        found, exact = weight.grad, 3 * weight.detach() ** 2
        judged = {"judge": "change", "tensors": ["gradients"], "relative": relative(found, exact), "limit": 1e-4}
        emit({**common, "case": f"gradients after unscale_ ({way})", **judged, "detail": "not those of the loss"})
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        before, scale = weight.detach().clone(), float(scaler.get_scale())
        _backward(scaler, weight, float("inf"))
        scaler.step(optimizer)
        scaler.update()
        kept, fell = torch.equal(before, weight.detach()), float(scaler.get_scale()) < scale
        judged = {"judge": "exact", "tensors": ["parameters"]}
        told = "the parameters moved" if not kept else "they stayed"
        emit({**common, "case": f"a step with an inf is left out ({way})", **judged, "equal": kept, "detail": told})
        told = f"{scale:g} before, {float(scaler.get_scale()):g} after"
        emit({**common, "case": f"the scale falls after an inf ({way})", **judged, "equal": fell, "detail": told})


def _backward(scaler: Any, weight: Any, factor: float) -> None:
    """Of a loss whose gradient is 3 · factor · weight²."""
    loss = (weight**3).sum() * factor
    scaler.scale(loss).backward()
