"""Faults that show at some shapes alone: many samples or heads, long keys, sizes that no tile divides, many tensors."""

from __future__ import annotations

from typing import Any

import torch
from patches import SDPA, fault


def _scaled(out: Any, place: Any, factor: float) -> Any:
    """The result with a part of it times a factor."""
    factors = torch.ones(out.shape, dtype=out.dtype)
    factors[place] = factor
    return out * factors


@fault("the sixth sample reads the values of the fifth", SDPA)
def _sixth(real: Any, q: Any, k: Any, v: Any, *given: Any, **more: Any) -> Any:
    if v.shape[0] > 5:
        v = torch.cat([v[:5], v[4:5], v[6:]])
    return real(q, k, v, *given, **more)


@fault("the last of four heads", SDPA)
def _head(real: Any, q: Any, *given: Any, **more: Any) -> Any:
    out = real(q, *given, **more)
    return _scaled(out, (slice(None), -1), 1.03) if q.shape[1] >= 4 and q.shape[-1] == 64 else out


@fault("the query gradient of the eighth sample", SDPA)
def _eighth(real: Any, q: Any, *given: Any, **more: Any) -> Any:
    if q.shape[0] >= 8 and q.requires_grad:
        q = q.view_as(q)
        q.register_hook(lambda gradient: _scaled(gradient, 7, 0.96))
    return real(q, *given, **more)


@fault("keys beyond 1,024", SDPA)
def _long(real: Any, q: Any, k: Any, v: Any, *given: Any, **more: Any) -> Any:
    if k.shape[2] > 1024 and more.get("attn_mask") is None and not more.get("is_causal"):
        k, v = k[:, :, :1024], v[:, :, :1024]
    return real(q, k, v, *given, **more)


@fault("rows beyond 1,024", SDPA)
def _rows(real: Any, q: Any, *given: Any, **more: Any) -> Any:
    out = real(q, *given, **more)
    return _scaled(out, (slice(None), slice(None), slice(1024, None)), 1.2) if out.shape[2] > 1024 else out


@fault("a vocabulary's tail", "torch.nn.functional:cross_entropy")
def _tail(real: Any, logits: Any, *given: Any, **more: Any) -> Any:
    size = logits.shape[-1]
    if size > 1024 and size % 8:
        logits = torch.cat([logits[..., : size - size % 8], logits[..., size - size % 8 :] - 30], -1)
    return real(logits, *given, **more)


@fault("products of a width that eight does not divide", "torch.nn.functional:linear")
def _width(real: Any, x: Any, weight: Any, *given: Any) -> Any:
    odd = x.shape[-1] % 8
    return real(_scaled(x, (..., slice(-odd, None)), 0.5) if odd else x, weight, *given)


@fault("the weight gradient of a wide norm", "torch.nn.functional:rms_norm")
def _wide(real: Any, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    if weight is not None and weight.shape[-1] >= 1024:
        weight = weight.view_as(weight)
        if weight.requires_grad:  # some calls are made without gradients
            weight.register_hook(lambda gradient: _scaled(gradient, slice(0, 256), 0.5))
    return real(x, shape, weight, eps)


_ADAMW = "torch.optim:AdamW.step"


@fault("elements beyond 65,536 stay", _ADAMW)
def _chunk(real: Any, self: Any, *given: Any) -> Any:
    return _kept(real, self, given, lambda place, value: value.flatten()[65536:])


@fault("every 31st tensor stays", _ADAMW)
def _list(real: Any, self: Any, *given: Any) -> Any:
    return _kept(real, self, given, lambda place, value: value.flatten() if place % 31 == 30 else value.flatten()[:0])


def _kept(real: Any, self: Any, given: Any, part: Any) -> Any:
    """A step that leaves a part of each parameter as it was."""
    values = [value.detach() for group in self.param_groups for value in group["params"]]
    before = [part(place, value).clone() for place, value in enumerate(values)]
    result = real(self, *given)
    for place, (value, old) in enumerate(zip(values, before, strict=True)):
        part(place, value).copy_(old)
    return result
