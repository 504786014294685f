"""Trace a recipe on a model that has no data, at two depths and a few lengths: the most memory of each part of a step.

What comes out is exact for the code that is installed, up to what kernels need inside one operation. Records:
``{"case": "model", ...}`` about the model of full depth, one ``{"case": "point", "layers": n, "tokens": s, "segments":
{...}}`` a run, and ``{"case": "refused", "refusal": ...}`` instead of either.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .live import Faking, Live
from .model import Refused, build, cut_config, faked, lattice, layers_of, parse_config, with_adapters
from .step import make_optimizer, prompt, training_step


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Trace a ``job``: ``config`` (the data of config.json), ``tokens`` (lengths), and the recipe: ``training``,
    ``load_dtype``, ``amp``, ``attention``, ``quantized``, ``lora``, ``checkpointing``, ``stage``, ``batch``,
    ``padded``, ``accumulation``, ``keep_outputs``, ``optimizer``, ``reference``. ``full`` traces at full depth."""
    gc.disable()  # a cycle that is collected in the middle of a step would be memory that a run still has
    try:
        config = parse_config(job["config"])
        model = build(config, job)
        layers = layers_of(model, config)
        depth = len(layers)
        depths = None if job.get("full") else lattice(layers)
        emit({"case": "model", **_described(model, layers), "depth": depth, "depths": depths or [depth]})
        del model, layers
        for count in depths or (depth,):
            trace(cut_config(config, depth, count), count, job, emit)
    except Refused as error:
        emit({"case": "refused", "refusal": list(error.args)})


def trace(config: Any, depth: int, job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Emit one point for each length."""
    model = build(config, job)
    layers = layers_of(model, config)
    model = with_adapters(model, job)
    references = [build(config, job).requires_grad_(False)] if job["reference"] == "copy" else []
    with Faking(allow_non_fake_inputs=True):
        for part in [model, *references]:
            faked(part)
        live = Live()
        _watch(live, model, layers)
        for tensor in [*model.parameters(), *model.buffers()]:
            live.add(tensor, "adapters" if tensor.requires_grad and job.get("lora") else "weights")
        for reference in references:
            model.__dict__["reference"] = reference  # no module of the model
            for tensor in reference.parameters():
                live.add(tensor, "reference model")
        trained = [part for part in model.parameters() if part.requires_grad] if job["training"] else []
        with live:
            live.segment, live.label = "step/before", "optimizer states"
            optimizer = make_optimizer(model, job["optimizer"]) if trained else None
            for tokens in job["tokens"]:
                live.clear()
                point = {"case": "point", "layers": depth, "tokens": tokens, "trained": sum(map(torch.numel, trained))}
                point["cache_bytes"] = _point(live, model, optimizer, job, tokens)
                emit({**point, "held_bytes": live.allocator.held, "segments": dict(live.measured())})


def _point(live: Live, model: Any, optimizer: Any, job: dict[str, Any], tokens: int) -> int:
    """Run the step, or the prompt; the bytes that are kept of it then (the keys and values of a prompt)."""

    def tell(phase: str) -> None:
        live.segment = phase and phase + "/before"
        live.label = _LABELS[phase]

    tell("")
    if not job["training"]:
        before = live.total
        cache = prompt(model, job, tokens, tell)
        kept = live.total - before
        del cache
        return kept
    if job["accumulation"] > 1:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.empty_like(parameter)
                live.add(parameter.grad, "gradients")
    training_step(model, optimizer, job, tokens, tell)
    return 0


#: What the tensors hold that a phase makes first.
_LABELS = {
    **{"": "batch", "forward": "embeddings and masks", "backward": "logits and loss"},
    **dict.fromkeys(("clip", "step"), "temporary values of the optimizer"),
}


def _watch(live: Live, model: Any, layers: Any) -> None:
    """Tell ``live`` at which layer, and at what in it, the code is: forward, and backward by gradients that arrive."""
    last = len(layers) - 1
    for place, layer in enumerate(layers):
        where = "first" if place == 0 else "last" if place == last else "middle"
        layer.register_forward_pre_hook(partial(_entering, live, where))
        layer.register_forward_hook(partial(_leaving, live, where))
        for name, child in layer.named_children():
            child.register_forward_pre_hook(partial(_at, live, _kind(name)))
            child.register_forward_hook(partial(_at, live, "hidden states"))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda weight: live.add(weight.grad, "gradients"))


def _kind(name: str) -> str:
    if "attn" in name or "attention" in name:
        return "attention"
    return "hidden states" if "norm" in name else "MLP"


def _entering(live: Live, where: str, module: Any, inputs: Any) -> None:
    phase = live.segment.partition("/")[0]
    if phase:
        live.segment = phase + "/" + where
    if phase == "forward":
        live.label = "hidden states"


def _leaving(live: Live, where: str, module: Any, inputs: Any, output: Any) -> None:
    if not live.segment.startswith("forward"):
        return
    if where == "last":
        live.segment, live.label = "forward/after", "logits and loss"
    first = output[0] if isinstance(output, tuple) else output
    if isinstance(first, torch.Tensor) and first.requires_grad:
        first.register_hook(partial(_arrived, live, where))


def _arrived(live: Live, where: str, gradient: Any) -> None:
    if live.segment.startswith("backward"):
        live.segment, live.label = "backward/" + where, "gradients of activations"


def _at(live: Live, kind: str, *given: Any) -> None:
    """Note the kind before a part of a layer, and behind it."""
    if live.segment.startswith("forward"):
        live.label = kind


def _described(model: Any, layers: Any) -> dict[str, Any]:
    """Return sizes of the whole model: parameters, their bytes, and those of its largest layer."""
    parameters = list(model.parameters())
    return {
        "parameters": sum(weight.numel() for weight in parameters),
        "weight_bytes": sum(weight.numel() * weight.element_size() for weight in parameters),
        "layer_parameters": max(sum(weight.numel() for weight in layer.parameters()) for layer in layers),
    }
