"""Faults that come and go: with every n-th call of an operation, as a sick unit of a processor or a race errs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from patches import SDPA, fault


def _every(number: int, name: str, place: str, spoil: Callable[[Any], Any]) -> None:
    """Each ``number``-th call at the place gives what ``spoil`` makes of the right result."""
    calls = [0]

    def change(real: Any, *given: Any, **more: Any) -> Any:
        calls[0] += 1
        out = real(*given, **more)
        return spoil(out) if calls[0] % number == 0 else out

    fault(name, place)(change)


def _largest(factor: float) -> Callable[[Any], Any]:
    """The largest number of a result times this."""

    def spoil(out: Any) -> Any:
        here = torch.zeros(out.numel(), dtype=torch.bool)
        here[int(out.detach().abs().argmax())] = True
        return torch.where(here.view(out.shape), out * factor, out)

    return spoil


_every(61, "an exponent bit of products", "torch.nn.functional:linear", _largest(256.0))
_every(7, "a sign of batched products", "torch:bmm", lambda out: -out)
_every(41, "NaN in attention", SDPA, _largest(float("nan")))
_every(31, "a factor of attention", SDPA, lambda out: out * 1.5)
_every(5, "a scale of layer norm", "torch.nn.functional:layer_norm", lambda out: out * 0.5)
_every(3, "sums of softmax", "torch:softmax", lambda out: out * 1.25)
_every(7, "a row of the embedding", "torch.nn.functional:embedding", lambda out: out * 3)
_every(11, "a loss", "torch.nn.functional:cross_entropy", lambda out: out * 1.1)
_every(7, "a factor of rms_norm", "torch.nn.functional:rms_norm", lambda out: out * 1.5)
_every(5, "a norm of gradients", "torch.nn.utils:clip_grad_norm_", lambda norm: norm * 2)
