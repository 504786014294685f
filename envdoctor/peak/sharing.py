"""Divide a step among processes, by what one of them holds: DDP, DeepSpeed's ZeRO, FSDP; or its layers among GPUs.

The terms are those of the sources (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py; torch's
torch/csrc/distributed/c10d/reducer.cpp); activations are not divided.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT
from envdoctor.peak.closed_form import LOGITS, OF_THE_MODEL, OTHER_MODELS, Terms, at_full_depth
from envdoctor.peak.section import MemoryProblem
from envdoctor.peak.tracing import Trace, with_terms
from envdoctor.system.message import Message

#: What of the training is there in the backward pass and after it alone.
_OF_THE_STEP = ("gradients", "temporary values of the optimizer")
_OF_THE_TRAINED = (*_OF_THE_STEP, "optimizer states")
_KEPT = ("hidden states", "attention", "MLP")

#: Keys of recipes that divide samples or layers among the GPUs, and the values with which they do not.
_DIVIDED = r"(?:\A|\.)(?:(?:ulysses_)?sequence|context|tensor|pipeline|expert)(?:_model)?_parallel(?:_size|_degree)?\Z"
_UNSET = ("0", "0.0", "False", "false", "None", "none", "absent", "")
WHOLE = ("1", "0", "-1", "None", "null", "False", "false", "")
#: The parts where the value is no number, and the most that are believed.
_MANY, _MOST_PARTS = 8, 1 << 20


def divisions(facts: FactSet) -> tuple[list[str], int]:
    """Return a sentence for each key that divides a sample or the model among GPUs, and into how many parts all do. One
    that is read is that of the engine which generates."""
    keys = {str(item["key"]): str(item["value"]) for item in facts.items("recipe_key") if item["state"] != "read"}
    divided = {key: size for key, size in keys.items() if re.search(_DIVIDED, key) and size not in WHOLE}
    sizes = (int(size) if re.fullmatch("[1-9][0-9]{0,3}", size) else _MANY for size in divided.values())
    text = "{}, which divides a sample or the model among GPUs"
    named: list[str] = [Message(text, f"{key}={size}".removesuffix(f"={ABSENT}")) for key, size in divided.items()]
    return named, min(math.prod(sizes), _MOST_PARTS)


def division_is_known(given: Mapping[str, Any], keys: Mapping[str, str]) -> bool:
    """Return whether what each process of several holds is known: it is not where the recipe names a file of
    DeepSpeed's that nobody can read, or a launcher without how it divides the run."""
    if given.get("zero_stage") is not None or given.get("fsdp"):
        return True
    if given.get("world_size") == 1 and "offload_optimizer" in given:
        return True
    names = {"zero_stage", "fsdp"} if given.get("launcher") is not None else {"zero_stage"}
    return given.keys() >= names or (len(names) == 1 and "deepspeed" not in keys)


def partly(
    given: Mapping[str, Any], keys: Mapping[str, str], rows: Iterable[Mapping[str, Any]], assumed: list[str]
) -> tuple[tuple[str, ...], int]:
    """Return the terms that may be missing by keys and methods that nothing models, and how many layers alone are
    trained (0: not told by a method). Add to ``assumed`` which those are."""
    terms: list[str] = []
    for row in rows:
        names = [key for key in row.get("keys", ()) if keys.get(key, "0") not in _UNSET]
        if given.get("method") in row.get("methods", ()):
            (key, usual), *_ = row["layers"].items()
            told = keys.get(key, str(usual))
            alone = all(keys.get(other, "all") in ("all", *_UNSET) for other in row["unless"])
            if alone and re.fullmatch("-?[1-9][0-9]{0,3}", told):
                assumed.append(Message("{} of the layers alone are trained", told.lstrip("-")))
                # Without checkpoints the layers below those keep nothing for the way back.
                return () if given.get("gradient_checkpointing") else _KEPT, abs(int(told))
            names.append(str(given["method"]))
        text = "{} changes what is trained or kept in a way that is not modelled: less is needed"
        assumed += [Message(text, name) for name in names]
        terms += row["terms"] if names else ()
    return tuple(terms), 0


