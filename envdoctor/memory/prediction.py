"""The prediction of a training step or a prompt: the peak, the verdict, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.memory.advice import Saving, smaller, traced_changes
from envdoctor.memory.closed_form import LENGTHS, ClosedForm, Peak, kept_bytes, trained_parameters
from envdoctor.memory.problem import MemoryProblem
from envdoctor.memory.recipe import Plan, plan_of, settings_of
from envdoctor.memory.section import MemorySaving, MemorySection
from envdoctor.memory.sharding import sharing
from envdoctor.memory.tracing import Trace, Tracer
from envdoctor.memory.verdict import GIB, Gpu, gpu_of, need_of, room

__all__ = ["predict", "rounded", "traced"]

#: Traces of changes look at the one length that is asked.
_SHORTEST = 16


def predict(facts: FactSet, config: Mapping[str, Any], tracer: Tracer) -> MemorySection:
    """The section of the report. ``config`` is the data of the model's config.json.

    Raises :class:`MemoryProblem` where there is no number.
    """
    plan, given = plan_of(facts), settings_of(facts)
    trace = traced({**plan.job, "config": config, "tokens": _lengths(plan.tokens)}, tracer)

    def form_of(trace: Trace) -> ClosedForm:
        shared = sharing(given, trace.model, trained_parameters(trace))
        return ClosedForm(trace, int(plan.job["batch"]), shared)

    form = form_of(trace)
    batch = int(plan.job["batch"])
    peak = form.at(batch, plan.tokens)
    if not plan.job["training"]:
        longest = max(int(point["tokens"]) for point in trace.points)
        held = kept_bytes(trace) / longest * (plan.tokens + int(given.get("max_new_tokens") or 0))
        answer = Peak("decode", "torch.cat", {"weights": float(trace.model["weight_bytes"]), "KV cache": held})
        peak = max(peak, answer, key=lambda one: one.size)
    need = need_of(peak.size)
    gpu = gpu_of(facts.value("gpu"), int(given.get("world_size") or 1))
    verdict = need.verdict(gpu.free) if gpu is not None else None
    if verdict not in ("fits", None) and plan.savers:
        raise MemoryProblem(
            f"without {', '.join(plan.savers)} the peak is {peak.size / GIB:.1f} GiB, more than is free; "
            "how much lower it is with them is not predicted yet"
        )
    changes: list[MemorySaving] = []
    if gpu is not None and verdict != "fits":
        base = {**plan.job, "config": config, "tokens": [plan.tokens]}
        changes = [*_traced_savings(base, tracer, form_of, gpu), *_smaller_savings(plan, form, gpu)]
        changes.sort(key=lambda change: change["verdict"] != "fits")
    return {
        "level": "trace",
        "model": str(config.get("model_type")),
        "layers": int(trace.model["depth"]),
        "parameters": int(trace.model["parameters"]),
        "trained_parameters": round(trained_parameters(trace)),
        "batch": batch,
        "tokens": plan.tokens,
        "processes": int(given.get("world_size") or 1),
        "allocated_gib": rounded(peak.size),
        "reserved_gib": [rounded(size) for size in need.reserved],
        "process_gib": [rounded(size) for size in need.process],
        "gpu": gpu and gpu.name,
        "total_gib": gpu and rounded(gpu.total),
        "free_gib": gpu and rounded(gpu.free),
        "verdict": verdict,
        "phase": peak.segment.partition("/")[0],
        "operation": peak.operation,
        "terms": [
            {"name": name, "gib": rounded(size)}
            for name, size in sorted(peak.terms.items(), key=lambda term: -term[1])
            if size >= GIB / 1000
        ],
        "changes": changes,
        "serving": None,
        "assumed": list(plan.assumed),
        "savers": list(plan.savers),
    }


def traced(job: Mapping[str, Any], tracer: Tracer) -> Trace:
    """The trace of one job. Raises :class:`MemoryProblem`."""
    (trace,) = tracer.run([job])
    if isinstance(trace, str):
        raise MemoryProblem(trace)
    return trace


def rounded(size: float) -> float:
    """Bytes in GiB, to a thousandth."""
    return round(size / GIB, 3)


def _lengths(tokens: int) -> list[int]:
    """The lengths that are traced, all different."""
    return sorted({max(_SHORTEST, int(tokens * share)) for share in LENGTHS} | {tokens}, reverse=True)


def _traced_savings(
    base: Mapping[str, Any], tracer: Tracer, form_of: Callable[[Trace], ClosedForm], gpu: Gpu
) -> Iterator[MemorySaving]:
    tried = list(traced_changes(base))
    for saving, trace in zip(tried, tracer.run([{**base, **saving.job} for saving in tried]), strict=True):
        if isinstance(trace, Trace):
            yield _change(saving, form_of(trace).at(int(base["batch"]), int(base["tokens"][0])).size, gpu)


def _smaller_savings(plan: Plan, form: ClosedForm, gpu: Gpu) -> Iterator[MemorySaving]:
    usual = {"batch": int(plan.job["batch"]), "tokens": plan.tokens}
    for saving in smaller(form, usual["batch"], usual["tokens"], room(gpu.free)):
        yield _change(saving, form.at(**{**usual, **saving.job}).size, gpu)


def _change(change: Saving, allocated: float, gpu: Gpu) -> MemorySaving:
    return {"set": dict(change.set), "gib": rounded(allocated), "verdict": need_of(allocated).verdict(gpu.free)}
