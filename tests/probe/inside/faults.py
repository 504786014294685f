"""Emulated kernel bugs: scaled_dot_product_attention with one thing wrong. Runs in an interpreter that has torch.

Each fault changes a stage of the real computation: what the kernel reads (``inputs``, ``upstream``) or what it writes
(``output``, ``gradients``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from patches import SDPA, fault

_REAL = torch.nn.functional.scaled_dot_product_attention
NAN = float("nan")


class Call:
    """What a kernel was called with."""

    def __init__(self, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, gqa: bool) -> None:
        self.q, self.k, self.v, self.mask, self.is_causal, self.gqa = q, k, v, mask, is_causal, gqa

    @property
    def dead(self) -> Any:
        """(B, 1, L, 1): rows that may see no key, of a boolean or additive mask."""
        if self.mask is None:
            return torch.zeros(self.q.shape[0], 1, self.q.shape[2], 1, dtype=torch.bool)
        seen = self.mask if self.mask.dtype == torch.bool else self.mask > torch.finfo(self.mask.dtype).min
        return ~seen.any(-1, keepdim=True)

    def logits(self) -> Any:
        group = self.q.shape[1] // self.k.shape[1]
        scores = (
            self.q.float() @ self.k.float().repeat_interleave(group, 1).transpose(-1, -2) * self.q.shape[-1] ** -0.5
        )
        if self.is_causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
        if self.mask is not None:
            seen = self.mask if self.mask.dtype == torch.bool else None
            scores = scores.masked_fill(~seen, float("-inf")) if seen is not None else scores + self.mask.float()
        return scores


def _right(call: Call) -> Any:
    extra = {"enable_gqa": True} if call.gqa else {}
    return _REAL(call.q, call.k, call.v, attn_mask=call.mask, is_causal=call.is_causal, **extra)


class Fault(NamedTuple):
    """Nothing is wrong: the wrapper alone."""

    inputs: Callable[[Call], None] = lambda call: None
    run: Callable[[Call], Any] = _right
    output: Callable[[Any, Call], Any] = lambda out, call: out
    upstream: Callable[[Any], Any] = lambda gradient: gradient
    gradients: Callable[[Any, Any, Any, Call], tuple[Any, Any, Any]] = lambda dq, dk, dv, call: (dq, dk, dv)


def tile_nan(dq: Any, dk: Any, dv: Any, call: Call) -> tuple[Any, Any, Any]:
    if call.mask is not None and call.k.shape[2] % 128 == 64:
        # Dead rows have no logsumexp to speak of; the kernel stores 0 there.
        lse = torch.logsumexp(call.logits(), -1, keepdim=True).masked_fill(call.dead, 0.0)
        dq = dq + torch.exp(-lse).mul(0).to(dq.dtype)
    return dq, dk, dv


def contiguous(gradient: Any) -> Any:
    memory = gradient.untyped_storage().nbytes() // gradient.element_size()
    if gradient.is_contiguous() or memory < gradient.numel():
        return gradient
    return gradient.as_strided(gradient.shape, gradient.contiguous().stride(), 0)


def float32_mask(call: Call) -> None:
    if call.mask is not None and call.mask.dtype == torch.float32 and call.q.dtype != torch.float32:
        call.mask = call.mask.contiguous().view(call.q.dtype)[..., : call.k.shape[2]].contiguous()


def mask_constant(call: Call) -> None:
    if call.mask is not None and call.mask.dtype == torch.bool:
        tiny = torch.finfo(torch.float16).tiny
        call.mask = torch.zeros(call.mask.shape, dtype=call.q.dtype).masked_fill(~call.mask, tiny)


def dead_rows(dq: Any, dk: Any, dv: Any, call: Call) -> tuple[Any, Any, Any]:
    sick = call.dead.any(2, keepdim=True)
    return dq, dk.masked_fill(sick, NAN), dv.masked_fill(sick, NAN)


def wrong_side(call: Call) -> None:
    if call.mask is not None and call.mask.dtype == torch.bool:
        hidden = ~call.mask.any(-2, keepdim=True)
        revealed = call.mask | hidden
        if call.mask.shape[-2] > 1 and not call.mask[..., 0, -1].any():
            revealed = revealed.tril(call.mask.shape[-1] - call.mask.shape[-2])
        call.mask = revealed & ~hidden.flip(-1)


def rounded_logits(call: Call) -> Any:
    group = call.q.shape[1] // call.k.shape[1]
    k, v = call.k.repeat_interleave(group, 1), call.v.repeat_interleave(group, 1)
    scores = (call.q * call.q.shape[-1] ** -0.25) @ (k * k.shape[-1] ** -0.25).transpose(-1, -2)
    seen = call.mask
    if call.is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if seen is not None:
        least = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~seen, least) if seen.dtype == torch.bool else scores + seen.clamp(min=least)
    return torch.softmax(scores.to(call.q.dtype), -1) @ v


def group_sum(dq: Any, dk: Any, dv: Any, call: Call) -> tuple[Any, Any, Any]:
    group = call.q.shape[1] // call.k.shape[1]
    return dq, dk / group, dv / group


def aligned(call: Call) -> None:
    offset = call.k.storage_offset()
    if offset % 8:
        call.k = call.k.as_strided(call.k.shape, call.k.stride(), offset - offset % 8)


def tail(out: Any, call: Call) -> Any:
    rows = out.shape[2]
    if rows > 128 and rows % 8:
        out = out.clone()
        out[:, :, -(rows % 8) :] = out[:, :, : rows % 8]
    return out


def broadcast(call: Call) -> None:
    if call.k.shape[1] > 1 and call.k.stride(1) == 0:
        call.k = torch.cat([call.k[:, :1], torch.zeros_like(call.k[:, 1:])], 1)


def unshifted_softmax(out: Any, call: Call) -> Any:
    total = torch.exp(call.logits()).sum(-1, keepdim=True)
    return torch.where((total == 0) & ~call.dead, torch.full_like(out, NAN), out)


#: By the names that tests use.
FAULTS = {
    "none": Fault(),
    # pytorch#196678: with a mask and S % 128 = 64 the padded half of a tile is exp(-lse) · 0, in float32.
    "tile-nan": Fault(gradients=tile_nan),
    # flash-attn 2.0.4: fewer keys than a warp reads.
    "short-keys": Fault(gradients=lambda dq, dk, dv, call: (dq * NAN if call.k.shape[2] < 16 else dq, dk, dv)),
    # pytorch#191937 in style: one key in the last tile of 32 spoils dk.
    "last-key-tile": Fault(gradients=lambda dq, dk, dv, call: (dq, dk * 1.3 if call.k.shape[2] % 32 == 1 else dk, dv)),
    # The same tile, and dv is never written.
    "lost-values": Fault(gradients=lambda dq, dk, dv, call: (dq, dk, dv * 0 if call.k.shape[2] % 32 == 1 else dv)),
    # TransformerEngine#3216 in style: dq of all samples but the first.
    "later-rows": Fault(gradients=lambda dq, dk, dv, call: (torch.cat([dq[:1], dq[1:] * 0.7]), dk, dv)),
    # Head dimension 256: dv lands one position off.
    "wide-heads": Fault(gradients=lambda dq, dk, dv, call: (dq, dk, dv.roll(1, 2) if call.q.shape[3] == 256 else dv)),
    # pytorch#138354 in style: the upstream gradient is read with the strides of a contiguous tensor.
    "contiguous-upstream": Fault(upstream=contiguous),
    # pytorch#191612: a float32 mask is read as if it were of the dtype of q.
    "float32-mask": Fault(float32_mask),
    # pytorch#177842: a boolean mask becomes additive with the least positive number of half, not the lowest.
    "mask-constant": Fault(mask_constant),
    # torch before 2.5: rows that see no key are NaN, and 0 · NaN enters dk and dv of their sample.
    "dead-rows": Fault(output=lambda out, call: out.masked_fill(call.dead, NAN), gradients=dead_rows),
    # The query's gradient is NaN in rows that may see no key, and right in all others: q's projection is lost.
    "dead-query-gradient": Fault(
        gradients=lambda dq, dk, dv, call: (dq.masked_fill(call.dead.to(dq.device), NAN), dk, dv)
    ),
    # pytorch#141128: NaN comes out as zeros.
    "hidden-nan": Fault(output=lambda out, call: torch.nan_to_num(out, nan=0.0)),
    # Padding of a boolean mask is taken off the other end of the keys.
    "wrong-side": Fault(wrong_side),
    # torch before 2.5, math backend: logits and probabilities in half.
    "rounded-logits": Fault(run=rounded_logits),
    # Shared key heads: the gradients of one query head are kept instead of the sum over its group.
    "group-sum": Fault(gradients=group_sum),
    # Vector loads round an address that is not aligned to 16 bytes down.
    "alignment": Fault(aligned),
    # pytorch#169849 in style: where L is no multiple of 8 the end of the last tile is overwritten.
    "tail": Fault(output=tail),
    # pytorch#191937: keys with stride 0 over the heads are read as if every head had its own memory.
    "broadcast": Fault(broadcast),
    # The row maximum is not subtracted before exp: 0 / 0 where all logits are low.
    "unshifted-softmax": Fault(output=unshifted_softmax),
}


class _Spoiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, gqa: bool, wrong: Fault) -> Any:
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        call = Call(given[0], given[1], given[2], mask, is_causal, gqa)
        with torch.enable_grad():
            wrong.inputs(call)
            out = wrong.run(call)
        ctx.kept = (given, call, out, wrong)
        return wrong.output(out.detach(), call)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        given, call, out, wrong = ctx.kept
        gradient = wrong.upstream(gradient)
        with torch.enable_grad():
            found = torch.autograd.grad(out, given, gradient, allow_unused=True)
        found = [torch.zeros_like(x) if g is None else g for g, x in zip(found, given, strict=True)]
        with torch.no_grad():
            return (*wrong.gradients(*found, call), None, None, None, None)


def _attention(wrong: Fault) -> Any:
    def attention(
        real: Any,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        if dropout_p or (scale is not None and abs(scale - query.shape[-1] ** -0.5) > 1e-9):
            raise NotImplementedError("the emulation knows neither dropout nor another scale")
        return _Spoiled.apply(query, key, value, attn_mask, is_causal, enable_gqa, wrong)

    return attention


for _name, _wrong in FAULTS.items():
    fault(_name, SDPA)(_attention(_wrong))
