"""Twenty faults of ``inside/fourth_faults.py`` and five that come and go: what may be said of each.

The experiments know none of them. A fault may be told by any of the rules named here.
"""

from __future__ import annotations

__all__ = ["CAUSES", "FLAKY", "MACHINE"]

_OPERATION, _ATTENTION = "probe-operation-inaccurate", "probe-attention-inaccurate"
_FLASH, _SDPA, _EAGER = (
    "probe-attention-right-without-flash",
    "probe-transformers-sdpa-differs",
    "probe-transformers-eager-differs",
)
_MODEL, _CACHE, _LORA = "probe-model-code-differs", "probe-cache-differs", "probe-lora-differs"
_TRAINER, _TRL, _STEP = "probe-trainer-training-differs", "probe-trl-training-differs", "probe-optimizer-step-wrong"
#: The rules that may name a fault of a machine, a kernel or a build.
MACHINE = {
    "one query sees masked keys past the 512th": (_ATTENTION, _FLASH, _CACHE, "probe-padded-batch-differs"),
    "values lose the gradient of their first tokens where 64 does not divide the length": (_ATTENTION, _FLASH, _SDPA),
    "SiLU reads half of a projection as if it were contiguous": (_OPERATION, _MODEL),
    "softmax counts an empty lane where all numbers of a row are negative": (_OPERATION, _EAGER, _MODEL),
    "layer norm takes its inputs as normed where only its weight is trained": (_OPERATION,),
    "rms_norm's gradient is taken by the variance": (_OPERATION, "probe-rms-norm-inaccurate"),
    "losses that are not reduced give no gradient": (_OPERATION, _TRL),
    "a bias is added by rows where a product is square": (_OPERATION,),
    "float16 layers with a bias give zero": (_OPERATION,),
    "weights' gradients of over 32,768 tokens are too large after another batch size": (
        _OPERATION,
        "probe-sum-wrong",
    ),
    "numbers cast to half lose the last of a block that is not full": (_OPERATION, "probe-mixed-precision-differs"),
    "choosing by a condition that is a slice reads its memory in order": (_OPERATION, _MODEL),
    "fused Adam does not see the loss scale and overflows": (_STEP, "probe-grad-scaler-wrong"),
}
#: The same of faults that a release of transformers, peft or accelerate could have.
CAUSES = {
    **MACHINE,
    "llama3 positions lose their scale at load": ("probe-reload-differs",),
    "label smoothing under LoRA does not shift labels": (_TRAINER, _LORA),
    "first tokens count among labels": (_TRAINER, "probe-accumulation-differs"),
    "experts' LoRA is merged with the ranks of other experts": (_LORA,),
    "a resumed epoch has the order of the first": ("probe-resume-differs",),
    "beams keep the cache of other beams": (_CACHE,),
    "norms' weights get no gradient": (_MODEL, "probe-model-norm-inaccurate"),
}
#: What comes and goes is called that.
FLAKY = dict.fromkeys(
    (
        "sick: a block of layer norm, 1 of 10",
        "sick: the largest of a softmax, 1 of 30",
        "sick: numbers that are divided, 1 of 8",
        "sick: the choice among 257 or more, 1 of 4",
        "sick: a block of grouped products, 1 of 12",
    ),
    ("probe-unlike-answers", "probe-not-repeatable"),
)
