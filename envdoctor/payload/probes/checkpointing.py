"""Does gradient checkpointing give the gradients that it saves the memory of?

Recomputing the forward pass must not change numbers. RReLU and other random operations did:
https://github.com/pytorch/pytorch/issues/193671; memory that was not freed:
https://github.com/pytorch/pytorch/issues/147449. Reentrant and not, on a tiny model in float32: seen bitwise equal on
healthy releases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "checkpointing",
    "title": "gradients with and without checkpointing",
    "settles": ["checkpointing"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}

_LIMIT = 1e-3


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation for each kind of checkpointing, for the judge ``change``."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from ..probing import batches, tiny_models

    device = job["device"]
    batch = {key: value.to(device) for key, value in batches.padded(batches.samples((24, 17)), "right").items()}
    model = tiny_models.build("chatglm-like", "sdpa").to(device)
    plain = _gradient(model, batch)
    forwards = [layer.forward for layer in model.layers]
    for reentrant in (False, True):
        for layer, forward in zip(model.layers, forwards):
            layer.forward = _checkpointed(checkpoint, forward, reentrant)
        kind = "reentrant" if reentrant else "not reentrant"
        case: dict[str, Any] = {
            "case": f"checkpointed ({kind}) against plain",
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
        except (RuntimeError, TypeError) as error:
            emit({**case, "error": f"{type(error).__name__}: {error}"[:500]})
            continue
        difference = float((other - plain).norm() / plain.norm())
        emit(
            {**case, "relative": difference, "detail": "bitwise equal" if torch.equal(other, plain) else "not bitwise"}
        )


def _checkpointed(checkpoint: Any, forward: Any, reentrant: bool) -> Any:
    return lambda *arguments: checkpoint(forward, *arguments, use_reentrant=reentrant)


def _gradient(model: Any, batch: dict[str, Any]) -> Any:
    import torch

    torch.manual_seed(5)
    model.zero_grad(set_to_none=True)
    # Reentrant checkpointing needs an input that asks for a gradient: the embedding's output does.
    model(**batch).loss.backward()
    return torch.cat([parameter.grad.detach().double().cpu().flatten() for parameter in model.parameters()])
