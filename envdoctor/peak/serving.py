"""Serving engines: what one takes of the GPU at the start, and the place in it for keys and values.

vLLM takes a share of the whole GPU, and the weights and a profiled step come out of it (determine_available_memory of
its worker). SGLang takes a share of what is free, for the weights and the keys and values alone; steps and CUDA graphs
have what it leaves. LMDeploy takes a share of what the weights leave. The table memory-frameworks has the numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Value
from envdoctor.peak.closed_form import CONTEXT, GIB, ClosedForm, Gpu, at_full_depth, gpu_of, need_of
from envdoctor.peak.model import Model
from envdoctor.peak.prediction import rounded, traced
from envdoctor.peak.recipe import RunPlan, RunRecipe, engine_of, plan_of, recipe_of
from envdoctor.peak.section import MemoryProblem, MemorySaving, MemorySection
from envdoctor.peak.sizes import attending, of_language, size_of
from envdoctor.peak.tower import Tower, tower_of
from envdoctor.peak.tracing import TraceSource
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import satisfies

#: CUDA context and libraries with lazy loading, which engines have since CUDA 12, in GiB.
_BESIDE = 0.6
_MIB = 1 << 20
#: The largest vocabulary that is believed, and the one where config.json has none: models have up to 262,144.
_VOCABULARY = 1 << 19
_SHORT = 64
#: Tokens of a step of vLLM before 0.8, at least, and of the longest sequence that it does not divide by itself.
_LEAST_TOKENS, _UNDIVIDED = 2048, 32768
#: A byte for each number in the cache, in place of two (cache_dtype in vllm/config/cache.py).
_BYTE = ("fp8", "int8")
#: The longest sequence that is taken where neither the recipe nor the model tells it; the engine reads config.json.
_USUAL = 8192


class _Engine(NamedTuple):
    """Bytes of one engine on a GPU: it takes ``base`` and a share of the ``whole``, for what is ``inside`` and the keys
    and values of tokens, each ``token``, of which the share ``sure`` is there at the least; it needs from ``least`` to
    ``most`` beside that, of what is ``free``. A ``strict`` one does not start where one sequence of the full length has
    no place; ``unsure`` bytes of what is inside may not be there, and ``images`` bytes more may be."""

    whole: float
    base: float
    inside: float
    token: float
    sure: float
    least: float
    most: float
    free: float
    strict: bool
    unsure: float
    images: float

    def loosened(self, model: Model, weights: float, length: int) -> "_Engine":
        """Return the engine of a shape that is known about: of one whose size alone is, keys and values may be those of
        a few layers."""
        more = model.loose * (weights + length * self.token)
        sure = 0.0 if model.bare else 1 - model.loose
        return self._replace(sure=sure, unsure=self.unsure + model.loose * weights, images=self.images + more)

    def asked(self, share: float) -> float:
        """Return the bytes that the engine takes at the start."""
        return self.base + share * self.whole

    def cache(self, share: float) -> float:
        """Return the place for keys and values, below 0 where even what is inside has none."""
        return self.asked(share) - self.inside

    def needed(self, length: int) -> float:
        """Return the bytes without which the engine cannot start."""
        return self.inside + self.sure * self.token * (length if self.strict else 1)

    def verdict(self, share: float, length: int) -> str:
        """Return whether it starts, and holds the longest sequence."""
        asked = self.asked(share)
        if asked + self.least > self.free or asked + self.unsure < self.needed(length):
            return "does-not-fit"
        place = self.cache(share) - self.images
        return "fits" if asked + self.most <= self.free + 1 and place >= length * self.token else "tight"

    def changes(self, length: int) -> list[MemorySaving]:
        """Return the largest share that leaves others theirs, and the length that fits then where that one does not."""
        most = self.free - self.most - self.base
        share = math.floor(most / self.whole * 100) / 100 if self.whole > 0 else 0.0
        settings: dict[str, object] = {"recipe.gpu_memory_utilization": share}
        if share > 0 and self.verdict(share, length) != "fits":
            length = int((self.cache(share) - self.images) / self.token) // 128 * 128
            settings["recipe.max_model_len"] = length
        fits = share > 0 and length > 0
        change: MemorySaving = {"set": settings, "gib": rounded(self.asked(share)), "verdict": "fits", "keys": {}}
        return [change] if fits else []


def predict_serving(facts: FactSet, model: Model, tracer: TraceSource, known: Mapping[str, Any]) -> MemorySection:
    """Return the section of the report; ``known`` is the table memory-frameworks. Raises :class:`MemoryProblem` if
    there is no number."""
    recipe, config = recipe_of(facts, known), model.config
    given = recipe.given
    stated, gpu = _longest(given, config), gpu_of(facts.each("gpu"), 2)
    if gpu is None:
        raise MemoryProblem("how much a serving engine takes depends on the GPU: give {}", "--gpu NAME")
    length, latent = stated or _USUAL, _latent(config, known["latent"])
    row, card = _row(facts, known["engine"], gpu)
    ranks = int(given.get("tensor_parallel") or 1)
    release = facts.text(f"pkg.{row['name']}")  # where nobody tells it, whether it profiles the sorting is not known
    tokens, sequences = _tokens(recipe, row, card, release, length), given.get("max_sequences") or card["sequences"]
    plan, assumed = _planned(recipe, tokens)
    # Of keys and values that differ in width the traced kernel makes a score for each pair of tokens, which no engine
    # does: a short prompt has hardly any.
    measured = min(tokens, _SHORT) if latent else tokens
    trace = traced({**plan.job, "config": config, "tokens": [measured]}, tracer)
    peak = ClosedForm(trace, 1).at(1, measured)
    weights, cache = float(trace.model["weight_bytes"]), at_full_depth(trace, "cache_bytes")
    sampled = sequences * _vocabulary(config)
    step = max(
        (peak.size - weights - cache) * tokens / measured / ranks + 4.0 * sampled,
        row.get("sampler", 0) * sampled if release else 0.0,
    )
    weights, context, apart = weights / ranks, _BESIDE * GIB, row["of"] != "total"
    whole, base, inside = {
        "total": (gpu.total, 0.0, weights + step + context),
        "free": (gpu.free - context, 0.0, weights),
        "rest": (gpu.free - context - weights, weights, weights),
    }[row["of"]]
    # The profile counts what is allocated, and not what the allocator holds for it.
    low, _, high = need_of(weights + step, weights + step, weights + step, 1.0, {}).reserved
    least = context + step if apart else 0.0
    graphs = 0.0 if given.get("enforce_eager") else row.get("graphs", 0.0)
    most = least + high - low + graphs * GIB
    share = _usual_share(row, card, gpu.total, tokens=tokens, sequences=sequences, ranks=ranks)
    if not apart:  # what it leaves by itself has been enough for CUDA graphs, also on small cards
        most = min(most, (1 - share) * whole)
    elif row["of"] == "free":  # what it leaves by itself is what it takes a step and CUDA graphs to need
        most = max(most, context + (1 - share) * whole)
    if stated is None:
        text = "the longest sequence was not given, and the model's name does not tell it: {} tokens were taken"
        assumed.append(Message(text, f"{length:,}"))
    if given.get("gpu_memory_utilization") is None:
        assumed.append(Message("{} was not given: {}", row["option"], f"{share:g}"))
    share = float(given.get("gpu_memory_utilization") or share)
    narrow = 0.5 if str(given.get("kv_cache_dtype")).startswith(_BYTE) else 1.0
    token, unsure = narrow * (latent or cache / ranks / tokens), 0.0 if apart else context - CONTEXT[0] * GIB
    if token <= 0:
        raise MemoryProblem("how much an engine takes is not predicted for a model that keeps no keys and values")
    sizes = (tokens, max(length, tokens), step, float(trace.model.get("whole_attention", 0.0)) / ranks)
    images, notes = _perhaps(tower_of(config, recipe), release, row, sizes)
    engine = _Engine(whole, base, inside, token, 1.0, least, most, gpu.free, not apart, unsure, images).loosened(
        model, weights, length
    )
    verdict, asked, place = engine.verdict(share, length), engine.asked(share), max(0.0, engine.cache(share))
    needed = max(asked, engine.needed(length))
    if engine_of(given) == "beside":
        text = "the recipe trains and serves, and this is the engine; for the training run: --set {}"
        assumed.append(Message(text, "recipe.gpu_memory_utilization=absent"))
    if verdict == "tight":
        assumed += _beside(engine, share, row, graphs, release)
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
        "process_gib": [rounded(needed + least), rounded(max(needed + least, asked + most))],
        "interval": None,
        "gpu": gpu.name,
        "total_gib": rounded(gpu.total),
        "free_gib": rounded(gpu.free),
        "verdict": verdict if stated or verdict == "does-not-fit" else None,
        "phase": "start" if asked + least > gpu.free else "KV cache",
        "operation": f"{row['option']} {share:g}",
        "terms": [
            {"name": "KV cache", "gib": rounded(place)},
            {"name": "weights", "gib": rounded(weights)},
            {"name": "activations of a step", "gib": rounded(step)},
            {"name": "CUDA context", "gib": rounded(context)},
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
            "images_gib": rounded(images),
        },
        "assumed": [*model.said_of(trace, plan.job), *assumed, *notes],
        "savers": [],
        "settled_by": "",
    }


def _tokens(
    recipe: RunRecipe, row: Mapping[str, Any], card: Mapping[str, Any], release: str | None, length: int
) -> int:
    """Return the tokens of a step, where the longest sequence has this ``length``."""
    usual = card.get("offline", card["tokens"]) if recipe.given.get("method") == "infer" else card["tokens"]
    if "undivided" in row and release is not None and satisfies(release, row["undivided"]):
        divides = length > _UNDIVIDED or "enable_chunked_prefill" in recipe.keys
        usual = _LEAST_TOKENS if divides else max(length, _LEAST_TOKENS)
    return int(recipe.given.get("max_batched_tokens") or usual)


def _perhaps(
    tower: Tower | None, release: str | None, row: Mapping[str, Any], sizes: tuple[int, int, float, float]
) -> tuple[float, list[Message]]:
    """Return the bytes that may be there too, and what is said of them: of images where an engine profiles a step with
    them, and of layers of attention that may not be quantised. ``sizes`` are the tokens of a step, and of one with
    images in a release that does not divide such a prompt; the bytes of a step without images; and those of the layers.
    No picture is divided (vllm/v1/core/encoder_cache_manager.py)."""
    usual, whole, step, attention = sizes
    text = "layers of attention may not be quantised, which the name does not tell: up to {} GiB more"
    notes = [Message(text, f"{attention / GIB:.1f}")] if attention else []
    if tower is None:
        return attention, notes
    undivided = "undivided" in row and (release is None or satisfies(release, row["undivided"]))
    at_once = whole if undivided else usual
    patches = max(tower.patches * at_once, tower.largest)
    size = tower.moment * patches + step * (at_once / usual - 1)
    text = "images are not in what a step takes: {} patches of them at once may take up to {} GiB"
    return size + attention, [*notes, Message(text, f"{patches:,.0f}", f"{size / GIB:.1f}")]


def _planned(recipe: RunRecipe, tokens: int) -> tuple[RunPlan, list[str]]:
    """Return the plan of a step, and what was assumed: weights in float32 that nobody asked for are loaded in 16 bits
    (_find_dtype in vllm/config/model.py)."""
    plan = plan_of(_as_prompt(recipe, tokens))
    if plan.job["load_dtype"] != "float32" or recipe.given.get("load_dtype") == "fp32":
        return plan, [*plan.assumed]
    plan = plan_of(_as_prompt(recipe, tokens, load_dtype="fp16"))
    text = "the dtype of the weights was not given: engines take 16 bits where config.json has none or float32"
    return plan, [*plan.assumed, Message(text)]


def _longest(given: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """Return the tokens of the longest sequence, as the recipe or else the model has it; None if neither tells it."""
    try:
        return size_of(given, "max_model_len", of_language(config).get("max_position_embeddings"))
    except ValueError:
        return None


def _vocabulary(config: Mapping[str, Any]) -> int:
    match of_language(config).get("vocab_size"):
        case int(size) if 0 < size <= _VOCABULARY:
            return size
    return _VOCABULARY


def _latent(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the bytes of one token that each GPU keeps where what keys and values are made of is kept in their place;
    0 where they are kept themselves. Raises :class:`MemoryProblem` for a type that no row names, or without sizes."""
    language = of_language(config)
    if not language.get("kv_lora_rank"):
        return 0.0
    if not any(language.get("model_type") in row["types"] for row in rows):
        raise MemoryProblem("the memory of latent attention is not predicted for engines yet")
    try:
        depth, *widths = (size_of(language, name) for name in ("num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim"))
    except ValueError:
        raise MemoryProblem("config.json lacks sizes that the shipped coefficients need") from None
    return 2.0 * depth * attending(language) * sum(widths)


