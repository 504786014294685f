"""Are the plain operations of a transformer as accurate as their dtype allows?

Linear layers, batched products, softmax, cross entropy, activations and layer norm, forward and backward, each against
float64. Healthy half precision is 1.0 to 3 times the error of rounding the exact result once, on the CPU in torch 2.4.1
to 2.13.0. Weight gradients of layer norm (45 times), embedding gradients (27) and logsumexp gradients (140) are that
inaccurate on healthy CPUs, and are measured but do not gate. On CUDA sums in half precision are switched off for the
gate, and measured with the settings as they are for information.

Bugs that it exists for: saturating sums of bf16 (https://github.com/pytorch/pytorch/issues/83863,
https://github.com/pytorch/pytorch/issues/95125), a convolution of ones (https://github.com/pytorch/pytorch/issues/163347),
gradients of norms that drop features (https://github.com/pytorch/pytorch/issues/190828), split-K products with NaN
(https://github.com/ROCm/rocm-libraries/issues/9055).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..probing.failure import failure
from ..probing.job import DTYPES, Emit, Job
from ..probing.rounding import compare, forward_backward

PROBE = {
    "title": "linear layers, norms, softmax and losses against float64",
    "settles": ["arithmetic", "linear", "losses", "norms"],
}

_HALVES = ("bf16", "fp16")


def run(job: Job, emit: Emit) -> None:
    """One observation an operation and dtype, for the judge ``rounding``; two exact ones of products of ones."""
    device = job["device"]
    switches = _without_reduced_reductions() if device == "cuda" else {}
    for name in _HALVES:
        for operation in _operations():
            label, gate = operation[0], operation[3]
            case = {"case": f"{label} {name}", "judge": "rounding", "dtype": name, "backend": "default", "gate": gate}
            try:
                found = _measured(operation, name, device)
            except RuntimeError as error:
                found = failure(error, device)
            emit({**case, "params": {"operation": label}, **found})
        _ones(emit, name, device)
    for name, value in switches.items():
        setattr(torch.backends.cuda.matmul, name, value)
    for name in _HALVES if switches else ():
        ratios = _measured(_operations()[0], name, device)["ratio"]
        worst = max(ratios.values(), default=float("nan"))
        emit({"kind": "info", "case": f"linear {name}, reductions as set", "dtype": name, "detail": f"ratio {worst:g}"})


def _without_reduced_reductions() -> dict[str, Any]:
    """Switch off sums of products in half precision on CUDA, which torch allows by itself and which are no fault of a
    kernel; the settings as they were, by name."""
    matmul: Any = torch.backends.cuda.matmul
    names = [f"allow_{kind}_reduced_precision_reduction" for kind in _HALVES]
    before = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    for name in before:
        setattr(matmul, name, False)
    return before


def _measured(operation: tuple[str, Any, list[tuple[int, ...]], list[str]], dtype: str, device: str) -> dict[str, Any]:
    _, function, shapes, _ = operation
    generator = torch.Generator().manual_seed(21)
    given = [torch.randn(*shape, generator=generator).to(DTYPES[dtype]) for shape in shapes]

    def upstream(shape: Any) -> Any:
        return torch.randn(shape, generator=torch.Generator().manual_seed(22)).to(torch.bfloat16)

    low = forward_backward(function, [value.to(device) for value in given], upstream)
    return compare(low, forward_backward(function, [value.double() for value in given], upstream))


def _operations() -> list[tuple[str, Any, list[tuple[int, ...]], list[str]]]:
    """(name, function, shapes of its inputs, tensors that gate)."""
    targets = torch.arange(64) % 50

    def cross_entropy(logits: Any) -> Any:
        return functional.cross_entropy(logits, targets.to(logits.device), reduction="none")

    return [
        ("linear", lambda x, w: functional.linear(x, w), [(4096, 32), (16, 32)], ["o", "d0", "d1"]),
        ("bmm", torch.bmm, [(4, 65, 64), (4, 64, 33)], ["o", "d0", "d1"]),
        ("softmax", lambda x: torch.softmax(x, -1), [(8, 8192)], ["o", "d0"]),
        ("cross entropy", cross_entropy, [(64, 50)], ["o", "d0"]),
        ("silu", lambda x: functional.silu(x), [(64, 512)], ["o", "d0"]),
        ("gelu", lambda x: functional.gelu(x, approximate="tanh"), [(64, 512)], ["o", "d0"]),
        ("layer norm", lambda x, w, b: functional.layer_norm(x, (64,), w, b), [(2048, 64), (64,), (64,)], ["o", "d0"]),
        ("logsumexp", lambda x: torch.logsumexp(20 * x, -1), [(8, 8192)], ["o"]),
    ]


def _ones(emit: Emit, name: str, device: str) -> None:
    """Products and convolutions of ones count: every element must be exactly the number of terms."""
    ones = torch.ones(32, 1024, dtype=DTYPES[name], device=device)
    image, kernel = (torch.ones(1, 1, size, size, dtype=DTYPES[name], device=device) for size in (8, 2))
    for label, make, terms in (
        ("matmul of ones", lambda: ones @ ones.T, 1024.0),
        ("2 x 2 convolution of ones", lambda: functional.conv2d(image, kernel), 4.0),
    ):
        case = {"case": f"{label} {name}", "judge": "exact", "dtype": name, "backend": "default", "limit": 0.0}
        try:
            found = {"difference": float((make().double() - terms).abs().max()), "detail": f"{terms:g} expected"}
        except RuntimeError as error:
            found = failure(error, device)
        emit({**case, "signature": "wrong-sum", "tensors": ["o"], "params": {"operation": label}, **found})
