"""Inputs that bring out what plain normal numbers do not: large values, an outlier channel, a constant offset.

Found by their absence: pytorch#196678 needs a logsumexp below -88.7, flash-attn's own NaN tests multiply by three, and
a kernel that rounds its logits to half is 2 times worse than it must be on normal numbers and 80 times under an offset.

* ``x3``: q, k and v times three.
* ``shift-`` and ``shift+``: q and k get opposite (equal) constant parts along one direction of every head, which moves
  every logit by 200: what trained biases of the q and k projections do.
* ``outlier``: one channel of every fifth of the keys is large, as in the residual stream of a trained model.
"""

from __future__ import annotations

from typing import Any

import torch

STRESSES = ("unit", "x3", "shift-", "shift+", "outlier")

#: By how much a shift moves every logit.
_SHIFT = 200.0


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