def with_layers(trace: Trace, layers: int, float32: bool) -> Trace:
    """Return the trace as if so many ``layers`` alone were trained, those as ``float32``, if so."""
    trained = min(layers, int(trace.model["depth"])) * float(trace.model["layer_parameters"])
    width = float(trace.model["weight_bytes"]) / float(trace.model["parameters"])
    wide = max(width, 4.0) if float32 else width
    points = []
    for point in trace.points:
        part = trained * wide / (point["trained"] * width)

        def changed(terms: Terms, part: float = part) -> Terms:
            new = {name: size * (part if name in _OF_THE_TRAINED else 1) for name, size in terms.items()}
            return new | {"weights": new.get("weights", 0.0) + trained * (wide - width)}

        (new,) = with_terms(trace._replace(points=(point,)), changed).points
        points.append({**new, "trained": trained})
    return trace._replace(points=tuple(points))


def with_gathered(trace: Trace) -> Trace:
    """Return the trace with the moment before a step when each process generates: beside what it holds of the model and
    its training, it has all weights and the keys and values (unwrap_model_for_generation in trl/models/utils.py)."""
    return _with_moment(
        trace,
        "decode/gathered",
        "all_gather",
        lambda point, held: {
            "gathered layers": held.get("weights", 0.0),
            "KV cache": float(point.get("cache_bytes", 0.0)),
        },
    )


def with_scored(trace: Trace, times: float) -> Trace:
    """Return the trace with the moment before a step when each process makes the logits of so many ``times`` its
    tokens, and no gradients (compute_log_prob in verl/workers/fsdp_workers.py)."""

    def logits(point: Mapping[str, Any], _: Terms) -> Terms:
        return {LOGITS: times * max(terms.get(LOGITS, 0.0) for *_, terms in point["segments"].values())}

    return _with_moment(trace, "score/logits", "log_prob", logits)


def _with_moment(trace: Trace, name: str, operation: str, beside: Callable[[Mapping[str, Any], Terms], Terms]) -> Trace:
    """Return the trace with one more moment, when what a process holds of the model and its training is there, and what
    ``beside`` tells of a point and of that."""
    points = []
    for point in trace.points:
        (_, _, first), *_ = point["segments"].values()
        held = {name: first[name] for name in OF_THE_MODEL if name in first and name not in _OF_THE_STEP}
        terms = {**held, **beside(point, held)}
        segments = {**point["segments"], name: [sum(terms.values()), operation, terms]}
        points.append({**point, "segments": segments})
    return trace._replace(points=tuple(points))


def sharing(given: Mapping[str, Any], trace: Trace) -> Callable[[Terms], Terms]:
    """Return a function that turns the bytes of one process into those of one of ``recipe.world_size``. Raises
    :class:`MemoryProblem` if the number of processes is unknown."""
    world, model, trained = given.get("world_size"), trace.model, at_full_depth(trace, "trained")
    if world is None and (given.get("zero_stage") or given.get("fsdp")):
        raise MemoryProblem("the number of processes is not known: give --set recipe.world_size=8")
    width = float(model["weight_bytes"]) / float(model["parameters"])
    layer, layers = float(model["layer_parameters"]), int(model["depth"])
    run = _Run(given, int(world or 1), float(model["parameters"]), layer, width, trained, layers)
    if given.get("zero_stage") is not None:
        return run.zero
    if given.get("fsdp"):
        return run.fsdp
    return run.spread if given.get("layers_over") else run.replicated


