"""Fifty faults of ``inside/stranger_faults.py`` and twenty of ``inside/second_faults.py``: what must be said of each.

The experiments know none of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from planted import PROBES, planted_session, seen
from trials import LEFT_OUT, Found, trial

__all__ = ["CAUSES", "FLAKY", "MACHINE", "SECOND", "SECOND_MACHINE", "of_set", "second_strangers", "strangers"]

_OPERATION, _ATTENTION = "probe-operation-inaccurate", "probe-attention-inaccurate"
_OPTIMIZER, _TRAINER, _LORA = "probe-optimizer-step-wrong", "probe-trainer-training-differs", "probe-lora-differs"
#: The rule that names the cause of a fault of a machine, a kernel or a build.
MACHINE = {
    "products lose K beyond a multiple of 8": _OPERATION,
    "products leave the last of an odd number of columns from 32,768": _OPERATION,
    "batched products repeat the last but one from 16": _OPERATION,
    "bf16 products summed in bf16 from K = 1,024": _OPERATION,
    "float32 products in TF32 from a tile of 64": "probe-float32-inexact",
    "fp16 products flush subnormal numbers": _OPERATION,
    "attention skips the keys after the last whole tile from 1,025": _ATTENTION,
    "bf16 attention loses columns of heads that are no multiple of 32": _ATTENTION,
    "attention reads keys that are expanded over heads as if they were not": _ATTENTION,
    "attention scales the mask that is added": _ATTENTION,
    "bf16 attention gives NaN in rows without a key": "probe-dead-rows-nan-gradient",
    "attention's backward reads strided gradients as contiguous from heads of 64": _ATTENTION,
    "causal attention aligned at the end where queries are fewer": _ATTENTION,
    "grouped keys laid out by turns from groups of 4": _ATTENTION,
    "softmax without its maximum from 1,025 columns": "probe-operation-nan",
    "log-softmax sums whole thousands from 32,769 columns": _OPERATION,
    "labels counted in fp16, which ends at 2,048": _OPERATION,
    "layer norm's variance as a difference of squares": _OPERATION,
    "layer norm's weight gradient ends at column 2,048": _OPERATION,
    "rms_norm squares the first 4,096 columns only": "probe-rms-norm-inaccurate",
    "exact GELU taken by its tanh": _OPERATION,
    "SiLU's gradient overflows below -88": "probe-operation-nan",
    "embedding's gradient leaves the last tokens from 2,049": _OPERATION,
    "scatter_add loses neighbours with one index from 4,097": _OPERATION,
    "float32 is cut to bf16 from 4,096 numbers": _OPERATION,
    "contiguous copies leave rows after the last tile from 513": _OPERATION,
    "dropout's mask begins again after 4,096 numbers": _OPERATION,
    "fused AdamW forgets the decay from the 31st tensor": _OPTIMIZER,
    "foreach AdamW leaves numbers after the 65,536th": _OPTIMIZER,
    "norms leave numbers after the last whole chunk from 65,537": "probe-gradient-clipping-wrong",
}
#: The same of faults that a release of transformers, peft, accelerate or torch could have.
CAUSES = {
    **MACHINE,
    "Trainer divides by ignored labels too": _TRAINER,
    "rsLoRA merged as LoRA": _LORA,
    "modules_to_save written as they were before": _LORA,
    "biases left out of the saved model": "probe-reload-differs",
    "resumed without the optimizer": _TRAINER,
    "GradScaler divides again at the step": "probe-grad-scaler-wrong",
    "accelerate clips each parameter by itself": _TRAINER,
    "padding is looked for in the first sample": "probe-padded-batch-differs",
    "llama3 positions scaled as linear ones": "probe-model-code-differs",
    "checkpoints under autocast cut the gradient": "probe-checkpointing-differs",
}
#: The same as ``MACHINE`` of the second set, which was planted later.
SECOND_MACHINE = {
    "float32 sums lose eight numbers before a tail of four": _OPERATION,
    "bf16 sums over 64 rows or more are taken in bf16": _OPERATION,
    "batched products with a transposed factor begin again after 2^20 numbers": _OPERATION,
    "bf16 products with one column are summed in bf16": _OPERATION,
    "running sums of 8 rows or more lose their carry at column 512": _OPERATION,
    "embeddings read rows past 2^22 numbers from the beginning": _OPERATION,
    "embeddings read a table that is not contiguous as if it were": _OPERATION,
    "attention ignores the mask of a single query": _ATTENTION,
    "the mask's rows begin again at query 1,024": _ATTENTION,
    "sine and cosine of float32 angles above 256 are reduced by one constant": _OPERATION,
    "log-sigmoid is the logarithm of the sigmoid": "probe-operation-nan",
    "fused AdamW corrects all by the last tensor's steps": _OPTIMIZER,
    "the largest of rows from the 513th are those of earlier rows": _OPERATION,
    "float32 rsqrt is its estimate of nine bits": _OPERATION,
    "batched products that are added take no factor in fp16": _OPERATION,
}
#: The same as ``CAUSES``.
SECOND = {
    **SECOND_MACHINE,
    "label smoothing counts ignored labels": _TRAINER,
    "the bias of LoRA is merged without its scale": _LORA,
    "a part of a window of accumulation counts as a whole one": "probe-accumulation-differs",
    "positions are rounded to bf16": "probe-model-code-differs",
    "a resumed epoch repeats the batch before": "probe-resume-differs",
}
#: What comes and goes is called that.
FLAKY = dict.fromkeys(
    (
        "sick: a bit of a product, each 97th",
        "sick: a block of a product with bias, 1 of 100",
        "sick: a sign in batched products, each 61st",
        "sick: a number of attention, 1 of 40",
        "sick: a gradient of attention, each 7th",
        "sick: a gradient of layer norm, each 11th",
        "sick: rows of log-softmax, 1 of 40",
        "sick: a bit of a copy, 1 of 2,000",
        "sick: rows of the embedding's gradient, 1 of 5",
        "sick: numbers of an optimizer, 1 of 20",
    ),
    "probe-unlike-answers",
)


def strangers(
    python: str, scratch: Path, faults: Collection[str] = (), suite: str = "quick"
) -> Iterator[tuple[str, Found]]:
    """What the suite says of each of these faults, or of all."""
    yield from of_set(CAUSES, FLAKY, python, scratch, faults, suite)


def second_strangers(
    python: str, scratch: Path, faults: Collection[str] = (), suite: str = "quick"
) -> Iterator[tuple[str, Found]]:
    """Like ``strangers``, of the second set: none of these comes and goes."""
    yield from of_set(SECOND, (), python, scratch, faults, suite)


def of_set(
    steady: Collection[str],
    flaky: Collection[str],
    python: str,
    scratch: Path,
    faults: Collection[str] = (),
    suite: str = "quick",
) -> Iterator[tuple[str, Found]]:
    """What the suite says of each of these faults, or of all: those that come and go in whole sessions, which repeat
    what fails, the others as in ``trial``."""
    names = [name for name in steady if not faults or name in faults]
    if names:
        yield from trial(python, scratch, names, suite)
    probes = [name for name in PROBES if PROBES[name].suites.get(suite) and name not in LEFT_OUT]
    for fault in flaky:
        if not faults or fault in faults:
            folder = scratch / str(len(os.listdir(scratch)))
            folder.mkdir()
            outcomes = planted_session(python, folder, fault, *probes, suite=suite)
            seconds = sum(outcome.cpu_seconds or 0.0 for outcome in outcomes)
            yield fault, Found(tuple(sorted(seen(outcomes).roots)), seconds)
