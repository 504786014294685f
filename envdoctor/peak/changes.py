"""The single changes of a recipe that lower its peak: those with a trace of their own, and smaller numbers."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from envdoctor.peak.closed_form import CONTEXT, GIB, ClosedForm, Need, Peak
from envdoctor.peak.tracing import Job
from envdoctor.versions.pep440 import satisfies

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


def unstated_of(
    given: Mapping[str, Any], job: Job, rows: Sequence[Mapping[str, Any]], version: str | None
) -> Iterator[tuple[str, Job]]:
    """Yield each setting that ``given``, the recipe, leaves open of the ``job`` of a training run, and the job as it is
    the other way. ``rows`` are of the table memory-frameworks, ``version`` is that of transformers (None: not
    known)."""
    framework = str(given.get("framework") or "")
    for row in rows:
        others = framework not in row.get("frameworks", [framework])
        older = version is not None and "releases" in row and not satisfies(version, row["releases"])
        if row["name"] in given or others or older:
            continue
        changed = dict(job)
        for key, value in row["may_be"].items():
            match job[key], value:
                case dict() as before, dict():
                    changed[key] = {**before, **value}
                case _, dict():
                    pass  # the run has no adapter, or no packed weights
                case _:
                    changed[key] = value
        if changed != job:
            yield row["name"], changed


#: A setting is named that changes so many bytes.
_LEAST = GIB / 20


class Shown:
    """Between which ends the measures of a run lie whose ``need`` is known if it is as it was taken; ``names`` are the
    settings by which it may differ. What each changes counts by its square, because not all of them are otherwise at
    once. The allocator holds no more than ``most`` bytes; both ends reach ``further`` times as far."""

    def __init__(self, need: Need, most: float, further: float = 1.0) -> None:
        self.names = list[str]()
        self._need, self._most, self._further = need, most, further
        self._squares = {name: [0.0, 0.0] for name in Need._fields[:3]}
        self._weights = math.inf

    def more(self, name: str, held: float) -> None:
        """Note that the allocator may hold so many bytes more."""
        for measure in ("reserved", "process"):
            self._note(name, measure, 0.0, held)

    def otherwise(self, name: str, weights: float, here: Need, other_weights: float, there: Need) -> None:
        """Note what a run that is otherwise needs, beside the run as it was taken."""
        self._weights = min(self._weights, weights, other_weights)
        for measure, (low, _, high), (bottom, _, top) in zip(self._squares, here[:3], there[:3], strict=True):
            self._note(name, measure, max(low - bottom, 0.0), max(top - high, 0.0))

    def _note(self, name: str, measure: str, *ends: float) -> None:
        for place, size in enumerate(ends):
            self._squares[measure][place] += size**2
        if max(ends) >= _LEAST and name not in self.names:
            self.names.append(name)

    def spans(self) -> dict[str, tuple[float, float]]:
        """Return the least and the most bytes by measure; never less than the weights."""
        spans = {}
        for (measure, (below, above)), (low, _, high) in zip(self._squares.items(), self._need[:3], strict=True):
            least = max(low - math.sqrt(below), min(low, self._weights))
            spans[measure] = least, max(high, min(high + math.sqrt(above), self._most))
        # Where nobody measured what a process has beside its tensors, it may be anything.
        (low, _), (least, _, most) = spans["reserved"], CONTEXT
        low, high = low + least * GIB, self._need.reserved[2] + most * GIB
        spans["process"] = min(spans["process"][0], low), max(spans["process"][1], min(high, self._most))
        return {
            measure: (low / self._further, max(high, min(high * self._further, self._most)))
            for measure, (low, high) in spans.items()
        }
