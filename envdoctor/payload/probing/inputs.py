"""Inputs of attention cases: masks, the memory that tensors lie in, and numbers that bring out mistakes.

**Masks** say which keys a row may see, and how that is handed to a kernel.

A name is ``<how>_<what>``. *How*: ``bool`` (True = keep), ``inf`` (additive in the tested dtype, -inf), ``min``
(additive, the least number of the dtype, as transformers builds it), ``f32`` (additive float32 while q is half),
``bias`` (additive, a normal number for each row and key, as T5 and ALiBi have them).
*What*, on top of a lower triangle aligned to the lower right corner: ``left`` and ``right`` (a third of the keys is
padding in all samples but the first), ``left_dead`` (and the last sample is padding alone), ``band`` (a sliding window
of 32 keys). ``key`` is padding on the right without the triangle, as a view expanded over the rows. ``pack_left`` and
``pack_right`` are for kernels that take sequences without padding, where padded rows do not exist and count as dead;
``pack_none`` is the triangle alone.

**Layouts**: kernels have read memory as if it were laid out otherwise. They take strides, and several confirmed bugs
are about them (pytorch#138354, pytorch#139298, pytorch#191937, flash-attention 9ee0ff1d). The numbers of a case do not
depend on the layout, only where they lie.

**Stresses** bring out what plain normal numbers do not: large values, an outlier channel, a constant offset. Found by
their absence: pytorch#196678 needs a logsumexp below -88.7, flash-attn's own NaN tests multiply by three, and a kernel
that rounds its logits to half is 2 times worse than it must be on normal numbers and 80 times under an offset.

* ``x3``: q, k and v times three.
* ``shift-`` and ``shift+``: q and k get opposite (equal) constant parts along one direction of every head, which moves
  every logit by 200: what trained biases of the q and k projections do.
* ``outlier``: one channel of every fifth of the keys is large, as in the residual stream of a trained model.
"""

from __future__ import annotations

from typing import Any

import torch

#: Keys of the sliding window of ``band``.
_WINDOW = 32
#: By how much a shift moves every logit.
_SHIFT = 200.0
STRESSES = ("unit", "x3", "shift-", "shift+", "outlier")
#: hf: contiguous (B, L, H, D) seen transposed, as a model sends it. strided: every second row of a buffer. expand: the
#: scalar 1 seen as the whole shape, whatever the numbers, what ``.sum().backward()`` sends. plain: contiguous.
UPSTREAMS: dict[str, Any] = {
    "hf": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "strided": lambda x: torch.stack([x, torch.zeros_like(x)], 3).flatten(2, 3)[:, :, ::2],
    "expand": lambda x: torch.ones((), dtype=x.dtype, device=x.device).expand(x.shape),
    "plain": lambda x: x.contiguous(),
}


def _fresh(x: Any) -> Any:
    return x.contiguous().clone()


#: bhsd: contiguous (B, H, L, D). bshd: contiguous (B, L, H, D) seen as (B, H, L, D), what a projection yields. packed:
#: views into one (B, L, 3, H, D) buffer. offset: one element into its storage, so 16-byte alignment is lost. expanded
#: and expanded_batch: k and v, not q, are one head (one sample) seen as all of them, with stride 0.
LAYOUTS: dict[str, Any] = {
    "bhsd": _fresh,
    "bshd": lambda x: _fresh(x.transpose(1, 2)).transpose(1, 2),
    "packed": None,
    "offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "expanded": lambda x: _fresh(x[:, :1]).expand(x.shape),
    "expanded_batch": lambda x: _fresh(x[:1]).expand(x.shape),
}


