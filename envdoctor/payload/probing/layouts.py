"""Memory layouts of q, k, v and of the upstream gradient: kernels have read one as if it were another.

Kernels take strides, and several confirmed bugs are about them (pytorch#138354, pytorch#139298, pytorch#191937,
flash-attention 9ee0ff1d). The numbers of a case do not depend on the layout, only where they lie.
"""

from __future__ import annotations

from typing import Any

import torch

#: bhsd: contiguous (B, H, L, D). bshd: contiguous (B, L, H, D) seen as (B, H, L, D), what a projection yields. packed:
#: views into one (B, L, 3, H, D) buffer. offset: one element into its storage, so 16-byte alignment is lost. expanded
#: and expanded_batch: k and v are one head (one sample) seen as all of them, with stride 0.
LAYOUTS = ("bhsd", "bshd", "packed", "offset", "expanded", "expanded_batch")

#: hf: contiguous (B, L, H, D) seen transposed, as a model sends it. strided: every second row of a buffer. expand: the
#: scalar 1 seen as the whole shape, what ``.sum().backward()`` sends. plain: contiguous (B, H, L, D).
UPSTREAMS = ("hf", "strided", "expand", "plain")


def share(k: Any, v: Any, layout: str) -> tuple[Any, Any]:
    """k and v whose numbers suit the layout: all heads, or samples, alike where one stands for all."""
    if layout == "expanded":
        return k[:, :1].expand(k.shape), v[:, :1].expand(v.shape)
    if layout == "expanded_batch":
        return k[:1].expand(k.shape), v[:1].expand(v.shape)
    return k, v


def arrange(inputs: tuple[Any, Any, Any], layout: str) -> tuple[Any, Any, Any]:
    """The numbers of q, k and v in new memory, laid out as named; leaves that require gradients."""
    q, k, v = inputs
    if layout == "packed":
        both = torch.stack([x.transpose(1, 2) for x in (q, k, v)], dim=2)  # (B, L, 3, H, D)
        views = tuple(both[:, :, place].transpose(1, 2) for place in range(3))
    elif layout == "bhsd":
        views = tuple(x.contiguous().clone() for x in (q, k, v))
    elif layout == "bshd":
        views = tuple(x.transpose(1, 2).contiguous().clone().transpose(1, 2) for x in (q, k, v))
    elif layout == "offset":
        views = tuple(_offset(x) for x in (q, k, v))
    elif layout == "expanded":
        views = (q.contiguous().clone(), *(x[:, :1].contiguous().clone().expand(x.shape) for x in (k, v)))
    elif layout == "expanded_batch":
        views = (q.contiguous().clone(), *(x[:1].contiguous().clone().expand(x.shape) for x in (k, v)))
    else:
        raise ValueError(f"no layout is called {layout!r}")
    a, b, c = (view.detach().requires_grad_() for view in views)
    return a, b, c


def upstream(gradient: Any, kind: str) -> Any:
    """The upstream gradient's numbers in memory as named; ``expand`` ignores the numbers."""
    if kind == "hf":
        return gradient.transpose(1, 2).contiguous().transpose(1, 2)
    if kind == "strided":
        batch, heads, rows, depth = gradient.shape
        buffer = torch.zeros(batch, heads, 2 * rows, depth, dtype=gradient.dtype, device=gradient.device)
        buffer[:, :, ::2] = gradient
        return buffer[:, :, ::2]
    if kind == "expand":
        return torch.ones((), dtype=gradient.dtype, device=gradient.device).expand(gradient.shape)
    if kind == "plain":
        return gradient.contiguous()
    raise ValueError(f"no upstream gradient is called {kind!r}")


def _offset(x: Any) -> Any:
    buffer = torch.zeros(x.numel() + 1, dtype=x.dtype, device=x.device)
    view = buffer[1:].view(x.shape)
    view.copy_(x)
    return view
