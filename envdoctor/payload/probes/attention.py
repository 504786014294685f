"""Does attention compute right outputs and gradients, with every mask, layout and length that training meets?

Runs torch's scaled_dot_product_attention forward and backward over length × mask × layout × upstream gradient × head
dimension × stress, and measures each result against float64. Only inputs with a constant offset, dead rows, a gradient
and an explicit mask bring out bugs such as these:

* NaN in dq alone where L % 128 = 64 and the logsumexp is below -88.7 (cuDNN): https://github.com/pytorch/pytorch/issues/196678
* NaN gradients at the first step on sm90 (cuDNN in 2.5.0): https://github.com/pytorch/pytorch/pull/138354
* a float32 mask with half inputs misread: https://github.com/pytorch/pytorch/pull/191612
* wrong numbers where S % 32 = 1 and keys are broadcast: https://github.com/pytorch/pytorch/issues/191937
* NaN of fully masked rows in the gradients of all keys (2.4): https://github.com/pytorch/pytorch/pull/131060
* logits rounded to half (math, before 2.5): https://github.com/pytorch/pytorch/pull/128922
* short sequences, wrong batch rows, output gradients read with other strides: flash-attn 2.0.x and 4.0.0b11,
  https://github.com/NVIDIA/TransformerEngine/issues/3216

Options: ``seed`` (other inputs of the same kind), ``grid`` (quick or full instead of the suite's), ``only`` (a number).
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.attention_case import run_cases
from ..probing.attention_grid import cases
from ..probing.backends import chosen, declined
from ..probing.kit import DTYPES, Emit, Job

PROBE = {
    "title": "attention, forward and backward",
    "attention": "sdpa",
    "suites": {
        "quick": [{"dtype": "bf16", "backend": "default"}],
        "full": [
            {"dtype": "bf16", "backend": "default", "grid": "full"},
            {"dtype": "bf16", "backend": "math"},
            {"dtype": "bf16", "backend": "flash", "grid": "full"},
            {"dtype": "bf16", "backend": ["efficient", "cudnn"], "grid": "full", "devices": ["cuda"]},
            {"dtype": "fp16", "backend": ["default", "math", "flash"]},
            {"dtype": "fp16", "backend": ["efficient", "cudnn"], "devices": ["cuda"]},
            {"dtype": "fp32", "backend": ["default", "math"]},
        ],
    },
    "seconds": {"cpu": 90, "cuda": 180},
}


def run(job: Job, emit: Emit) -> None:
    """One observation a case, after one that says which backend torch takes for typical inputs, and why."""
    if job["backend"] in (None, "default"):
        choices = _choices(DTYPES[job["dtype"] or "bf16"], job["device"])
        emit({"kind": "info", "case": "backends", "choices": choices})
    run_cases(job, emit, cases(job["options"].get("grid") or ("full" if job["suite"] == "long" else "quick")))


def _choices(dtype: Any, device: str) -> dict[str, dict[str, Any]]:
    """Which backend the default takes for what a model sends with and without padding, and why not the others."""
    q = torch.zeros(2, 8, 192, 64, dtype=dtype, device=device).requires_grad_()
    k = torch.zeros(2, 2, 192, 64, dtype=dtype, device=device).requires_grad_()
    wide = torch.zeros(2, 8, 192, 512, dtype=dtype, device=device).requires_grad_()
    kept = torch.ones(2, 1, 192, 192, dtype=torch.bool, device=device)
    inputs: dict[str, tuple[Any, ...]] = {
        "no mask": (q, q, q, None, False, False),
        "causal": (q, q, q, None, True, False),
        "boolean mask": (q, q, q, kept, False, False),
        "additive mask": (q, q, q, torch.zeros(kept.shape, dtype=dtype, device=device), False, False),
        "causal, shared heads": (q, k, k, None, True, True),
        "causal, head dimension 512": (wide, wide, wide, None, True, False),
        "causal, shared heads, head dimension 512": (wide, wide[:, :2], wide[:, :2], None, True, True),
    }
    return {
        name: {"backend": chosen(given), **({"declined": declined(given)} if device == "cuda" else {})}
        for name, given in inputs.items()
    }
