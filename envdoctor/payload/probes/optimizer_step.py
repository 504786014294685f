"""Do the optimizers of torch take the step that their papers say, for every parameter?

Five steps of Adam, AdamW and SGD with momentum over matrices, vectors and one number, with gradients from 1e-6 to 10,
as a loop, many at once (``foreach``) and fused, each against the formulas in float64; the last three after the state
was saved and loaded again. A fused AdamW that learned worse than the others:
https://github.com/pytorch/pytorch/issues/96755; one that took the weight decay of the other rule:
https://github.com/flagos-ai/FlagGems/issues/4988.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..probing.job import Emit, Job, judged
from ..probing.rounding import relative

PROBE = {"title": "optimizer steps against float64"}

_SHAPES = ((33, 17), (64,), (5, 3), (1,))
_SIZES = (1e-6, 1e-3, 1.0, 10.0)
_STEPS, _RESUMED = 5, 2
_RATE, _DECAY, _EPSILON, _BETAS, _MOMENTUM = 1e-2, 0.1, 1e-8, (0.9, 0.95), 0.9
#: Of the change of a parameter; seen: 1e-5, from rounding the parameter itself.
_LIMIT = 1e-3


def run(job: Job, emit: Emit) -> None:
    """One observation for each optimizer and implementation, for the judge ``change``."""
    generator = torch.Generator().manual_seed(61)
    start = [0.1 * torch.randn(*shape, generator=generator) for shape in _SHAPES]
    gradients = [
        [size * torch.randn(*shape, generator=generator) for shape, size in zip(_SHAPES, _SIZES)] for _ in range(_STEPS)
    ]
    kinds: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("AdamW", torch.optim.AdamW, _adam(decoupled=True), {"betas": _BETAS, "eps": _EPSILON}),
        ("Adam", torch.optim.Adam, _adam(decoupled=False), {"betas": _BETAS, "eps": _EPSILON}),
        ("SGD", torch.optim.SGD, _sgd, {"momentum": _MOMENTUM}),
    ]
    for name, kind, formula, settings in kinds:
        exact = [formula(value.double(), [step[place] for step in gradients]) for place, value in enumerate(start)]
        for way in ("loop", "foreach", "fused"):
            chosen = {"foreach": False} if way == "loop" else {way: True}
            case = judged("change", "step-differs", ["parameters"], dtype="fp32", backend=way, limit=_LIMIT)
            case.update(case=f"{name} ({way}), {_STEPS} steps", params={"optimizer": name.lower()})
            weights = [torch.nn.Parameter(value.clone().to(job["device"])) for value in start]
            try:
                _train(kind, {"lr": _RATE, "weight_decay": _DECAY, **settings, **chosen}, weights, gradients)
            except (RuntimeError, TypeError, ValueError) as error:
                emit({**case, "skip": f"{way} {name} is not offered here: {error}"[:300]})
                continue
            errors = [
                relative(weight.detach().cpu().double() - first, last - first)
                for weight, first, last in zip(weights, start, exact)
            ]
            worst = max(range(len(errors)), key=lambda place: errors[place])
            told = f"the change of a parameter of shape {tuple(_SHAPES[worst])} is off by {errors[worst]:.2g} of it"
            emit({**case, "relative": "nan" if sum(errors) != sum(errors) else errors[worst], "detail": told})


def _train(kind: Any, settings: dict[str, Any], weights: list[Any], gradients: list[list[Any]]) -> None:
    """The steps, with the state saved and loaded on the way."""
    optimizer = kind(weights, **settings)
    for number, step in enumerate(gradients):
        if number == _RESUMED:
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = kind(weights, **settings)
            optimizer.load_state_dict(saved)
        for weight, gradient in zip(weights, step):
            weight.grad = gradient.to(weight.device)
        optimizer.step()


def _adam(decoupled: bool) -> Any:
    """https://arxiv.org/abs/1711.05101, algorithm 2, with its weight decay decoupled or in the gradient."""

    def steps(value: Any, gradients: list[Any]) -> Any:
        first = second = torch.zeros_like(value)
        for number, raw in enumerate(gradients, 1):
            gradient = raw.double() if decoupled else raw.double() + _DECAY * value
            first = _BETAS[0] * first + (1 - _BETAS[0]) * gradient
            second = _BETAS[1] * second + (1 - _BETAS[1]) * gradient**2
            bound = (second / (1 - _BETAS[1] ** number)).sqrt() + _EPSILON
            kept = value * (1 - _RATE * _DECAY) if decoupled else value
            value = kept - _RATE * first / (1 - _BETAS[0] ** number) / bound
        return value

    return steps


def _sgd(value: Any, gradients: list[Any]) -> Any:
    moved: Any = None
    for raw in gradients:
        gradient = raw.double() + _DECAY * value
        moved = gradient if moved is None else _MOMENTUM * moved + gradient
        value = value - _RATE * moved
    return value
