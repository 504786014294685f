"""Twenty faults of ``inside/fifth_faults.py`` and five that come and go: what may be said of each.

The experiments know none of them. A fault may be told by any of the rules named here.
"""

from __future__ import annotations

__all__ = ["CAUSES", "FLAKY", "MACHINE"]

_OPERATION, _ATTENTION, _CACHE = "probe-operation-inaccurate", "probe-attention-inaccurate", "probe-cache-differs"
_FLASH, _SDPA = "probe-attention-right-without-flash", "probe-transformers-sdpa-differs"
_MASKED = (_ATTENTION, _FLASH, _SDPA, "probe-padded-batch-differs")
#: The rules that may name a fault of a machine, a kernel or a build.
MACHINE = {
    "attention's gradient ignores its mask at keys that fill no tile of 64": _MASKED,
    "a tile of a mask counts as empty where its first number is": (*_MASKED, _CACHE),
    "log_softmax's gradient is not spread over words past the 65,536th": (_OPERATION,),
    "an embedding learns of a token at its first 256 places alone": (_OPERATION,),
    "a running sum of integers starts anew after 512": (_OPERATION, "probe-sum-wrong"),
    "sines and cosines of large angles turn by 6.283": (_OPERATION, "probe-model-code-differs"),
    "a mean along more than 2,048 misses what is left of 1,024": (
        _OPERATION,
        "probe-sum-wrong",
        "probe-rms-norm-inaccurate",
        "probe-model-norm-inaccurate",
    ),
    "a product with at most 32 columns drops the rest of K by three splits": (_OPERATION,),
    "zeroing leaves the last 256 of more than 65,536 numbers": (_OPERATION,),
    "dropout keeps all past 65,536 numbers": (_OPERATION,),
    "fused AdamW adds its decay to the gradient as Adam does": ("probe-optimizer-step-wrong",),
    "autocast keeps its copies of weights": ("probe-mixed-precision-differs", "probe-weights-stand-still"),
    "an all-reduce past 512 KiB is of the first process alone": (
        "probe-all-reduce-wrong",
        "probe-parallel-training-differs",
    ),
}
#: The same of faults that a release of transformers, peft or accelerate could have.
CAUSES = {
    **MACHINE,
    "the last window of an epoch is scaled as a whole one": (
        "probe-trainer-training-differs",
        "probe-accumulation-differs",
    ),
    "labels are padded at the right of prompts padded at the left": ("probe-collator-differs",),
    "checkpointed layers drop others when they run again": ("probe-checkpointing-differs",),
    "heads trained beside LoRA are the base model's once loaded": ("probe-reload-differs", "probe-lora-differs"),
    "yarn's attention factor is lost": ("probe-model-code-differs",),
    "a full window keeps its oldest key and loses its newest": (_CACHE,),
    "each process trains on the batches of the first": ("probe-parallel-training-differs",),
}
#: What comes and goes is called that.
FLAKY = dict.fromkeys(
    (
        "sick: a block of attention, 1 of 15",
        "sick: rows of an embedding, 1 of 10",
        "sick: one number of a product, 1 of 40",
        "sick: a block of logits' gradient, 1 of 6",
        "sick: the last weight of a fused step, 1 of 6",
    ),
    ("probe-unlike-answers", "probe-not-repeatable"),
)
