"""Does gradient checkpointing give the gradients that it saves the memory of?

Recomputing the forward pass must not change numbers. RReLU and other random operations did:
https://github.com/pytorch/pytorch/issues/193671; memory that was not freed:
https://github.com/pytorch/pytorch/issues/147449. Reentrant and not, on a tiny model in float32 with dropout behind each
layer, which must drop the same values when it is computed again: seen bitwise equal on healthy releases.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.utils import checkpoint

from ..probing import batches, tiny_models
from ..probing.failure import failure
from ..probing.job import Emit, Job
from ..probing.rounding import relative, vector

PROBE = {"title": "gradients with and without checkpointing", "attention": "sdpa"}

_LIMIT = 1e-3
_DROPPED = 0.1


def run(job: Job, emit: Emit) -> None:
    """One observation for each kind of checkpointing, for the judge ``change``."""
    device = job["device"]
    batch = {key: value.to(device) for key, value in batches.padded(batches.samples((24, 17)), "right").items()}
    model = tiny_models.build("chatglm-like", "sdpa").to(device)
    forwards = [_with_dropout(layer.forward) for layer in model.layers]
    for layer, forward in zip(model.layers, forwards):
        layer.forward = forward
    plain = _gradient(model, batch)
    for reentrant in (False, True):
        for layer, forward in zip(model.layers, forwards):
            layer.forward = _checkpointed(forward, reentrant)
        case: dict[str, Any] = {
            "case": f"checkpointed ({'reentrant' if reentrant else 'not reentrant'}) against plain",
            "judge": "change",
            "dtype": "fp32",
            "backend": "reentrant" if reentrant else "default",
            "signature": "checkpoint-differs",
            "tensors": ["gradients"],
            "params": {"use_reentrant": reentrant},
            "limit": _LIMIT,
        }
        try:
            other = _gradient(model, batch)
            case["detail"] = "bitwise equal" if torch.equal(other, plain) else "not bitwise"
            case["relative"] = relative(other, plain)
        except (RuntimeError, TypeError) as error:
            case.update(failure(error, device))
        emit(case)


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
