"""Does memory stay constant over cycles of the same shapes, over shapes that are always new, and in a whole model?

Growth that is none: a longer batch needs more. So cycles repeat the same twelve lengths, or take lengths that were not
there before and are shorter than the longest; and what is allocated after the last one must be what was after the
second. Attention alone, and a model's step and evaluation. On the CPU the storages of live tensors are added up, for
resident memory shows slopes where there is no leak. https://github.com/pytorch/pytorch/issues/152550 (varying lengths),
https://github.com/pytorch/pytorch/issues/147449 (checkpointing); a silent change to the quadratic math kernel with a
mask shows as a larger peak: https://github.com/huggingface/transformers/pull/46960.
"""

from __future__ import annotations

from typing import Any, Callable  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..probing import tiny_models
from ..probing.kit import Emit, Job, Unavailable, held_kib

PROBE = {
    "title": "memory over cycles of the same and of new shapes",
    "attention": "sdpa",
    "suites": {"quick": [{"dtype": "bf16"}]},
}

_CYCLES, _NEW = 4, 3
_LENGTHS = (64, 96, 130, 192, 200, 261, 320, 333, 448, 512, 640, 704)


def run(job: Job, emit: Emit) -> None:
    """Observations for the judge ``growth``; peak memory with a mask beside that without as information."""
    device = job["device"]
    lengths = _LENGTHS if device == "cuda" else _LENGTHS[:6]

    def attend(length: int) -> None:
        _attend(length, device, masked=True)

    same = [list(lengths)] * _CYCLES
    _emit(emit, device, attend, same, f"{_CYCLES} cycles of {len(lengths)} lengths, forward and backward with a mask")
    new = [[max(lengths), *range(33 + cycle, 48 + cycle, _NEW)] for cycle in range(_NEW)]
    _emit(emit, device, attend, new, f"{_NEW} cycles of 5 new lengths, forward and backward with a mask")
    try:
        model = tiny_models.build("llama", "sdpa").to(device)
        case = "steps and evaluation of a model, new lengths"
        _emit(emit, device, lambda length: _use(model, length), new, case)
    except Unavailable as reason:
        emit({"case": "a model", "skip": str(reason)})
    for masked in (False, True) if device == "cuda" else ():
        torch.cuda.reset_peak_memory_stats()
        _attend(2048, device, masked)
        peak = torch.cuda.max_memory_allocated() / 1048576.0
        emit({"kind": "info", "case": "peak with a mask" if masked else "peak without", "peak_mib": round(peak, 1)})


def _emit(emit: Emit, device: str, work: Callable[[int], None], cycles: list[list[int]], case: str) -> None:
    """One observation: what is held after each cycle of lengths."""
    kib, reserved = [], []
    for lengths in cycles:
        for length in lengths:
            work(length)
        kib.append(held_kib(device))
        if device == "cuda":
            free, total = torch.cuda.mem_get_info()
            reserved.append((total - free) / 1024.0)
    held = {"kib": kib, **({"reserved_kib": reserved} if reserved else {})}
    params = {"mask": "bool_left", "cycles": len(cycles)}
    emit({"case": case, "judge": "growth", "backend": "default", "params": params, **held})


def _use(model: Any, length: int) -> None:
    """A training step without the optimizer, and the same batch in evaluation."""
    made = tiny_models.padded(tiny_models.samples((length, length // 2)), "left", position_ids=True)
    batch = tiny_models.moved(made, model)
    model.train()(**batch).loss.backward()
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        model.eval()(**batch)


def _attend(length: int, device: str, masked: bool) -> None:
    q, k, v = (torch.randn(2, 4, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = None
    if masked:
        mask = torch.ones(2, 1, length, length, dtype=torch.bool, device=device).tril()
        mask[1, :, :, : length // 4] = False
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked)
    out.sum().backward()
