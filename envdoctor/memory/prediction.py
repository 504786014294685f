"""The prediction of a training step or a prompt: the peak, the verdict, and what would make it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.memory.advice import Saving, smaller, traced_changes
from envdoctor.memory.closed_form import LENGTHS, ClosedForm, Peak, kept_bytes, trained_parameters
from envdoctor.memory.model import Model
from envdoctor.memory.problem import MemoryProblem
from envdoctor.memory.recipe import plan_of, settings_of
from envdoctor.memory.section import MemorySaving, MemorySection
from envdoctor.memory.sharding import sharing
from envdoctor.memory.tracing import Source, Trace
from envdoctor.memory.verdict import GIB, Need, gpu_of, need_of
from envdoctor.text.message import Message, as_message

#: The least length that is traced beside the one that is asked.
_SHORTEST = 16


def predict(facts: FactSet, model: Model, tracer: Source) -> MemorySection:
    """The section of the report. Raises :class:`MemoryProblem` where there is no number."""
    plan, given = plan_of(facts), settings_of(facts, model.config.get("hidden_size"))
    base = {**model.job(plan.job), "config": model.config}
    trace = traced({**base, "tokens": [plan.tokens]}, tracer)

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

    def needed(form: ClosedForm, low: Peak, high: Peak) -> Need:
        return need_of(low.most(-trace.less), high.most(model.margin + trace.more), form.held)

    need = needed(form, form.at(batch, plan.tokens, plan.spared) if plan.spared else peak, peak)
    gpu = gpu_of(facts.each("gpu"), int(given.get("world_size") or 1))
    verdict = need.verdict(gpu.free) if gpu is not None else None
    if verdict not in ("fits", None) and plan.savers and not plan.spared:
        raise MemoryProblem(
            "without {} the peak is {} GiB, more than is free; how much lower it is with them is not predicted yet",
            ", ".join(plan.savers),
            f"{peak.size / GIB:.1f}",
        )
    changes: list[MemorySaving] = []
    assumed = [*said_of(model, trace, plan.job), *plan.assumed]
    if base["checkpointing"] and model.heeds is None:
        (kept,) = tracer.run([{**base, "checkpointing": False, "tokens": [plan.tokens]}])
        size = form_of(kept).at(batch, plan.tokens).size if isinstance(kept, Trace) else 0.0
        assumed.append(
            Message(
                "the model's own code is not here to be read, and some revisions ignore gradient checkpointing: "
                "then it takes {} GiB",
                f"{size / GIB:.1f}",
            )
            if size
            else Message(
                "the model's own code is not here to be read, and some revisions ignore gradient checkpointing"
            )
        )
    if gpu is not None and verdict != "fits":

        def change(saving: Saving, form: ClosedForm, batch: int, tokens: int) -> MemorySaving:
            low, high = form.at(batch, tokens, plan.spared), form.at(batch, tokens)
            verdict = needed(form, low, high).verdict(gpu.free)
            return {"set": dict(saving.set), "gib": rounded(high.size), "verdict": verdict}

        tried = [one for one in traced_changes(base) if model.heeds is not False or not one.job.get("checkpointing")]
        jobs = [{**base, **saving.job, "tokens": [plan.tokens]} for saving in tried]
        shorter, *found = tracer.run([{**base, "tokens": _shorter(plan.tokens)}, *jobs])
        for saving, one in zip(tried, found, strict=True):
            after = form_of(one) if isinstance(one, Trace) else form
            if after.at(batch, plan.tokens).size < peak.size:
                changes.append(change(saving, after, batch, plan.tokens))
        if isinstance(shorter, Trace) and shorter.release == trace.release:
            shorter = trace._replace(points=(*trace.points, *shorter.points))
        else:  # a trace that was kept, and lengths that were not traced
            (shorter,) = tracer.run([{**base, "tokens": [plan.tokens, *_shorter(plan.tokens)]}])
        if isinstance(shorter, Trace):
            any_length = form_of(shorter)
            name = f"recipe.{'train_' if plan.job['training'] else ''}batch_size"
            for saving in smaller(
                any_length, name, batch, plan.tokens, lambda peak: needed(form, peak, peak).verdict(gpu.free) == "fits"
            ):
                changes.append(change(saving, any_length, **{"batch": batch, "tokens": plan.tokens, **saving.job}))
        changes.sort(key=lambda change: change["verdict"] != "fits")
    return {
        "level": level_of(model, trace),
        "model": model.named,
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
        "assumed": assumed,
        "savers": list(plan.savers),
    }


def level_of(model: Model, trace: Trace) -> str:
    """``trace`` of the installed code, of the ``nearest`` type, or ``shipped`` coefficients."""
    return "shipped" if trace.release else model.level


def said_of(model: Model, trace: Trace, job: Mapping[str, Any]) -> list[str]:
    """What is to be said of where the answer comes from."""
    shipped = Message(
        "nothing was traced here: this is by shipped coefficients of transformers {}; activations may "
        "take {} less to {} more",
        trace.release,
        f"{trace.less:.0%}",
        f"{trace.more:.0%}",
    )
    return [*([shipped] if trace.release else []), *model.assumed(job)]


def traced(job: Mapping[str, Any], tracer: Source) -> Trace:
    """The trace of one job. Raises :class:`MemoryProblem`."""
    (trace,) = tracer.run([job])
    if isinstance(trace, str):
        raise MemoryProblem(as_message(trace))
    return trace


def rounded(size: float) -> float:
    """Bytes in GiB, to a thousandth."""
    return round(size / GIB, 3)


def _shorter(tokens: int) -> list[int]:
    """The lengths that tell every other one, beside that which is asked."""
    return sorted({max(_SHORTEST, int(tokens * share)) for share in LENGTHS} - {tokens}, reverse=True)
