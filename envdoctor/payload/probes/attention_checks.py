"""Checks of attention, torch's and that of the package flash-attn: every mask, layout and length, accuracy in
half precision, rows that see no key, NaN that must stay visible. The functions cite the bugs that they exist for, such
as https://github.com/pytorch/pytorch/pull/128922."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from ..probing.attention_case import force, is_known, observe, prepare, run_cases, sdpa
from ..probing.kit import DTYPES, Emit, Job, Unavailable, attempt, growth, in_parts, lost, seed_of
from ..probing.shapes import cases, numbered, vary
from ..probing.tiny_models import config_of

PROBES = {
    "attention": {
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
    },
    "dead-rows": {
        "title": "rows that see no key",
        "attention": "sdpa",
        "suites": {
            "quick": [{"backend": "default"}],
            "full": [
                {"backend": ["default", "math", "flash"]},
                {"backend": ["efficient", "cudnn"], "devices": ["cuda"]},
            ],
        },
    },
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
    "half-accuracy": {"title": "accuracy of half-precision attention", "attention": "sdpa"},
    "model-attention": {
        "title": "attention with the model's own heads, padded, in training and evaluation",
        "settles": ["model-attention", "padded-batch"],
        "attention": "backend",
        "suites": {"quick": [{"dtype": "bf16", "backend": "default"}]},
        "seconds": {"cpu": 60, "cuda": 60},
    },
    "nan-honesty": {
        "title": "NaN stays visible in attention",
        "attention": "sdpa",
        "suites": {
            "quick": [{"backend": "default"}],
            "full": [
                {"backend": ["default", "math", "flash"]},
                {"backend": ["efficient", "cudnn"], "devices": ["cuda"]},
            ],
        },
    },
}

_SIZE = {"B": 2, "H": 2, "Hk": 2, "layout": "bhsd", "dout": "plain"}
_HALF = numbered({**_SIZE, "L": 96, "D": 64, "mask": "none", "gqa": ""}, [{"stress": "shift-"}])
#: The last sample of left_dead is padding alone: a batch filled up with empty samples.
_DEAD = numbered(
    {**_SIZE, "L": 24, "D": 16, "stress": "unit", "gqa": ""},
    vary(mask=("bool_left", "inf_left", "min_left", "bool_left_dead")),
)
#: Sizes of the cases of packages.
_WHOLE = {**_SIZE, "D": 64, "layout": "bshd", "dout": "hf", "stress": "unit", "gqa": "", "L": 192}
_LENGTHS, _DEPTHS = (64, 192, 261), (32, 80, 128, 256)
#: What flash-attn's own fixed bugs need: lengths around its tiles, padding taken out, large values, head dimensions to
#: 256, packed memory, other output gradients, shared keys, few keys for many rows.
FLASH_ATTN = numbered(
    _WHOLE,
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
#: case -> (shape of the queries and keys, row of the first head that is poisoned, what of it is NaN). A whole row in a
#: sequence of 16, as short as kernels keep NaN in; one element in a row of a head among others.
_POISONED = {"row": ((1, 1, 16, 8), 3, slice(None)), "element": ((1, 2, 40, 64), 7, 3)}

#: What torch calls the switch of a kernel that scaled_dot_product_attention may take.
_SWITCHES = {"cudnn": "cudnn_sdp", "flash": "flash_sdp", "efficient": "mem_efficient_sdp"}
#: The error in units of unavoidable rounding up to which a kernel is right (envdoctor/experiments/probe/verdict.py).
_RIGHT = 4.0
_GLM4 = {"H": 32, "Hk": 2, "D": 128}
#: More heads or larger ones than any released model: the file is not what it says.
_MOST = 1024
_CYCLES = 3


def attention(job: Job, emit: Emit) -> None:
    """Does attention compute right outputs and gradients, with every mask, layout and length that training meets?

    Runs torch's scaled_dot_product_attention forward and backward over length × mask × layout × upstream gradient ×
    head dimension × stress, and measures each result against float64. Only inputs with a constant offset, dead rows, a
    gradient and an explicit mask bring out bugs such as these:

    * NaN in dq alone where L % 128 = 64 and the logsumexp is below -88.7 (cuDNN): https://github.com/pytorch/pytorch/issues/196678
    * NaN gradients at the first step on sm90 (cuDNN in 2.5.0): https://github.com/pytorch/pytorch/pull/138354
    * a float32 mask with half inputs misread: https://github.com/pytorch/pytorch/pull/191612
    * wrong numbers where S % 32 = 1 and keys are broadcast: https://github.com/pytorch/pytorch/issues/191937
    * NaN of fully masked rows in the gradients of all keys (2.4): https://github.com/pytorch/pytorch/pull/131060
    * logits rounded to half (math, before 2.5): https://github.com/pytorch/pytorch/pull/128922
    * short sequences, wrong batch rows, output gradients read with other strides: flash-attn 2.0.x and 4.0.0b11,
      https://github.com/NVIDIA/TransformerEngine/issues/3216

    The option ``grid`` asks for quick or full instead of what the suite has.
    """
    grid = job["options"].get("grid") or ("full" if job["suite"] == "long" else "quick")
    run_cases(job, emit, cases(grid, seed_of(job)))


def dead_rows(job: Job, emit: Emit) -> None:
    """Do rows that may see no key at all stay harmless: the padding of a sample that is padded on the left?

    Before torch 2.5 such rows come out as NaN, and 0 · NaN then enters dk and dv of the whole sample: finite outputs,
    finite loss, NaN in the weights after one step. https://github.com/pytorch/pytorch/issues/103749,
    https://github.com/pytorch/pytorch/issues/110213; zeros by definition since
    https://github.com/pytorch/pytorch/pull/131060. On a B200 NaN in the outputs of exactly these rows was seen with
    2.13: https://github.com/unslothai/unsloth/pull/9848.

    The upstream gradient of dead rows is 0, as a loss over the other tokens sends it. NaN in the output of dead rows
    alone is a warning; NaN in a live row, dk or dv is a failure.
    """
    run_cases(job, emit, _DEAD, ("bf16", "fp16"))


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


def half_accuracy(job: Job, emit: Emit) -> None:
    """Is half-precision attention as accurate as half precision allows when all logits share a large offset?

    The math backend of torch before 2.5 rounds the logits to the half dtype: invisible with normal inputs (2 times the
    unavoidable error), 95 times with the offset that trained q and k biases bring. On the CPU the default of 2.4.1 does
    it in fp16. https://github.com/pytorch/pytorch/pull/128922 (float32 intermediates since 2.5; a switch takes them
    back: ``allow_fp16_bf16_reduction_math_sdp``). Under fp16 autocast the same gave NaN:
    https://github.com/pytorch/pytorch/issues/119131. Default and math × bf16 and fp16: four calls.
    """
    for backend in [job["backend"]] if job["backend"] else ["default", "math"]:

        def named(observation: Job, backend: str = backend) -> None:
            emit({**observation, "backend": backend})

        run_cases({**job, "backend": backend}, named, _HALF, ("bf16", "fp16"))


def model_attention(job: Job, emit: Emit) -> None:
    """Is attention right with the model's own heads, padded, in training and in evaluation; and what cures it if not?

    A report says "eval loss is nan with padding" or "memory grows", of one model: kernels are chosen by the number of
    heads and their size, so these are taken from the config.json of ``--model``, else from GLM-4-9B, whose 32 heads
    share 2 key heads of size 128 (https://huggingface.co/zai-org/glm-4-9b-chat-hf/blob/main/config.json), fine at batch
    size 1 and NaN with a padded batch on torch 2.5.0 (https://github.com/zai-org/GLM-4/issues/724). A case that is
    wrong, and memory that grows, are tried again with one kernel after the other switched off: that names the kernel
    whether its numbers are NaN or wrong but finite, and the switch that is advised has been tried.
    """
    name = "own" if job["model"] else "glm4"
    heads = _own(job["model"]) if job["model"] else _GLM4
    if isinstance(heads, str):
        emit({"case": "heads", "skip": heads, "params": {"model": name}})
        return
    in_parts(partial(_one_case, job, emit, name, job["dtype"] or "bf16"), _cases(heads), 1)
    # Evaluation and training over padded batches of lengths that come again.
    grown = partial(growth, partial(_use, heads, job["device"]), [(33, 64, 97)] * _CYCLES, job["device"])
    params, measures = {"model": name}, grown()
    if _grows(measures):
        params["cured_by"] = _cure(grown, lambda again: not _grows(again))
    title = f"{_CYCLES} cycles of 3 lengths, {heads['H']} heads over {heads['Hk']}"
    emit({"case": title, "judge": "growth", **measures, "dtype": "bf16", "params": params})


def nan_honesty(job: Job, emit: Emit) -> None:
    """Does a NaN that enters attention come out again, in its own row and nowhere else?

    torch 2.5.0 and 2.5.1 turn a NaN query into zeros on the CPU (default and flash, every dtype):
    https://github.com/pytorch/pytorch/issues/141128. A watch on the loss is blind behind such a layer: training goes on
    with numbers that look right. 2.4.1 and 2.13.0 hand the NaN on.

    Two inputs for each dtype: a whole query row of NaN in a tiny sequence, and one NaN element in a longer one. With
    fewer than 16 keys the default and the flash kernel of 2.13.0 give zeros on some CPUs, which no training meets.
    """
    backend = job["backend"] or "default"
    if not is_known(backend, emit):
        return
    for name in [job["dtype"]] if job["dtype"] else DTYPES:
        for case, (shape, _, _) in _POISONED.items():
            fields = {"dtype": name, "case": case, "judge": "honesty", "expected": shape[3]}
            fields["params"] = {"poisoned": case, "D": shape[3], "L": shape[2], "S": shape[2]}
            emit({**fields, **attempt(partial(_honesty, case, DTYPES[name], backend, job["device"]), job["device"])})


def flash_attn_kernel(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """Return the output (B, H, L, D); rows and keys that the padding of ``pack_*`` takes out are never handed over."""
    import flash_attn as package

    q, k, v = (x.transpose(1, 2) for x in inputs)  # (B, L, H, D)
    if not case["mask"].startswith("pack_"):
        return package.flash_attn_func(q, k, v, causal=is_causal).transpose(1, 2)
    side = case["mask"][5:]
    batch, rows, keys = case["B"], case["L"], case["S"]
    padded = 0 if side == "none" else max(1, keys // 3)
    places_q, starts_q = _unpadded(batch, rows, padded, side, q.device)
    places_k, starts_k = _unpadded(batch, keys, padded, side, q.device)
    tokens = [x.flatten(0, 1)[places] for x, places in ((q, places_q), (k, places_k), (v, places_k))]
    packed = package.flash_attn_varlen_func(*tokens, starts_q, starts_k, rows, keys, causal=True)
    out = torch.zeros(batch * rows, *q.shape[2:], dtype=q.dtype, device=q.device).index_copy(0, places_q, packed)
    return out.view(q.shape).transpose(1, 2)


def _unpadded(batch: int, length: int, padded: int, side: str, device: Any) -> tuple[Any, Any]:
    """Return places of real tokens in (B · L), and where each sample starts among them (int32, one more than samples).

    The first sample is whole; all others lack ``padded`` tokens on this ``side``.
    """
    real = torch.ones(batch, length, dtype=torch.bool)
    if padded:
        real[1:, slice(0, padded) if side == "left" else slice(length - padded, length)] = False
    starts = torch.nn.functional.pad(real.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    return real.flatten().nonzero().flatten().to(device), starts.to(device)


def _honesty(case: str, dtype: Any, backend: str, device: str) -> dict[str, Any]:
    """Return how many values of the poisoned row came out as NaN, and of others as anything that is not finite."""
    shape, row, poisoned = _POISONED[case]
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator).to(dtype) for _ in range(3)]
    inputs[0][0, 0, row, poisoned] = float("nan")
    with torch.no_grad(), force(backend):
        out = functional.scaled_dot_product_attention(*[x.to(device) for x in inputs]).float().cpu()
    inside = out[0, 0, row]
    return {"row_nan": int(torch.isnan(inside).sum()), "elsewhere": lost(out) - lost(inside)}


def _one_case(job: Job, emit: Emit, name: str, dtype: str, cases: list[dict[str, Any]]) -> None:
    """Observe a case in training and in evaluation."""
    (case,) = cases
    prepared = prepare(case, DTYPES[dtype])
    for kernel in (sdpa, _evaluated):
        again = partial(observe, prepared, DTYPES[dtype], job["device"], kernel)
        record = again()
        record["params"].update(model=name, phase="evaluation" if kernel is _evaluated else "training")
        record["case"] = f"{case['H']} heads over {case['Hk']}, {record['case']}, {record['params']['phase']}"
        if kernel is _evaluated:
            record["gate"] = ["o"]
        if not ("error" in record or "skip" in record or _right(record, kernel)):
            record["params"]["cured_by"] = _cure(again, partial(_right, kernel=kernel))
        emit({"dtype": dtype, **record})


def _cases(heads: dict[str, int]) -> list[dict[str, Any]]:
    """Return cases of lengths that are 64 modulo 128, padded and masked as by transformers."""
    shared = {"B": 2, **heads, "layout": "bshd", "dout": "hf", "gqa": "repeat", "L": 64, "S": 64}
    varied = [("causal", "unit"), ("bool_left", "unit"), ("min_left", "unit"), ("bool_left", "shift-")]
    varied.append(("bool_right", "unit"))
    return [
        {**shared, "mask": mask, "stress": stress, "number": number} for number, (mask, stress) in enumerate(varied)
    ]


def _evaluated(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """Return the output of evaluation, which has no gradients; those of plain zeros stand for them."""
    with torch.no_grad():
        out = sdpa(inputs, mask, is_causal, case)
    return out + sum(x.sum() * 0.0 for x in inputs)


def _right(observation: dict[str, Any], kernel: Any) -> bool:
    gate = ["o"] if kernel is _evaluated else list(observation.get("ratio", {}))
    ratios = [observation.get("ratio", {}).get(name) for name in gate]
    lost = [name for name in observation.get("nonfinite", {}) if name in gate or kernel is not _evaluated]
    return not lost and all(ratio is not None and ratio <= _RIGHT for ratio in ratios)


def _grows(measures: dict[str, Any]) -> bool:
    """Return whether memory grows, as the judge ``growth`` sees it."""
    return bool(measures["kib"][-1] > measures["kib"][1])


def _cure(measure: Callable[[], dict[str, Any]], right: Callable[[dict[str, Any]], bool]) -> str:
    """Return the kernel without which the case is measured and right: cudnn, flash, efficient, or "none"."""
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


def _use(heads: dict[str, int], device: str, length: int) -> None:
    """Evaluate and train once with a batch whose second sample is padded."""
    q, k, v = (
        torch.randn(2, length, n, heads["D"], device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
        for n in (heads["H"], heads["Hk"], heads["Hk"])
    )
    mask = torch.ones(2, 1, length, length, dtype=torch.bool, device=device).tril()
    mask[1, :, :, : length // 3] = False
    with torch.no_grad():
        sdpa((q, k, v), mask, False, {"gqa": "repeat"})
    sdpa((q, k, v), mask, False, {"gqa": "repeat"}).float().sum().backward()


def _own(folder: str) -> Any:
    """Return the heads that config.json names, or why they cannot be told."""
    try:
        config = config_of(folder)
        config = config.get("text_config") or config
        values = [config.get(key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")]
        heads, shared, size, width = values
        heads = heads or config["num_attention_heads"]
        shared = shared or (config.get("multi_query_attention") and config.get("multi_query_group_num")) or heads
        size = size or config.get("kv_channels") or width // heads
    except Unavailable as reason:
        return f"the heads in config.json cannot be told: {reason}"
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        return f"the heads in config.json cannot be told: {type(error).__name__}"
    numbers = (heads, shared, size)
    if not all(isinstance(number, int) and 0 < number <= _MOST for number in numbers) or heads % shared:
        return f"the heads in config.json cannot be told: {heads!r} heads over {shared!r} of size {size!r}"
    return {"H": heads, "Hk": shared, "D": size}
