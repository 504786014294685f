"""Does the same computation give the same numbers twice?

On the CPU a difference means a race (https://github.com/pytorch/pytorch/issues/188792: the first call of a vector maths
library). On a GPU atomics in backward kernels may differ by right: reported as a warning, never as a failure; but the
forward pass of attention must repeat, for out-of-bounds reads show there first
(https://github.com/pytorch/pytorch/pull/171627: lengths that are no multiple of 128).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..probing.job import Emit, Job, judged

PROBE = {"title": "the same numbers twice", "attention": "sdpa"}


def run(job: Job, emit: Emit) -> None:
    """One observation for forward and one for backward of attention, a layer norm and a product, for ``exact``."""
    device = job["device"]
    for length in (192, 261):
        first, second = _once(length, device), _once(length, device)
        for part in ("forward", "backward"):
            tensors = ["o"] if part == "forward" else ["gradients"]
            case = judged("exact", "not-repeatable", tensors, dtype="bf16", backend="default", params={"S": length})
            case.update(case=f"{part} twice, length {length}", soft=device != "cpu" and part == "backward")
            emit({**case, "equal": all(map(torch.equal, first[part], second[part]))})


def _once(length: int, device: str) -> dict[str, list[Any]]:
    generator = torch.Generator().manual_seed(31)

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator).to(torch.bfloat16).to(device).requires_grad_()

    q, k, v = (draw(2, 2, length, 64) for _ in range(3))
    weight = draw(64)
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    normed = functional.layer_norm(out, (64,), weight)
    product = functional.silu(normed.flatten(0, 2) @ normed.flatten(0, 2)[:64].T)
    product.float().pow(2).mean().backward()
    return {"forward": [out.detach(), product.detach()], "backward": [leaf.grad for leaf in (q, k, v, weight)]}
