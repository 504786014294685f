"""vLLM: it asks for a share of the GPU at the start, and what the weights and a profiled step leave is its KV cache.

As ``determine_available_memory`` of vLLM's worker has it: KV cache = total x utilisation - weights - the peak of a step
with the most tokens - what is not torch's. CUDA graphs, what torch's allocator holds beyond live tensors, and other
processes take theirs beside that share.
"""

import math
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Value
from envdoctor.memory.closed_form import GIB, ClosedForm, Gpu, gpu_of, kept_bytes, need_of
from envdoctor.memory.prediction import Model, rounded, traced
from envdoctor.memory.recipe import engine_of, plan_of, settings_of
from envdoctor.memory.section import MemoryProblem, MemorySaving, MemorySection
from envdoctor.memory.tracing import Source
from envdoctor.text.message import Message

#: vLLM's defaults: max_num_batched_tokens and max_num_seqs of its V1 engine.
_BATCHED_TOKENS = 2048
_SEQUENCES = 256
#: gpu_memory_utilization where it is not given; releases of 2026 take 0.92.
_SHARE = 0.9
#: CUDA context and libraries with lazy loading, which engines have since CUDA 12, in GiB.
_BESIDE = 0.6
#: CUDA graphs are taken beside the share, after the cache was given its place: up to this much, in GiB. It says 1 to 3
#: itself (https://github.com/vllm-project/vllm/blob/v0.6.1/vllm/worker/model_runner.py); a reading is 2.4
#: (https://github.com/vllm-project/vllm/issues/7553).
_GRAPHS = 3.0


def predict_serving(facts: FactSet, model: Model, tracer: Source) -> MemorySection:
    """The section of the report. Raises :class:`MemoryProblem` where there is no number."""
    given, config = settings_of(facts), model.config
    if (engine := given.get("framework")) in ("sglang", "lmdeploy"):
        raise MemoryProblem("{} divides what is free, not the whole GPU: only vLLM is predicted yet", engine)
    length = given.get("max_model_len") or config.get("max_position_embeddings")
    gpu = gpu_of(facts.each("gpu"), 2)
    if gpu is None or not isinstance(length, int):
        raise MemoryProblem("how much a serving engine takes depends on the GPU and the length: give --gpu NAME")
    if "kv_lora_rank" in config:
        raise MemoryProblem("the memory of latent attention is not predicted for engines yet")
    ranks = int(given.get("tensor_parallel") or 1)
    tokens = int(given.get("max_batched_tokens") or _BATCHED_TOKENS)
    plan = plan_of(_as_prompt(facts, tokens))
    trace = traced({**plan.job, "config": config, "tokens": [tokens]}, tracer)
    peak = ClosedForm(trace, 1).at(1, tokens)
    weights = float(trace.model["weight_bytes"]) / ranks
    cache = kept_bytes(trace) / ranks
    logits = 4.0 * int(given.get("max_sequences") or _SEQUENCES) * int(config["vocab_size"])
    activations = (peak.size - float(trace.model["weight_bytes"]) - cache * ranks) / ranks + logits
    share = float(given.get("gpu_memory_utilization") or _SHARE)
    beside = _BESIDE * GIB

    def left(asked: float) -> float:
        return asked - weights - activations - beside

    asked = share * gpu.total
    # The profile counts what is allocated, and not what the allocator holds for it.
    size = weights + activations
    low, _, high = need_of(size, size, size, 1.0, {}).reserved
    outside = high - low + (0.0 if given.get("enforce_eager") else _GRAPHS * GIB)
    verdict = "fits" if asked + outside <= gpu.free else "tight"
    if asked > gpu.free or left(asked) / cache * tokens < length:
        verdict = "does-not-fit"
    least = (length * cache / tokens + weights + activations + beside) / gpu.total
    assumed = (
        [] if "gpu_memory_utilization" in given else [Message("gpu_memory_utilization was not given: {}", f"{share:g}")]
    )
    if engine_of(given) == "beside":
        assumed.append(
            Message(
                "the recipe trains and serves, and this is the engine; for the training run: --set "
                "recipe.gpu_memory_utilization=absent"
            )
        )
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
        "process_gib": [rounded(asked), rounded(asked + outside)],
        "interval": None,
        "gpu": gpu.name,
        "total_gib": rounded(gpu.total),
        "free_gib": rounded(gpu.free),
        "verdict": verdict,
        "phase": "start" if asked > gpu.free else "KV cache",
        "operation": f"gpu_memory_utilization {share:g}",
        "terms": [
            {"name": "KV cache", "gib": rounded(max(0.0, left(asked)))},
            {"name": "weights", "gib": rounded(weights)},
            {"name": "activations of a step", "gib": rounded(activations)},
            {"name": "CUDA context", "gib": rounded(beside)},
        ],
        "changes": [] if verdict == "fits" else _changes(least, left, cache / tokens, gpu, outside),
        "reach": [],
        "serving": {
            "asked_gib": rounded(asked),
            "weights_gib": rounded(weights),
            "activations_gib": rounded(activations),
            "cache_gib": rounded(max(0.0, left(asked))),
            "cache_tokens": max(0, int(left(asked) / cache * tokens)),
            "length": length,
        },
        "assumed": [*model.said_of(trace, plan.job), *assumed],
        "savers": [],
    }


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
    changed.update(Fact(f"recipe.{name}", value, "vLLM", "derived") for name, value in told.items())
    return changed


def _changes(least: float, left: Any, cache_per_token: float, gpu: Gpu, outside: float) -> list[MemorySaving]:
    """The largest share that leaves others theirs, where the longest sequence still fits; else the length that does."""
    most = math.floor((gpu.free - outside) / gpu.total * 100) / 100
    settings: dict[str, object] = {"recipe.gpu_memory_utilization": most}
    if math.ceil(least * 100) / 100 > most:
        length = int(left(most * gpu.total) / cache_per_token) // 128 * 128
        if length <= 0:
            return []
        settings["recipe.max_model_len"] = length
    return [{"set": settings, "gib": rounded(most * gpu.total), "verdict": "fits"}]
