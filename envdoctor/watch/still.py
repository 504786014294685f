"""Half-precision weights that a step does not move: a sample of the largest one, every hundredth step."""

from __future__ import annotations

from typing import Any

import torch

#: Every so many steps a sample of half-precision weights is compared with itself.
_EVERY = 100
_SAMPLE = 1024


class Still:
    """:meth:`note` before a step, :meth:`name` after it."""

    def __init__(self) -> None:
        self._noted: tuple[str, Any, Any] | None = None
        self._rate: float | None = None

    def note(self, model: Any, step: int, rate: float | None) -> None:
        """Every hundredth step; not during warm-up, whose learning rate is 0 or still rises."""
        self._noted, last, self._rate = None, self._rate, rate
        if step % _EVERY or rate == 0 or (rate is not None and last is not None and rate > last):
            return
        half = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None and parameter.dtype in (torch.bfloat16, torch.float16)
        ]
        if half:
            name, parameter = max(half, key=lambda entry: int(entry[1].numel()))
            moving = parameter.grad.detach().reshape(-1)[:_SAMPLE] != 0
            self._noted = (name, parameter, (parameter.detach().reshape(-1)[:_SAMPLE].clone(), moving))

    def forget(self) -> None:
        """The step was skipped, and rightly moved nothing."""
        self._noted = None

    def name(self) -> str | None:
        """The weight, when none of its sampled elements that have gradients moved."""
        if self._noted is None:
            return None
        name, parameter, (before, moving) = self._noted
        self._noted = None
        pushed = int(moving.sum())
        moved = int(((parameter.detach().reshape(-1)[:_SAMPLE] != before) & moving).sum())
        return name if pushed >= 100 and moved == 0 else None
