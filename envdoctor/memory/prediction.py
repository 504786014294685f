"""The prediction of a training step or a prompt: the peak, the verdict, and what would make it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.memory.advice import Saving, smaller, traced_changes
from envdoctor.memory.closed_form import LENGTHS, ClosedForm, trained_parameters
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
    form = _form(plan, given, trace)
    batch = int(plan.job["batch"])
    peak = form.at(batch, plan.tokens)
    need = need_of(peak.size)
    gpu = gpu_of(facts.value("gpu"), int(given.get("world_size") or 1))
    verdict = need.verdict(gpu.free) if gpu is not None else None
    if verdict not in ("fits", None) and plan.savers:
        raise MemoryProblem(
            f"without {', '.join(plan.savers)} the peak is {peak.size / GIB:.1f} GiB, more than is free; how much lower "
            "it is with them is not predicted yet"
        )
    changes = _changes(plan, given, config, tracer, form, gpu) if gpu is not None and verdict != "fits" else []
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


def _form(plan: Plan, given: Mapping[str, Any], trace: Trace) -> ClosedForm:
    return ClosedForm(trace, int(plan.job["batch"]), sharing(given, trace.model, trained_parameters(trace)))


def _changes(
    plan: Plan, given: Mapping[str, Any], config: Mapping[str, Any], tracer: Tracer, form: ClosedForm, gpu: Gpu
) -> list[MemorySaving]:
    """Each single change with its number: those that fit first, in the order of what they cost."""
    tried = list(traced_changes(plan.job))
    jobs = [{**plan.job, **change.job, "config": config, "tokens": [plan.tokens]} for change in tried]
    found: list[MemorySaving] = []
    batch = int(plan.job["batch"])
    for change, trace in zip(tried, tracer.run(jobs), strict=True):
        if isinstance(trace, Trace):
            found.append(_change(change, _form(plan, given, trace).at(batch, plan.tokens).size, gpu))
    for change in smaller(form, batch, plan.tokens, room(gpu.free)):
        peak = form.at(int(change.job.get("batch", batch)), int(change.job.get("tokens", plan.tokens)))
        found.append(_change(change, peak.size, gpu))
    return sorted(found, key=lambda change: change["verdict"] != "fits")


def _change(change: Saving, allocated: float, gpu: Gpu) -> MemorySaving:
    return {"set": dict(change.set), "gib": rounded(allocated), "verdict": need_of(allocated).verdict(gpu.free)}