def keep(mask: str, batch: int, rows: int, keys: int) -> Any:
    """(B, 1, L, S) on the CPU: True where a row may see a key."""
    everything = torch.ones(batch, 1, rows, keys, dtype=torch.bool)
    if mask in ("none", "alltrue"):
        return everything
    if mask == "causal":
        return everything.tril()
    how, _, what = mask.partition("_")
    padded = max(1, keys // 3)
    kept = everything if what == "key" else everything.tril(keys - rows)
    if what in ("left", "left_dead"):
        kept[1:, :, :, :padded] = False
    elif what in ("right", "key"):
        kept[1:, :, :, keys - padded :] = False
    elif what == "band":
        kept = kept.triu(keys - rows - _WINDOW + 1)
    elif what != "none":
        raise ValueError(f"no mask is called {mask!r}")
    if what == "left_dead":
        kept[-1] = False
    if how == "pack" and what != "none":
        kept[1:, :, slice(0, padded) if what == "left" else slice(rows - padded, rows), :] = False
    return kept


def bias_of(mask: str, kept: Any, dtype: Any) -> Any:
    """What a mask adds to the logits beside hiding some, rounded to the dtype; a zero for all but ``bias``."""
    if not mask.startswith("bias_"):
        return torch.zeros((), dtype=dtype)
    return torch.randn(kept.shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def hand_over(mask: str, kept: Any, dtype: Any, device: str) -> tuple[Any, bool]:
    """(attn_mask or None, is_causal) as scaled_dot_product_attention takes them."""
    if mask in ("none", "causal"):
        return None, mask == "causal"
    how, _, what = mask.partition("_")
    if how == "pack":
        return None, False
    if how in ("bool", "alltrue"):
        if what == "key":
            return kept[:, :, :1, :].contiguous().to(device).expand(kept.shape), False
        return kept.to(device), False
    if how == "bias":
        return bias_of(mask, kept, dtype).masked_fill(~kept, float("-inf")).to(device), False
    kind = torch.float32 if how == "f32" else dtype
    least = torch.finfo(dtype).min if how == "min" else float("-inf")
    return torch.zeros(kept.shape, dtype=kind).masked_fill(~kept, least).to(device), False


def share(k: Any, v: Any, layout: str) -> tuple[Any, Any]:
    """k and v whose numbers suit the layout: all heads, or samples, alike where one stands for all."""
    return (LAYOUTS[layout](k), LAYOUTS[layout](v)) if layout.startswith("expanded") else (k, v)


def arrange(inputs: tuple[Any, Any, Any], layout: str) -> tuple[Any, Any, Any]:
    """The numbers of q, k and v in new memory, laid out as named; leaves that require gradients."""
    if layout == "packed":
        both = torch.stack([x.transpose(1, 2) for x in inputs], dim=2)  # (B, L, 3, H, D)
        views = [both[:, :, place].transpose(1, 2) for place in range(3)]
    else:
        of_q = _fresh if layout.startswith("expanded") else LAYOUTS[layout]
        views = [of_q(inputs[0]), *map(LAYOUTS[layout], inputs[1:])]
    a, b, c = (view.detach().requires_grad_() for view in views)
    return a, b, c


def draw(shape: dict[str, int], stress: str, seed: int, dtype: Any) -> tuple[Any, Any, Any, Any]:
    """q, k, v and the upstream gradient for ``shape`` (B, H, Hk, L, S, D), rounded to ``dtype``, on the CPU.

    All draws are normal numbers in float32 from a generator of our own, in the order q, k, v, direction or channel,
    upstream gradient; the global generator of torch is not touched.
    """
    generator = torch.Generator().manual_seed(seed)
    batch, heads, groups, depth = shape["B"], shape["H"], shape["Hk"], shape["D"]
    q = torch.randn(batch, heads, shape["L"], depth, generator=generator)
    k = torch.randn(batch, groups, shape["S"], depth, generator=generator)
    v = torch.randn(batch, groups, shape["S"], depth, generator=generator)
    if stress == "x3":
        q, k, v = q * 3, k * 3, v * 3
    elif stress in ("shift-", "shift+"):
        direction = torch.randn(1, heads, 1, depth, generator=generator)
        # All heads of a group share one direction, that of its first head.
        direction = direction[:, :: heads // groups]
        direction = direction / direction.norm(dim=-1, keepdim=True)
        offset = (_SHIFT * depth**0.5) ** 0.5 * direction
        q = 0.5 * q + offset.repeat_interleave(heads // groups, 1)
        k = 0.5 * k + (offset if stress == "shift+" else -offset)
    elif stress == "outlier":
        channel = int(torch.randint(depth, (1,), generator=generator))
        k[:, :, :: max(1, shape["S"] // 5), channel] += 40
        q[..., channel] *= 4
    elif stress != "unit":
        raise ValueError(f"no stress is called {stress!r}")
    upstream = torch.randn(batch, heads, shape["L"], depth, generator=generator)
    return q.to(dtype), k.to(dtype), v.to(dtype), upstream.to(dtype)
