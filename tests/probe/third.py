"""Twenty faults of ``inside/third_faults.py`` and five that come and go: what may be said of each.

The experiments know none of them. A fault may be told by any of the rules named here.
"""

from __future__ import annotations

__all__ = ["CAUSES", "FLAKY", "MACHINE"]

_OPERATION, _ATTENTION = "probe-operation-inaccurate", "probe-attention-inaccurate"
_MODEL, _SDPA = "probe-model-code-differs", "probe-transformers-sdpa-differs"
_CACHE, _PADDED, _PACKED = "probe-cache-differs", "probe-padded-batch-differs", "probe-packing-leaks"
_LORA, _LOSS, _SUM = "probe-lora-differs", "probe-model-loss-differs", "probe-sum-wrong"
_STEP, _TRAINER, _TRL = "probe-optimizer-step-wrong", "probe-trainer-training-differs", "probe-trl-training-differs"
_NAN, _FLASH = "probe-operation-nan", "probe-attention-right-without-flash"
#: The rules that may name a fault of a machine, a kernel or a build.
MACHINE = {
    "causal attention in half shows four queries the same keys": (_ATTENTION, _FLASH),
    "one query over 1,024 keys or more reads those of other heads": (_ATTENTION, _FLASH, _CACHE),
    "values narrower than queries are read as wide as queries": (_ATTENTION, _SDPA, _MODEL),
    "linear layers read a weight that is not contiguous as if it were": (_OPERATION,),
    "float32 products leave rows after the 4,096th": (_OPERATION, _SUM),
    "float32 products on several threads lose a row where one thread ends": (_OPERATION, _SUM),
    "grouped products give a group without rows what another had": (_OPERATION, _MODEL),
    "one position joined to a cache is the one before it": (_OPERATION, _CACHE),
    "filling by a mask follows the memory of what is not contiguous": (_OPERATION,),
    "gathering counts numbers in eleven bits": (_OPERATION, _MODEL, _TRL),
    "the gradient of losses over positions ends with the sample at 2^20 logits": (_OPERATION,),
    "losses that are not reduced begin again after 2^22 logits": (_OPERATION, _TRL),
    "GELU by tanh is NaN from 10.5": (_NAN,),
    "addcmul and addcdiv leave what is not contiguous as it was": (_OPERATION, _STEP),
}
#: The same of faults that a release of transformers, peft or accelerate could have.
CAUSES = {
    **MACHINE,
    "a window of keys that is full forgets its first": (_CACHE,),
    "a last batch that is not full counts as a full one": ("probe-trainer-evaluation-differs",),
    "DoRA's magnitudes get no gradient": (_LORA,),
    "norms that were loaded are initialized again": ("probe-reload-differs",),
    "the first token of a packed sample is a label": ("probe-collator-differs", _PACKED, "probe-trl-packing-labels"),
    "generated tokens have the positions of the longest prompt": (_CACHE, _PADDED, _MODEL),
}
#: What comes and goes is called that.
FLAKY = dict.fromkeys(
    (
        "sick: cosines of eight bits, 1 of 3",
        "sick: sums of columns, 1 of 15",
        "sick: the largest of running sums, 1 of 4",
        "sick: a bit of what an embedding reads, 1 of 40",
        "sick: rows added by index are NaN, 1 of 8",
    ),
    ("probe-unlike-answers", "probe-not-repeatable"),
)
