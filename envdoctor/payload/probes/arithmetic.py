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

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "arithmetic",
    "title": "linear layers, norms, softmax and losses against float64",
    "settles": ["arithmetic", "linear", "losses", "norms"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation an operation and dtype, for the judge ``rounding``; two exact ones of products of ones."""
    import torch

    from ..probing.rounding import DTYPES, compare

    device = job["device"]
    switches = _without_reduced_reductions() if device == "cuda" else {}
    for name in ("bf16", "fp16"):
        dtype = DTYPES[name]
        for label, operation, shapes, gate in _operations():
            generator = torch.Generator().manual_seed(21)
            given = [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]
            case: dict[str, Any] = {
                "case": f"{label} {name}",
                "judge": "rounding",
                "dtype": name,
                "backend": "default",
                "gate": gate,
                "params": {"operation": label},
            }
            try:
                low = _forward_backward(operation, [value.to(device) for value in given])
                exact = _forward_backward(operation, [value.double() for value in given])
            except RuntimeError as error:
                emit({**case, "error": str(error)[:500], "sticky": "CUDA error" in str(error)})
                continue
            emit({**case, **compare(low, exact)})
        _ones(emit, name, dtype, device)
    if switches:
        _as_set(emit, device, switches)


def _without_reduced_reductions() -> dict[str, Any]:
    """Switch off sums of products in half precision on CUDA, which torch allows by itself and which are no fault of a
    kernel; the settings as they were, by name."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    names = [f"allow_{kind}_reduced_precision_reduction" for kind in ("bf16", "fp16")]
    before = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    for name in before:
        setattr(matmul, name, False)
    return before


def _as_set(emit: Callable[[dict[str, Any]], None], device: str, switches: dict[str, Any]) -> None:
    """What linear layers lose with the settings as they were: information."""
    import torch

    from ..probing.rounding import DTYPES, compare

    for name, value in switches.items():
        setattr(torch.backends.cuda.matmul, name, value)
    label, operation, shapes, _ = _operations()[0]
    for name in ("bf16", "fp16"):
        generator = torch.Generator().manual_seed(21)
        given = [torch.randn(*shape, generator=generator).to(DTYPES[name]) for shape in shapes]
        low = _forward_backward(operation, [value.to(device) for value in given])
        exact = _forward_backward(operation, [value.double() for value in given])
        found = compare(low, exact)
        worst = max(found["ratio"].values(), default=float("nan"))
        emit(
            {"kind": "info", "case": f"{label} {name}, reductions as set", "dtype": name, "detail": f"ratio {worst:g}"}
        )


def _operations() -> list[tuple[str, Any, list[tuple[int, ...]], list[str]]]:
    """(name, function, shapes of its inputs, tensors that gate)."""
    import torch

    functional = torch.nn.functional
    targets = torch.arange(64) % 50

    def cross_entropy(logits: Any) -> Any:
        return functional.cross_entropy(logits, targets.to(logits.device), reduction="none")

    return [
        ("linear", lambda x, w: functional.linear(x, w), [(4096, 32), (16, 32)], ["o", "d0", "d1"]),
        ("bmm", torch.bmm, [(4, 65, 64), (4, 64, 33)], ["o", "d0", "d1"]),
        ("softmax", lambda x: torch.softmax(x, -1), [(8, 8192)], ["o", "d0"]),
        ("cross entropy", cross_entropy, [(64, 50)], ["o", "d0"]),
        ("silu", functional.silu, [(64, 512)], ["o", "d0"]),
        ("gelu", lambda x: functional.gelu(x, approximate="tanh"), [(64, 512)], ["o", "d0"]),
        ("layer norm", lambda x, w, b: functional.layer_norm(x, (64,), w, b), [(2048, 64), (64,), (64,)], ["o", "d0"]),
        ("logsumexp", lambda x: torch.logsumexp(20 * x, -1), [(8, 8192)], ["o"]),
    ]


def _forward_backward(operation: Any, inputs: list[Any]) -> dict[str, Any]:
    import torch

    leaves = [value.detach().requires_grad_() for value in inputs]
    out = operation(*leaves)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(22)).to(torch.bfloat16)
    out.backward(upstream.to(out.dtype).to(out.device))
    return {"o": out, **{f"d{number}": leaf.grad for number, leaf in enumerate(leaves)}}


def _ones(emit: Callable[[dict[str, Any]], None], name: str, dtype: Any, device: str) -> None:
    """Products and convolutions of ones count: every element must be exactly the number of terms."""
    import torch

    ones = torch.ones(32, 1024, dtype=dtype, device=device)
    image = torch.ones(1, 1, 8, 8, dtype=dtype, device=device)
    kernel = torch.ones(1, 1, 2, 2, dtype=dtype, device=device)
    for label, make, terms in (
        ("matmul of ones", lambda: ones @ ones.T, 1024.0),
        ("2 x 2 convolution of ones", lambda: torch.nn.functional.conv2d(image, kernel), 4.0),
    ):
        case: dict[str, Any] = {
            "case": f"{label} {name}",
            "judge": "exact",
            "dtype": name,
            "backend": "default",
            "signature": "wrong-sum",
            "tensors": ["o"],
            "params": {"operation": label},
            "limit": 0.0,
        }
        try:
            worst = float((make().double() - terms).abs().max())
        except RuntimeError as error:
            emit(
                {**case, "skip": str(error)[:300]}
                if "not implemented" in str(error)
                else {**case, "error": str(error)[:500]}
            )
            continue
        emit({**case, "difference": worst, "detail": f"{terms:g} expected"})
