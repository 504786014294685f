"""What one process of several holds: DDP, DeepSpeed's ZeRO, FSDP.

The terms are those of the sources (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py; torch's
torch/csrc/distributed/c10d/reducer.cpp); activations are not divided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from envdoctor.memory.closed_form import OF_THE_MODEL, Terms
from envdoctor.memory.problem import MemoryProblem

#: DeepSpeed's defaults, in elements: allgather_bucket_size and reduce_bucket_size, stage3_max_live_parameters.
_BUCKET = 5e8
_LIVE = 1e9


def sharing(given: Mapping[str, Any], model: Mapping[str, Any], trained: float) -> Callable[[Terms], Terms]:
    """How the bytes of one process become those of one of ``recipe.world_size``. ``trained`` are the parameters that
    are trained. Raises :class:`MemoryProblem` where the number of processes is not known."""
    world = given.get("world_size")
    if world is None and (given.get("zero_stage") or given.get("fsdp")):
        raise MemoryProblem("the number of processes is not known: give --set recipe.world_size=8")
    width = float(model["weight_bytes"]) / float(model["parameters"])
    run = _Run(given, int(world or 1), float(model["parameters"]), float(model["layer_parameters"]), width, trained)
    if given.get("zero_stage") is not None:
        return run.zero
    return run.fsdp if given.get("fsdp") else run.replicated


class _Run(NamedTuple):
    """``layer`` are the parameters of the largest layer, ``width`` the bytes of a parameter."""

    given: Mapping[str, Any]
    processes: int
    parameters: float
    layer: float
    width: float
    trained: float

    def replicated(self, terms: Terms) -> Terms:
        """The reducer's buckets hold every gradient a second time."""
        buckets = {"communication buffers": self.trained * self.width} if self.processes > 1 else {}
        return {**terms, **buckets}

    def zero(self, terms: Terms) -> Terms:
        """Stage 1 divides the optimizer's states, 2 the gradients too, 3 the weights too."""
        stage, new = int(self.given["zero_stage"]), dict(terms)
        new.pop("temporary values of the optimizer", None)
        # Adam's two states and the float32 copy that DeepSpeed updates.
        states = 12 * self.trained / (self.processes if stage else 1)
        new["optimizer states"] = 0.0 if self.given.get("offload_optimizer") else states
        if stage >= 2 and "gradients" in new:
            new["gradients"] /= self.processes
        if stage < 3:
            sizes = [self.given.get(name) or _BUCKET for name in ("allgather_bucket", "reduce_bucket")]
            several = 4.5 if self.given.get("overlap_comm") else 1.0
            new["communication buffers"] = several * 2 * min(sum(sizes), 2 * self.trained)
            return new
        live = min(self.given.get("live_parameters") or _LIVE, self.parameters) * self.width
        whole = new.get("weights", 0.0)
        kept = 0.0 if self.given.get("offload_param") else whole / self.processes
        new["weights"] = kept + min(4 * self.layer + live, whole)
        if "reference model" in new:  # prepare_deepspeed in trl/models/utils.py: by stage 3 alone
            new["reference model"] *= 0.0 if self.given.get("offload_param") else 1 / self.processes
        new["communication buffers"] = 2 * (self.given.get("reduce_bucket") or _BUCKET)
        return new

    def fsdp(self, terms: Terms) -> Terms:
        """Everything is divided, and two layers are whole at a time: the one that computes and the next. A reference
        model is divided and offloaded as well (prepare_fsdp in trl/models/utils.py)."""
        new = {name: size / (self.processes if name in OF_THE_MODEL else 1) for name, size in terms.items()}
        if self.given.get("offload_param"):
            new.update({"weights": 0.0, "reference model": 0.0, "optimizer states": 0.0})
        return {**new, "gathered layers": 2 * self.layer * self.width}
