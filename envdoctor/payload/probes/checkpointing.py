"""Does gradient checkpointing give the gradients that it saves the memory of?

Recomputing the forward pass must not change numbers. RReLU and other random operations did:
https://github.com/pytorch/pytorch/issues/193671; memory that was not freed:
https://github.com/pytorch/pytorch/issues/147449. Reentrant and not, on a tiny model in float32 with dropout behind each
layer, which must drop the same values when it is computed again: seen bitwise equal on healthy releases. And models of
transformers as its Trainer switches it on, with the cache that their configs ask for:
https://github.com/huggingface/transformers/issues/28056.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.utils import checkpoint

from ..probing import batches, tiny_models
from ..probing.failure import failure
from ..probing.job import Emit, Job, judged
from ..probing.rounding import relative, vector

PROBE = {
    "title": "gradients with and without checkpointing",
    "attention": "sdpa",
    "suites": {
        "quick": [{"models": ["llama"]}],
        "full": [{"models": ["llama", "qwen2", "glm", "gemma2", "mistral", "phi3", "mixtral", "gpt2"]}],
    },
    "memory_mib": 2000,
}

_LIMIT = 1e-3
_DROPPED = 0.1


def run(job: Job, emit: Emit) -> None:
    """One observation for each model and kind of checkpointing, for the judge ``change``."""
    _plain(job, emit)
    tiny_models.each_chosen(job, emit, "llama", lambda name, called: _of_transformers(job, emit, name, called))


def _plain(job: Job, emit: Emit) -> None:
    """Checkpoints that are set here, in a model that is written here."""
    device = job["device"]
    batch = _batch(device)
    model = tiny_models.build("chatglm-like", "sdpa").to(device)
    forwards = [_with_dropout(layer.forward) for layer in model.layers]
    for layer, forward in zip(model.layers, forwards):
        layer.forward = forward
    plain = _gradient(model, batch)
    for reentrant in (False, True):
        for layer, forward in zip(model.layers, forwards):
            layer.forward = _checkpointed(forward, reentrant)
        emit(_compared("plain", reentrant, plain, lambda: _gradient(model, batch), device))


def _of_transformers(job: Job, emit: Emit, name: str, called: str) -> None:
    """Checkpoints that a model of transformers sets itself."""
    device = job["device"]
    batch = _batch(device)
    model = tiny_models.build(name, "sdpa", job["model"]).to(device)
    model.config.use_cache = True
    plain = _gradient(model, batch)
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        emit(_compared(called, reentrant, plain, lambda: _gradient(model, batch), device))
        model.gradient_checkpointing_disable()


def _compared(called: str, reentrant: bool, plain: Any, gradient: Any, device: str) -> dict[str, Any]:
    """The observation: the gradient with checkpoints against the plain one."""
    title = f"checkpointed ({'reentrant' if reentrant else 'not reentrant'}) against plain"
    case = judged("change", "checkpoint-differs", ["gradients"], dtype="fp32", limit=_LIMIT)
    case.update(case=title if called == "plain" else f"{called} {title}", backend=("default", "reentrant")[reentrant])
    case["params"] = {"use_reentrant": reentrant, **({} if called == "plain" else {"model": called})}
    try:
        other = gradient()
        case["detail"] = "bitwise equal" if torch.equal(other, plain) else "not bitwise"
        case["relative"] = relative(other, plain)
    except (RuntimeError, TypeError, ValueError) as error:
        case.update(failure(error, device))
    return case


def _batch(device: str) -> dict[str, Any]:
    return {key: value.to(device) for key, value in batches.padded(batches.samples((24, 17)), "right").items()}


def _with_dropout(forward: Any) -> Any:
    return lambda *arguments: functional.dropout(forward(*arguments), _DROPPED)


def _checkpointed(forward: Any, reentrant: bool) -> Any:
    return lambda *arguments: checkpoint.checkpoint(forward, *arguments, use_reentrant=reentrant)


def _gradient(model: Any, batch: dict[str, Any]) -> Any:
    torch.manual_seed(5)
    model.zero_grad(set_to_none=True)
    # Reentrant checkpointing needs an input that asks for a gradient: the embedding's output does.
    model(**batch).loss.backward()
    return vector(model)