class _Run(NamedTuple):
    """``layer`` are the parameters of the largest layer, ``width`` the bytes of a parameter."""

    given: Mapping[str, Any]
    processes: int
    parameters: float
    layer: float
    width: float
    trained: float
    layers: int

    def replicated(self, terms: Terms) -> Terms:
        """Add the reducer's buckets, which hold every gradient a second time."""
        return {**terms, "communication buffers": self.trained * self.width} if self.processes > 1 else terms

    def spread(self, terms: Terms) -> Terms:
        """Divide the model, and what its layers keep for the way back, among the GPUs of a process. All but the last
        are filled up to an even share and a layer and a quarter (get_balanced_memory in accelerate/utils/modeling.py);
        the last has what is left, and the logits."""
        over, whole = int(self.given["layers_over"]), terms.get("weights", 0.0)
        kept = _KEPT[:1] if self.given.get("gradient_checkpointing") else _KEPT
        new = {name: size / (over if name in (*OF_THE_MODEL, *kept) else 1) for name, size in terms.items()}
        layer = max(min((whole - self._rest()) / self.layers, self.layer * self.width), 0.0)
        first, last = min(whole, whole / over + 1.25 * layer), whole / over - (over - 1) * layer / 4
        if first - last > (logits := new.pop(LOGITS, 0.0)):
            return self.replicated({**new, "weights": first})
        return self.replicated({**new, "weights": max(last, 0.0), LOGITS: logits})

    def _rest(self) -> float:
        """Return the bytes of the parameters that are in no layer."""
        return max(self.parameters - self.layers * self.layer, 0.0) * self.width

    def zero(self, terms: Terms) -> Terms:
        """Divide the optimizer's states (stage 1), the gradients too (2), the weights too (3)."""
        stage, new = int(self.given["zero_stage"]), dict(terms)
        # Adam's two states and the float32 copy that DeepSpeed updates; while it steps their gradients in float32 too.
        steps, each = new.pop("temporary values of the optimizer", None) is not None, self.processes if stage else 1
        offloaded = bool(self.given.get("offload_optimizer"))
        new["optimizer states"] = 0.0 if offloaded else 12 * self.trained / each
        if steps and stage < 3 and not offloaded:
            new["temporary values of the optimizer"] = 4 * self.trained / each
        if stage >= 2 and "gradients" in new:
            new["gradients"] /= self.processes
        if stage < 3:
            # One process sends nothing; it has the one bucket for gradients, or two.
            alone = self.processes == 1
            sizes = [self.given[name] for name in ("allgather_bucket", "reduce_bucket")[alone:]]
            several = (2.0 if alone else 4.5) if self.given.get("overlap_comm") else 1.0
            new["communication buffers"] = several * 2 * min(sum(sizes), 2 * self.trained)
            return new
        live = min(self.given["live_parameters"], self.parameters) * self.width
        whole = new.get("weights", 0.0)
        kept = 0.0 if self.given.get("offload_param") else whole / self.processes
        new["weights"] = kept + min(4 * self.layer + live, whole)
        for name in new.keys() & set(OTHER_MODELS):  # prepare_deepspeed in trl/models/utils.py: by stage 3 alone
            new[name] *= 0.0 if self.given.get("offload_param") else 1 / self.processes
        new["communication buffers"] = 2 * self.given["reduce_bucket"]
        return new

    def fsdp(self, terms: Terms) -> Terms:
        """Divide everything but two layers, which are whole at a time until the optimizer steps: the one that computes
        and the next. A reference model is divided and offloaded as well (prepare_fsdp in trl/models/utils.py)."""
        new = {name: size / (self.processes if name in OF_THE_MODEL else 1) for name, size in terms.items()}
        rest = self._rest()
        # Layers travel as they are stored: packed ones packed (torchao's NF4Tensor, bitsandbytes' quant_storage).
        layer = min((terms.get("weights", 0.0) - rest) / self.layers, self.layer * self.width)
        if offloads := bool(self.given.get("offload_param")):
            # Gradients too, and the optimizer steps there (CPUOffload in torch/distributed/fsdp/api.py).
            new = {name: 0.0 if name in OF_THE_MODEL else size for name, size in new.items()}
        if "temporary values of the optimizer" in terms:
            return new
        # What is in no layer, the root's, stays whole until the way back (torch/distributed/fsdp/_runtime_utils.py).
        return {**new, "gathered layers": 2 * max(layer, 0.0) + rest * (1 if offloads else 1 - 1 / self.processes)}
