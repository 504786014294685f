"""Attention of other packages, flash-attn (with and without padding) and xformers, as kernels of an attention case.

The functions cite the bugs that they exist for, such as https://github.com/NVIDIA/TransformerEngine/issues/3216.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.attention_case import run_cases
from ..probing.kit import Emit, Job
from ..probing.shapes import numbered, vary

PROBES = {
    "flash-attn": {
        "title": "the flash-attn package, forward and backward",
        "attention": "flash-attn",
        "needs": ["torch", "flash_attn"],
        "suites": {
            "quick": [{"dtype": "bf16", "devices": ["cuda"]}],
            "full": [{"dtype": ["bf16", "fp16"], "devices": ["cuda"]}],
        },
        "seconds": {"cpu": 90, "cuda": 120},
    },
    "xformers": {
        "title": "xformers, forward and backward",
        "attention": "xformers",
        "needs": ["torch", "xformers"],
        "suites": {
            "quick": [{"dtype": "bf16", "devices": ["cuda"]}],
            "full": [{"dtype": ["bf16", "fp16"], "devices": ["cuda"]}],
        },
        "seconds": {"cpu": 90, "cuda": 120},
    },
}

_SIZE = {"B": 2, "H": 2, "Hk": 2, "D": 64, "layout": "bshd", "dout": "hf", "stress": "unit", "gqa": "", "L": 192}
_LENGTHS, _DEPTHS = (64, 192, 261), (32, 80, 128, 256)
#: What flash-attn's own fixed bugs need: lengths around its tiles, padding taken out, large values, head dimensions to
#: 256, packed memory, other output gradients, shared keys, few keys for many rows.
FLASH_ATTN = numbered(
    _SIZE,
    [
        *vary(L=_LENGTHS, mask=("none", "causal", "pack_left", "pack_right"), stress=("unit", "x3", "shift-")),
        *vary(D=_DEPTHS, mask=("causal", "pack_left"), layout=("bshd", "packed"), stress="shift-"),
        *vary(mask="causal", dout=("strided", "expand", "plain")),
        *vary(H=8, mask=("causal", "pack_left"), gqa="flag", stress="shift-"),
        {"L": 1, "S": 128, "mask": "pack_none", "stress": "x3"},
        {"L": 17, "S": 129, "mask": "pack_none", "stress": "x3"},
        {"L": 200, "S": 3, "mask": "pack_none", "stress": "x3"},
    ],
)
XFORMERS = numbered(
    _SIZE,
    [
        *vary(L=_LENGTHS, mask=("none", "causal", "inf_right", "min_left"), stress=("unit", "shift-")),
        *vary(D=_DEPTHS, mask=("causal", "inf_right")),
        *vary(mask="causal", layout="packed", dout=("hf", "strided", "expand", "plain")),
    ],
)


def flash_attn(job: Job, emit: Emit) -> None:
    """Does the installed flash-attn package compute right outputs and gradients, on whole and on unpadded batches?

    The package's history holds several silent bugs, each fixed by an upgrade (commits of
    https://github.com/Dao-AILab/flash-attention): NaN in dq where the length is no multiple of 128 (a4f148b6, up to
    2.0.2), a race in the backward (1c41d2b0, up to 2.0.3), NaN with many rows and few keys (c65b5106, 2.0.4 to 2.0.7),
    the output read with the strides of its gradient (9ee0ff1d, 2.0.0), q and k of different contiguity (2423cca3, up to
    2.5.2), and in flash-attn 4 wrong dq for batches of two and more at head dimension 256 (09aa3222,
    https://github.com/NVIDIA/TransformerEngine/issues/3216). A wheel built for another torch shows here, too.
    """
    run_cases(job, emit, FLASH_ATTN, kernel=flash_attn_kernel)


def xformers(job: Job, emit: Emit) -> None:
    """Does the installed xformers compute right attention outputs and gradients, with and without a bias?

    Its wheels are built for one torch each, and a wrong pair either falls back or fails; the memory-efficient kernel is
    also the origin of torch's, which gave NaN gradients with masks and with large values:
    https://github.com/pytorch/pytorch/issues/119320, https://github.com/pytorch/pytorch/issues/178251.
    """
    run_cases(job, emit, XFORMERS, kernel=xformers_kernel)


def flash_attn_kernel(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """The output (B, H, L, D); rows and keys that the padding of ``pack_*`` takes out are never handed over."""
    import flash_attn as package

    q, k, v = (x.transpose(1, 2) for x in inputs)  # (B, L, H, D)
    if not case["mask"].startswith("pack_"):
        return package.flash_attn_func(q, k, v, causal=is_causal).transpose(1, 2)
    what = case["mask"][5:]
    batch, rows, keys = case["B"], case["L"], case["S"]
    padded = 0 if what == "none" else max(1, keys // 3)
    places_q, starts_q = _unpadded(batch, rows, padded, what, q.device)
    places_k, starts_k = _unpadded(batch, keys, padded, what, q.device)
    tokens = [x.flatten(0, 1)[places] for x, places in ((q, places_q), (k, places_k), (v, places_k))]
    packed = package.flash_attn_varlen_func(*tokens, starts_q, starts_k, rows, keys, causal=True)
    out = torch.zeros(batch * rows, *q.shape[2:], dtype=q.dtype, device=q.device).index_copy(0, places_q, packed)
    return out.view(q.shape).transpose(1, 2)


def xformers_kernel(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """The output (B, H, L, D); an additive mask goes in as a view whose rows are aligned, as xformers demands it."""
    from xformers import ops

    q, k, v = (x.transpose(1, 2) for x in inputs)
    bias = ops.LowerTriangularMask() if is_causal else None
    if mask is not None:
        batch, heads, rows, keys = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
        room = torch.zeros(batch, heads, rows, (keys + 7) // 8 * 8, dtype=mask.dtype, device=mask.device)
        bias = room[..., :keys]
        bias.copy_(mask.expand(batch, heads, rows, keys))
    return ops.memory_efficient_attention(q, k, v, attn_bias=bias).transpose(1, 2)


def _unpadded(batch: int, length: int, padded: int, what: str, device: Any) -> tuple[Any, Any]:
    """Places of real tokens in (B · L), and where each sample starts among them (int32, one more than samples).

    The first sample is whole; all others lack ``padded`` tokens on the side ``what``.
    """
    kept = torch.ones(batch, length, dtype=torch.bool)
    if padded:
        kept[1:, slice(0, padded) if what == "left" else slice(length - padded, length)] = False
    starts = torch.nn.functional.pad(kept.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    return kept.flatten().nonzero().flatten().to(device), starts.to(device)
