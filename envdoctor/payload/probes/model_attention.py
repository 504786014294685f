"""Attention with the model's own heads, padded, in training and in evaluation; and what cures it when it is wrong.

A report says "eval loss is nan with padding" or "memory grows", of one model: kernels are chosen by the number of heads
and their size, so these are taken from the config.json of ``--model``, else from GLM-4-9B, whose 32 heads share 2 key
heads of size 128 (https://huggingface.co/zai-org/glm-4-9b-chat-hf/blob/main/config.json), fine at batch size 1 and NaN
with a padded batch on torch 2.5.0 (https://github.com/zai-org/GLM-4/issues/724). A case that is wrong, and memory that
grows, are tried again with one kernel after the other switched off: that names the kernel whether its numbers are NaN
or wrong but finite, and the switch that is advised has been tried.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..probing.attention_case import observe, prepare, sdpa
from ..probing.kit import DTYPES, Emit, Job, Unavailable, held_kib, in_parts
from ..probing.tiny_models import config_of

PROBE = {
    "title": "attention with the model's own heads, padded, in training and evaluation",
    "settles": ["model-attention", "padded-batch"],
    "attention": "backend",
    "suites": {"quick": [{"dtype": "bf16", "backend": "default"}]},
    "seconds": {"cpu": 60, "cuda": 60},
}

#: What torch calls the switch of a kernel that scaled_dot_product_attention may take.
_SWITCHES = {"cudnn": "cudnn_sdp", "flash": "flash_sdp", "efficient": "mem_efficient_sdp"}
#: The error in units of unavoidable rounding up to which a kernel is right (envdoctor/experiments/probe/verdict.py).
_RIGHT = 4.0
_GLM4 = {"H": 32, "Hk": 2, "D": 128}
#: More heads or larger ones than any released model: the file is not what it says.
_MOST = 1024
_CYCLES = 3


def run(job: Job, emit: Emit) -> None:
    """One observation a case for the judge ``attention``, and one for the judge ``growth``."""
    name = "own" if job["model"] else "glm4"
    heads = _own(job["model"]) if job["model"] else _GLM4
    if isinstance(heads, str):
        emit({"case": "heads", "skip": heads, "params": {"model": name}})
        return
    in_parts(partial(_one_case, job, emit, name, job["dtype"] or "bf16"), _cases(heads), 1)
    params, found = {"model": name}, _growth(heads, job["device"])
    if _grows(found):
        params["cured_by"] = _cure(partial(_growth, heads, job["device"]), lambda again: not _grows(again))
    emit({**found, "dtype": "bf16", "params": params})


def _one_case(job: Job, emit: Emit, name: str, dtype: str, cases: list[dict[str, Any]]) -> None:
    """Training and evaluation."""
    (case,) = cases
    prepared = prepare(case, DTYPES[dtype])
    for kernel in (sdpa, _evaluated):
        again = partial(observe, prepared, DTYPES[dtype], job["device"], kernel)
        found = again()
        found["params"].update(model=name, phase="evaluation" if kernel is _evaluated else "training")
        found["case"] = f"{case['H']} heads over {case['Hk']}, {found['case']}, {found['params']['phase']}"
        if kernel is _evaluated:
            found["gate"] = ["o"]
        if not ("error" in found or "skip" in found or _right(found, kernel)):
            found["params"]["cured_by"] = _cure(again, partial(_right, kernel=kernel))
        emit({"dtype": dtype, **found})


def _cases(heads: dict[str, int]) -> list[dict[str, Any]]:
    """Lengths of 64 modulo 128, as transformers pads and masks them."""
    shared = {"B": 2, **heads, "layout": "bshd", "dout": "hf", "gqa": "repeat", "L": 64, "S": 64}
    varied = [("causal", "unit"), ("bool_left", "unit"), ("min_left", "unit"), ("bool_left", "shift-")]
    varied.append(("bool_right", "unit"))
    return [
        {**shared, "mask": mask, "stress": stress, "number": number} for number, (mask, stress) in enumerate(varied)
    ]


def _evaluated(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """The output of evaluation, which has no gradients; those of plain zeros stand for them."""
    with torch.no_grad():
        out = sdpa(inputs, mask, is_causal, case)
    return out + sum(x.sum() * 0.0 for x in inputs)


def _right(found: dict[str, Any], kernel: Any) -> bool:
    gate = ["o"] if kernel is _evaluated else list(found.get("ratio", {}))
    ratios = [found.get("ratio", {}).get(name) for name in gate]
    lost = [name for name in found.get("nonfinite", {}) if name in gate or kernel is not _evaluated]
    return not lost and all(ratio is not None and ratio <= _RIGHT for ratio in ratios)


def _grows(found: dict[str, Any]) -> bool:
    """As the judge ``growth`` sees it."""
    return bool(found["kib"][-1] > found["kib"][1])


def _cure(measure: Callable[[], dict[str, Any]], right: Callable[[dict[str, Any]], bool]) -> str:
    """The kernel without which it is measured and right: cudnn, flash or efficient; none."""
    switches: Any = torch.backends.cuda
    for name, switch in _SWITCHES.items():
        enabled = getattr(switches, switch + "_enabled", None)
        if enabled is None or not enabled():
            continue
        getattr(switches, "enable_" + switch)(False)
        try:
            again = measure()
        finally:
            getattr(switches, "enable_" + switch)(True)
        if "error" not in again and "skip" not in again and right(again):
            return name
    return "none"


def _growth(heads: dict[str, int], device: str) -> dict[str, Any]:
    """Evaluation and training over padded batches of lengths that come again: what is held after each cycle."""
    held = []
    for _ in range(_CYCLES):
        for length in (33, 64, 97):
            case = {**_cases(heads)[1], "L": length, "S": length}
            q, k, v = (
                torch.randn(2, length, n, heads["D"], device=device, dtype=torch.bfloat16).transpose(1, 2)
                for n in (heads["H"], heads["Hk"], heads["Hk"])
            )
            mask = torch.ones(2, 1, length, length, dtype=torch.bool, device=device).tril()
            mask[1, :, :, : length // 3] = False
            for x in (q, k, v):
                x.requires_grad_()
            with torch.no_grad():
                sdpa((q, k, v), mask, False, case)
            sdpa((q, k, v), mask, False, case).float().sum().backward()
            del q, k, v, mask, x
        held.append(held_kib(device))
    title = f"{_CYCLES} cycles of 3 lengths, {heads['H']} heads over {heads['Hk']}"
    return {"case": title, "judge": "growth", "kib": held}


def _own(folder: str) -> Any:
    """The heads that config.json names, or why they cannot be told."""
    try:
        config = config_of(folder)
        config = config.get("text_config") or config
        known = [config.get(key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")]
        heads, shared, size, width = known
        heads = heads or config["num_attention_heads"]
        shared = shared or (config.get("multi_query_attention") and config.get("multi_query_group_num")) or heads
        size = size or config.get("kv_channels") or width // heads
    except Unavailable as reason:
        return f"the heads in config.json cannot be told: {reason}"
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        return f"the heads in config.json cannot be told: {type(error).__name__}"
    numbers = (heads, shared, size)
    if not all(isinstance(one, int) and 0 < one <= _MOST for one in numbers) or heads % shared:
        return f"the heads in config.json cannot be told: {heads!r} heads over {shared!r} of size {size!r}"
    return {"H": heads, "Hk": shared, "D": size}
