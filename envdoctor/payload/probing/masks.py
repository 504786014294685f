"""Masks: which keys a row may see, and how that is handed to a kernel.

A name is ``<how>_<what>``. *How*: ``bool`` (True = keep), ``inf`` (additive in the tested dtype, -inf), ``min``
(additive, the least number of the dtype, as transformers builds it), ``f32`` (additive float32 while q is half).
*What*, on top of a lower triangle aligned to the lower right corner: ``left`` and ``right`` (a third of the keys is
padding in all samples but the first), ``left_dead`` (and the last sample is padding alone), ``band`` (a sliding window
of 32 keys). ``key`` is padding on the right without the triangle, as a view expanded over the rows. ``pack_left`` and
``pack_right`` are for kernels that take sequences without padding, where padded rows do not exist and count as dead;
``pack_none`` is the triangle alone.
"""

from __future__ import annotations

from typing import Any

import torch

_WINDOW = 32


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
    kind = torch.float32 if how == "f32" else dtype
    least = torch.finfo(dtype).min if how == "min" else float("-inf")
    return torch.zeros(kept.shape, dtype=kind).masked_fill(~kept, least).to(device), False
