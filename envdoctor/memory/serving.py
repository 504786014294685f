"""Serving engines: what one takes of the GPU at the start, and the place in it for keys and values.

vLLM takes a share of the whole GPU, and the weights and a profiled step come out of it (determine_available_memory of
its worker). SGLang takes a share of what is free, for the weights and the keys and values alone; steps and CUDA graphs
have what it leaves. LMDeploy takes a share of what the weights leave. The table memory-frameworks has the numbers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Value
from envdoctor.memory.closed_form import GIB, ClosedForm, Gpu, gpu_of, kept_bytes, need_of
from envdoctor.memory.prediction import Model, rounded, traced
from envdoctor.memory.recipe import engine_of, plan_of, settings_of
from envdoctor.memory.section import MemoryProblem, MemorySaving, MemorySection
from envdoctor.memory.tracing import Source
from envdoctor.text.message import Message
from envdoctor.versions.pep440 import satisfies

#: CUDA context and libraries with lazy loading, which engines have since CUDA 12, in GiB.
_BESIDE = 0.6
_MIB = 1 << 20


class _Engine(NamedTuple):
    """One engine on a GPU, in bytes: ``row`` says what it takes a share of, ``step`` are the live tensors of a step,
    ``token`` the keys and values of a token, ``least`` and ``most`` what it needs beside its share."""

    row: Mapping[str, Any]
    gpu: Gpu
    weights: float
    step: float
    token: float
    least: float
    most: float

    @property
    def whole(self) -> float:
        """Return what the share is a share of."""
        if self.row["of"] == "total":
            return self.gpu.total
        return self.gpu.free - _BESIDE * GIB - (self.weights if self.row["of"] == "rest" else 0.0)

    @property
    def within(self) -> float:
        """Return what the share is for beside keys and values."""
        inside = {"total": self.weights + self.step + _BESIDE * GIB, "free": self.weights}
        return inside.get(self.row["of"], 0.0)

    def asked(self, share: float) -> float:
        """Return what is taken at the start."""
        return share * self.whole + (self.weights if self.row["of"] == "rest" else 0.0)

    def cache(self, share: float) -> float:
        """Return the place for keys and values, below 0 where even the weights do not fit."""
        return share * self.whole - self.within

    def needed(self, length: int) -> float:
        """Return what it cannot start without: vLLM wants the place for the longest sequence too."""
        rest = length * self.token if self.row["of"] == "total" else self.token
        return max(self.weights, self.within) + rest

    def verdict(self, share: float, length: int) -> str:
        """Return whether it starts, and holds the longest sequence."""
        asked = self.asked(share)
        if asked + self.least > self.gpu.free or asked < self.needed(length):
            return "does-not-fit"
        return "fits" if asked + self.most <= self.gpu.free and self.cache(share) >= length * self.token else "tight"

    def changes(self, length: int) -> list[MemorySaving]:
        """Return the largest share that leaves others theirs, and the length that fits then where that one does not."""
        most = self.gpu.free - self.most - self.asked(0.0)
        share = math.floor(most / self.whole * 100) / 100 if self.whole > 0 else 0.0
        settings: dict[str, object] = {"recipe.gpu_memory_utilization": share}
        if share > 0 and self.verdict(share, length) != "fits":
            length = int(self.cache(share) / self.token) // 128 * 128
            settings["recipe.max_model_len"] = length
        fits = share > 0 and length > 0
        return [{"set": settings, "gib": rounded(self.asked(share)), "verdict": "fits"}] if fits else []


def predict_serving(facts: FactSet, model: Model, tracer: Source, known: Mapping[str, Any]) -> MemorySection:
    """The section of the report; ``known`` is the table memory-frameworks. Raises :class:`MemoryProblem` where there is
    no number."""
    given, config = settings_of(facts), model.config
    length = given.get("max_model_len") or config.get("max_position_embeddings")
    gpu = gpu_of(facts.each("gpu"), 2)
    if gpu is None or not isinstance(length, int):
        raise MemoryProblem("how much a serving engine takes depends on the GPU and the length: give --gpu NAME")
    if "kv_lora_rank" in config:
        raise MemoryProblem("the memory of latent attention is not predicted for engines yet")
    row, card = _row(facts, known["engine"], gpu)
    ranks = int(given.get("tensor_parallel") or 1)
    usual = card.get("offline", card["tokens"]) if given.get("method") == "infer" else card["tokens"]
    tokens = int(given.get("max_batched_tokens") or usual)
    sequences = int(given.get("max_sequences") or card["sequences"])
    plan = plan_of(_as_prompt(facts, tokens), known)
    trace = traced({**plan.job, "config": config, "tokens": [tokens]}, tracer)
    peak = ClosedForm(trace, 1).at(1, tokens)
    weights, cache = float(trace.model["weight_bytes"]), kept_bytes(trace)
    step = (peak.size - weights - cache) / ranks + 4.0 * sequences * int(config["vocab_size"])
    weights /= ranks
    # The profile counts what is allocated, and not what the allocator holds for it.
    low, _, high = need_of(weights + step, weights + step, weights + step, 1.0, {}).reserved
    least, most = 0.0, high - low
    if row["of"] != "total":
        least, most = _BESIDE * GIB + step, _BESIDE * GIB + step + most
    if not given.get("enforce_eager"):
        most += row.get("graphs", 0.0) * GIB
    reserve = {**row.get("reserve", {}), **card.get("reserve", {})}
    left = reserve and max(
        reserve["base"] + reserve["token"] * tokens + reserve["sequence"] * sequences + reserve["gpu"] * ranks,
        reserve["least"],
    )
    if left:
        share = round(1 - left * _MIB / gpu.total, 3)
    else:
        share = row["share"][min(ranks.bit_length(), len(row["share"])) - 1]
    if row["of"] == "free":  # what it leaves by itself is what it takes a step and CUDA graphs to need
        most = max(most, _BESIDE * GIB + (1 - share) * (gpu.free - _BESIDE * GIB))
    assumed = list[str]()
    if given.get("gpu_memory_utilization") is None:
        assumed.append(Message("{} was not given: {}", row["option"], f"{share:g}"))
    share = float(given.get("gpu_memory_utilization") or share)
    engine = _Engine(row, gpu, weights, step, cache / ranks / tokens, least, most)
    needed = engine.needed(length)
    verdict, asked, place = engine.verdict(share, length), engine.asked(share), max(0.0, engine.cache(share))
    if engine_of(given) == "beside":
        assumed.append(
            Message(
                "the recipe trains and serves, and this is the engine; for the training run: --set "
                "recipe.gpu_memory_utilization=absent"
            )
        )
    if row["of"] != "total" and verdict == "tight" and asked + most > gpu.free:
        text = "a step and CUDA graphs may need up to {} GiB beside {} {}, and {} GiB are left"
        free = f"{(gpu.free - asked) / GIB:.1f}"
        assumed.append(Message(text, f"{most / GIB:.1f}", row["option"], f"{share:g}", free))
    return {
        "level": model.level_of(trace),
        "model": model.named,
        "layers": int(trace.model["depth"]),
        "parameters": int(trace.model["parameters"]),
        "trained_parameters": 0,
        "batch": 1,
        "tokens": tokens,
        "processes": ranks,
        "allocated_gib": rounded(asked),
        "reserved_gib": [rounded(asked)] * 2,
        "process_gib": [rounded(max(asked, needed) + least), rounded(max(asked, needed) + most)],
        "interval": None,
        "gpu": gpu.name,
        "total_gib": rounded(gpu.total),
        "free_gib": rounded(gpu.free),
        "verdict": verdict,
        "phase": "start" if asked + least > gpu.free else "KV cache",
        "operation": f"{row['option']} {share:g}",
        "terms": [
            {"name": "KV cache", "gib": rounded(place)},
            {"name": "weights", "gib": rounded(weights)},
            {"name": "activations of a step", "gib": rounded(step)},
            {"name": "CUDA context", "gib": rounded(_BESIDE * GIB)},
        ],
        "changes": [] if verdict == "fits" else engine.changes(length),
        "reach": [],
        "serving": {
            "asked_gib": rounded(asked),
            "weights_gib": rounded(weights),
            "activations_gib": rounded(step),
            "cache_gib": rounded(place),
            "cache_tokens": int(place / engine.token),
            "length": length,
        },
        "assumed": [*model.said_of(trace, plan.job), *assumed],
        "savers": [],
    }


def _row(facts: FactSet, rows: Sequence[Mapping[str, Any]], gpu: Gpu) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the row of the engine and its release, and of the card; vLLM's where the recipe names no engine."""
    name = facts.text("recipe.framework")
    own = [row for row in rows if row["name"] == name] or [row for row in rows if row["name"] == rows[0]["name"]]
    version = facts.text(f"pkg.{own[0]['name']}")
    row = next((row for row in own if version is not None and satisfies(version, row["releases"])), own[-1])
    named = gpu.name.lower()

    def fits(card: Mapping[str, Any]) -> bool:
        if any(part in named for part in card.get("names", ())):
            return True
        return gpu.total < card["below"] * GIB if "below" in card else "names" not in card

    return row, next(filter(fits, row["cards"]))


def _as_prompt(facts: FactSet, tokens: int) -> FactSet:
    """The same facts for one step of the engine: a prompt of so many tokens, alone, with a fused attention."""
    changed = facts.copy()
    told: dict[str, Value] = {
        "method": "infer",
        "max_length": tokens,
        "batch_size": 1,
        "train_batch_size": ABSENT,
        "attn": "sdpa",
    }
    changed.update(Fact(f"recipe.{name}", value, "engine", "derived") for name, value in told.items())
    return changed
