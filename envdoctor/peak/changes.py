"""The single changes of a recipe that lower its peak: those with a trace of their own, and smaller numbers."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from envdoctor.peak.closed_form import ClosedForm, Peak

#: Lengths are offered in steps of this many tokens.
STEP = 128
_SMALL_ADAPTER = {
    **{"r": 8, "lora_alpha": None, "lora_dropout": None, "target_modules": "all-linear"},
    **{"modules_to_save": None, "use_dora": None},
}


class Saving(NamedTuple):
    """``set`` are the facts of the recipe after the change, ``job`` what is different in the trace."""

    set: Mapping[str, object]
    job: Mapping[str, Any]


#: The run as it is.
NO_CHANGE = Saving({}, {})


#: DeepSpeed converts the model, where autocast casts what it computes; it has an AdamW of its own, and divides no
#: packed weights.
_BY_DEEPSPEED = {"amp": None, "quantized": None, "optimizer": "AdamW"}


def traced_changes(job: Mapping[str, Any], adapted: str, *, divisible: bool = False) -> Iterator[Saving]:
    """Yield changes that keep batch and length, from the ones that cost nothing to the ones that train something else;
    ``adapted`` is where the reference model of an adapter comes from; of a ``divisible`` run several processes hold the
    same, and ZeRO may divide it."""
    attention = Saving({"recipe.attn": "sdpa"}, {"attention": "sdpa"})
    checkpointing = Saving({"recipe.gradient_checkpointing": True}, {"checkpointing": True})
    single = [attention] * (job["attention"] == "eager")
    single += [checkpointing] * (job["training"] and not job["checkpointing"])
    yield from single
    if len(single) == 2:
        yield Saving({**attention.set, **checkpointing.set}, {**attention.job, **checkpointing.job})
    if not job["training"]:
        return
    if divisible and job["quantized"] is None:
        yield Saving({"recipe.zero_stage": 3}, _BY_DEEPSPEED)
        offloaded = {"recipe.zero_stage": 3, "recipe.offload_optimizer": "cpu"}
        yield Saving(offloaded, {**_BY_DEEPSPEED, "optimizer": "elsewhere"})
    if job["lora"] is None:
        if job["optimizer"] == "AdamW":
            yield Saving({"recipe.optimizer": "adamw_torch_fused"}, {"optimizer": "adamw_fused"})
        if job["optimizer"] in ("AdamW", "adamw_fused"):
            yield Saving({"recipe.optimizer": "adamw_8bit"}, {"optimizer": "adamw_8bit"})
        reference = {"reference": adapted} if job["reference"] == "copy" else {}
        yield Saving({"recipe.method": "lora", "recipe.lora_r": 8}, {"lora": _SMALL_ADAPTER, **reference})
        packed = {"quantized": {"double": False, "upcast": True}}
        yield Saving({"recipe.method": "qlora", "recipe.lora_r": 8}, {"lora": _SMALL_ADAPTER, **packed, **reference})
    elif job["quantized"] is None:
        yield Saving({"recipe.method": "qlora"}, {"quantized": {"double": False, "upcast": True}})


def combined(single: Sequence[Saving]) -> Iterator[list[Saving]]:
    """Yield each two changes together, then each three, and so on; none that sets one thing twice."""
    for number in range(2, len(single) + 1):
        savings = list[Saving]()
        for parts in combinations(single, number):
            settings, job = ([item for part in parts for item in part[place].items()] for place in (0, 1))
            if len(dict(settings)) == len(settings) and len(dict(job)) == len(job):
                savings.append(Saving(dict(settings), dict(job)))
        yield savings


def smaller(form: ClosedForm, name: str, batch: int, tokens: int, fits: Callable[[Peak], bool]) -> Iterator[Saving]:
    """Yield the largest batch (the setting ``name``) and the largest length below the given ones whose peak
    ``fits``."""
    if samples := largest(lambda number: fits(form.at(number, tokens)), batch - 1):
        yield Saving({name: samples}, {"batch": samples})
    if length := STEP * largest(lambda number: fits(form.at(batch, number * STEP)), (tokens - 1) // STEP):
        yield Saving({"recipe.max_length": length}, {"tokens": length})


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that fits, if every smaller one fits too; 0 if none fits."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))
