"""A kernel that is at fault as long as torch may take it: what cuDNN's was on some GPUs, on any device."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["FAULTS"]

_REAL = torch.nn.functional.scaled_dot_product_attention


def _spoiled(change: Any, switch: str) -> Any:
    def attention(*arguments: Any, **options: Any) -> Any:
        out = _REAL(*arguments, **options)
        padded = options.get("attn_mask") is not None
        return change(out) if padded and getattr(torch.backends.cuda, switch)() else out

    return attention


FAULTS = {
    "cudnn-nan": _spoiled(lambda out: out * float("nan"), "cudnn_sdp_enabled"),
    "cudnn-wrong": _spoiled(lambda out: out * 1.3, "cudnn_sdp_enabled"),
    "flash-wrong": _spoiled(lambda out: out * 1.3, "flash_sdp_enabled"),
    "any-wrong": _spoiled(lambda out: out * 1.3, "math_sdp_enabled"),
}
