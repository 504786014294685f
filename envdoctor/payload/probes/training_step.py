"""Do optimizer steps in the recipe's dtype stay finite and move the weights?

Pure fp16 weights with AdamW go NaN within two steps, because its epsilon of 1e-8 is 0 in fp16
(https://github.com/pytorch/pytorch/issues/96755, https://github.com/pytorch/pytorch/issues/97004); pure bf16 weights at
1.0 do not move at a learning rate of 1e-4, because the update is below half a step of the format. Both are so by
design: they are reported for a recipe that trains such weights (``recipe.load_dtype``), and as information otherwise.

Fifteen AdamW steps of tiny models in bf16, with batches of changing length padded on alternating sides, must stay
finite, whatever the recipe: https://github.com/zai-org/GLM-4/issues/724.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing import batches, tiny_models
from ..probing.job import DTYPES, Emit, Job, judged, loaded_dtype
from ..probing.rounding import lost

PROBE = {
    "title": "optimizer steps in the recipe's dtype",
    "attention": "sdpa",
    "suites": {
        "quick": [{"models": ["chatglm-like"]}],
        "full": [{"models": ["chatglm-like", "glm", "qwen2", "llama", "gemma2"]}],
    },
    "memory_mib": 2000,
}

_CYCLES, _BATCHES = 3, 5


def run(job: Job, emit: Emit) -> None:
    """Observations for the judge ``exact``: parameters stay finite, and move."""
    device, trained = job["device"], loaded_dtype(job)
    for name in tiny_models.chosen(job["model"], job["options"].get("models") or ["chatglm-like"]):
        called = tiny_models.label(name, job["model"])
        dtype = "fp16" if trained == "fp16" else "bf16"
        case = judged("exact", "nan-parameters", ["parameters"], dtype=dtype, backend="sdpa", params={"model": called})
        case["case"] = f"{called}: {_CYCLES * _BATCHES} AdamW steps of {dtype} weights"
        try:
            case.update(_train(name, dtype, device, job["model"]))
        except tiny_models.Unavailable as reason:
            case["skip"] = str(reason)
        emit(case)
    _half_adamw(emit, device, gate=trained == "fp16")
    _standstill(emit, device, gate=trained == "bf16", rate=float(job["recipe"].get("learning_rate") or 1e-4))


def _train(name: str, dtype: str, device: str, folder: Any) -> dict[str, Any]:
    model = tiny_models.build(name, "sdpa", folder).to(DTYPES[dtype]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = batches.LENGTHS["long" if device == "cuda" else "short"]
    losses: list[float] = []
    for cycle in range(_CYCLES):
        for number in range(_BATCHES):
            made = batches.samples(tuple(max(4, length - 3 * number) for length in lengths), seed=100 * cycle + number)
            batch = batches.padded(made, "left" if number % 2 else "right", position_ids=bool(number % 2))
            loss = model(**{key: value.to(device) for key, value in batch.items()}).loss
            losses.append(float(loss.detach()))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if losses[-1] != losses[-1]:
                return {"equal": False, "detail": f"the loss is NaN at step {len(losses) - 1}"}
    bad = sum(map(lost, model.parameters()))
    return {"equal": bad == 0, "detail": f"{bad} parameters not finite, loss {losses[0]:.3g} to {losses[-1]:.3g}"}


def _half_adamw(emit: Emit, device: str, gate: bool) -> None:
    """Eight fp16 weights with a gradient of 1e-5, then 0."""
    for backend in ("foreach", "fused"):
        weights = torch.nn.Parameter(torch.ones(8, dtype=torch.float16, device=device))
        case = judged("exact", "nan-parameters", ["parameters"], dtype="fp16", backend=backend)
        case.update(case=f"AdamW ({backend}) on fp16 weights", params={"optimizer": "adamw"}, **_told_only(not gate))
        try:
            optimizer = torch.optim.AdamW([weights], lr=1e-3, **{backend: True})
            for size in (1e-5, 0.0, 0.0):
                weights.grad = torch.full_like(weights, size)
                optimizer.step()
            case["equal"] = lost(weights) == 0
            case["detail"] = f"{lost(weights)} of 8 weights are NaN after three steps"
        except (RuntimeError, TypeError, ValueError) as error:
            case["skip"] = f"{backend} AdamW is not offered here: {error}"[:300]
        emit(case)


def _standstill(emit: Emit, device: str, gate: bool, rate: float) -> None:
    """A bf16 weight of 1.0 under 50 AdamW steps with a constant gradient."""
    weight = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16, device=device))
    optimizer = torch.optim.AdamW([weight], lr=rate, weight_decay=0.0)
    for _ in range(50):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    moved = float((weight.detach() - 1).abs().max())
    case = judged("exact", "weights-stand-still", ["parameters"], dtype="bf16", backend="default", soft=True)
    case.update(case="50 AdamW steps of a bf16 weight of 1.0", params={"optimizer": "adamw", "learning_rate": rate})
    told = f"moved by {moved:g} at a learning rate of {rate:g}"
    emit({**case, **_told_only(not gate), "equal": moved > 0, "detail": told})


def _told_only(so: bool) -> dict[str, str]:
    """The part of an observation that is information for a recipe that trains otherwise."""
    return {"kind": "info"} if so else {}