def _beside(
    engine: _Engine, share: float, row: Mapping[str, Any], graphs: float, release: str | None
) -> Iterator[Message]:
    """Yield what may not have its place beside what the engine takes."""
    if graphs and release is None:
        text = "the release of {} is not known, and {} needs up to {} GiB for CUDA graphs beside what it takes"
        yield Message(text, row["name"], row["releases"], graphs)
    left = engine.free - engine.asked(share)
    if not engine.strict and engine.most > left:
        text = "a step and CUDA graphs may need up to {} GiB beside {} {}, and {} GiB are left"
        yield Message(text, f"{engine.most / GIB:.1f}", row["option"], f"{share:g}", f"{left / GIB:.1f}")


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


def _usual_share(row: Mapping[str, Any], card: Mapping[str, Any], total: float, **step: int) -> float:
    """Return the share that the engine takes by itself, by the tokens, sequences and ranks of a ``step``."""
    if "reserve" not in row:
        return float(row["share"][min(step["ranks"].bit_length(), len(row["share"])) - 1])
    mib = {**row["reserve"], **card.get("reserve", {})}
    captured = min(step["sequences"], card["sequences"])  # no more of them are in CUDA graphs
    left = mib["base"] + mib["token"] * step["tokens"] + mib["sequence"] * captured + mib["gpu"] * step["ranks"]
    return round(1 - float(max(left, mib["least"])) * _MIB / total, 3)


def _as_prompt(recipe: RunRecipe, tokens: int, **more: Value) -> RunRecipe:
    """Return the recipe for one step of the engine: a prompt of so many tokens, alone, with a fused attention."""
    given: dict[str, Value] = {"method": "infer", "max_length": tokens, "batch_size": 1, "attn": "sdpa", **more}
    given["train_batch_size"] = ABSENT
    prompt = (Fact(f"recipe.{name}", value, "engine", "derived") for name, value in given.items())
    return recipe_of(recipe.facts.copy([*recipe.facts, *prompt]), recipe.known)
