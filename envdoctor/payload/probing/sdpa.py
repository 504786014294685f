"""torch's scaled_dot_product_attention as a kernel of an attention case, with keys repeated or shared by a flag."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["sdpa"]


def sdpa(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """The output (B, H, L, D). Looked up at each call: who wraps torch's function is tested as well."""
    q, k, v = inputs
    extra: dict[str, Any] = {}
    group = q.shape[1] // k.shape[1]
    if group > 1:
        if case["gqa"] == "flag":
            extra["enable_gqa"] = True  # unknown before torch 2.5: a TypeError, and so a skip
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, **extra)
