"""What one process of several holds: DDP, DeepSpeed's ZeRO, FSDP.

The terms are those of DeepSpeed's and torch's sources (reference: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py,
torch/csrc/distributed/c10d/reducer.cpp); activations are not divided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.memory.closed_form import Terms
from envdoctor.memory.problem import MemoryProblem

__all__ = ["sharing"]

#: DeepSpeed's defaults, in elements: allgather_bucket_size and reduce_bucket_size, stage3_max_live_parameters.
_BUCKET = 5e8
_LIVE = 1e9


def sharing(given: Mapping[str, Any], model: Mapping[str, Any], trained: float) -> Callable[[Terms], Terms]:
    """How the bytes of one process become those of one of ``recipe.world_size``. ``trained`` are the parameters that
    are trained. Raises :class:`MemoryProblem` where the number of processes is not known."""
    stage, fsdp = given.get("zero_stage"), given.get("fsdp")
    world = given.get("world_size")
    if world is None and (stage or fsdp):
        raise MemoryProblem("the number of processes is not known: give --set recipe.world_size=8")
    processes = int(world or 1)
    if stage is not None:
        return lambda terms: _zero(dict(terms), int(stage), processes, given, model, trained)
    if fsdp:
        return lambda terms: _fsdp(dict(terms), processes, given, model)
    if processes > 1:
        # The reducer's buckets hold every gradient a second time.
        return lambda terms: {**terms, "communication buffers": trained * _width(model)}
    return lambda terms: terms


def _width(model: Mapping[str, Any]) -> float:
    return float(model["weight_bytes"]) / float(model["parameters"])


def _zero(
    terms: dict[str, float],
    stage: int,
    processes: int,
    given: Mapping[str, Any],
    model: Mapping[str, Any],
    trained: float,
) -> Terms:
    parameters = float(model["parameters"])
    share = [1, processes, processes, processes][stage]
    if "optimizer states" in terms or "temporary values of the optimizer" in terms:
        # Adam's two states and the float32 copy that DeepSpeed updates.
        terms["optimizer states"] = 0.0 if given.get("offload_optimizer") else 12 * trained / share
        terms.pop("temporary values of the optimizer", None)
    if stage >= 2 and "gradients" in terms:
        terms["gradients"] /= processes
    if stage == 3:
        live = min(given.get("live_parameters") or _LIVE, parameters) * _width(model)
        gathered = 4 * float(model["layer_parameters"]) + live
        kept = 0.0 if given.get("offload_param") else terms.get("weights", 0.0) / processes
        terms["weights"] = kept + min(gathered, terms.get("weights", 0.0))
    else:
        buckets = (given.get("allgather_bucket") or _BUCKET) + (given.get("reduce_bucket") or _BUCKET)
        terms["communication buffers"] = (4.5 if given.get("overlap_comm") else 1.0) * 2 * min(buckets, 2 * trained)
    return terms


def _fsdp(terms: dict[str, float], processes: int, given: Mapping[str, Any], model: Mapping[str, Any]) -> Terms:
    """Everything is divided, and two layers are whole at a time: the one that computes and the next."""
    for name in ("weights", "adapters", "gradients", "optimizer states", "temporary values of the optimizer"):
        if name in terms:
            terms[name] /= processes
    if given.get("offload_param"):
        terms.update({name: 0.0 for name in ("weights", "optimizer states") if name in terms})
    terms["gathered layers"] = 2 * float(model["layer_parameters"]) * _width(model)
    return terms
