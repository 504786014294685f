"""The single changes of a recipe that lower its peak: those with a trace of their own, and smaller numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.memory.closed_form import ClosedForm, Peak

#: Lengths are offered in steps of this many tokens.
_STEP = 128
_SMALL_ADAPTER = {
    **{"r": 8, "lora_alpha": None, "lora_dropout": None, "target_modules": "all-linear"},
    **{"modules_to_save": None, "use_dora": None},
}


class Saving(NamedTuple):
    """``set`` are the facts of the recipe after the change, ``job`` what is different in the trace."""

    set: Mapping[str, object]
    job: Mapping[str, Any]


def traced_changes(job: Mapping[str, Any]) -> Iterator[Saving]:
    """Changes that keep batch and length, from those that cost nothing to those that train something else."""
    single = []
    if job["attention"] == "eager":
        single.append(Saving({"recipe.attn": "sdpa"}, {"attention": "sdpa"}))
    if job["training"] and not job["checkpointing"]:
        single.append(Saving({"recipe.gradient_checkpointing": True}, {"checkpointing": True}))
    yield from single
    if len(single) == 2:
        yield Saving({**single[0].set, **single[1].set}, {**single[0].job, **single[1].job})
    if not job["training"]:
        return
    if job["lora"] is None:
        if job["optimizer"] in ("AdamW", "adamw_fused"):
            yield Saving({"recipe.optimizer": "adamw_8bit"}, {"optimizer": "adamw_8bit"})
        reference = {"reference": "adapter-off"} if job["reference"] == "copy" else {}
        yield Saving({"recipe.method": "lora", "recipe.lora_r": 8}, {"lora": _SMALL_ADAPTER, **reference})
    elif job["quantized"] is None:
        yield Saving({"recipe.method": "qlora"}, {"quantized": {"double": False, "upcast": True}})


def smaller(form: ClosedForm, name: str, batch: int, tokens: int, fits: Callable[[Peak], bool]) -> Iterator[Saving]:
    """The largest batch (the setting ``name``), and the largest length, below those given, whose peak ``fits``."""
    found = largest(lambda number: fits(form.at(number, tokens)), batch - 1)
    if found:
        yield Saving({name: found}, {"batch": found})
    steps = largest(lambda number: fits(form.at(batch, number * _STEP)), (tokens - 1) // _STEP)
    if steps:
        yield Saving({"recipe.max_length": steps * _STEP}, {"tokens": steps * _STEP})


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, where every smaller one does too; 0 when none does."""
    low, high = 0, max(most, 0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
