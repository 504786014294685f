"""Are the plain operations of a transformer as accurate as their dtype allows?

Linear layers, batched products, softmax, cross entropy, activations, layer norm and embedding, forward and backward,
each against float64, and where that is easily said against a formula of its own: a function that is wrong in every
dtype is not compared with itself. Among them widths (2,048 and 4,096) and vocabularies (50,257 and 131,072) as models
have them, and sizes that no tile divides.
Healthy half precision is 1.0 to 3 times the error of rounding the exact result once, on the CPU in torch 2.4.1 to
2.13.0. Weight gradients of layer norm (45 times), embedding gradients (27) and logsumexp gradients (140) are that
inaccurate on healthy CPUs: the first two gate in float32, where a mistake is worth a million such units, the last does
not. On CUDA sums of parts in half precision are switched off for the gate; a product of many tiles is then judged
with the settings as they are, which training runs with, by a wider limit.

Bugs that it exists for: saturating sums of bf16 (https://github.com/pytorch/pytorch/issues/83863,
https://github.com/pytorch/pytorch/issues/95125), a convolution of ones
(https://github.com/pytorch/pytorch/issues/163347), gradients of norms that drop features
(https://github.com/pytorch/pytorch/issues/190828), split-K products with NaN
(https://github.com/ROCm/rocm-libraries/issues/9055).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from ..probing.kit import DTYPES, Emit, Job, compare, forward_backward, found_by, full_precision, judged

PROBE = {
    "title": "linear layers, norms, softmax and losses against float64",
    "settles": ["arithmetic", "linear", "losses", "norms"],
}

_HALVES = ("bf16", "fp16")
#: (pass, warn, why) in float32: sums over thousands of rows cost hundreds of roundings, a lost or doubled value 1e6.
_SUMS = (2000.0, 20000.0, "sums over many rows")
#: The same where torch may add parts of a sum in half precision, each of which may cost a rounding.
_AS_SET = (16.0, 64.0, "parts of sums in half precision")
_VOCABULARY, _ODD_VOCABULARY = 131072, 50257


class _Operation(NamedTuple):
    """What is done with inputs of these ``shapes``, the same as a formula, and the tensors whose error counts, by which
    ``limits`` (None: those of the dtype)."""

    label: str
    function: Any
    formula: Any
    shapes: list[tuple[int, ...]]
    gate: list[str]
    limits: tuple[float, float, str] | None = None


def run(job: Job, emit: Emit) -> None:
    """One observation an operation and dtype, for the judge ``rounding``; two exact ones of products of ones."""
    device = job["device"]
    switches = _without_reduced_reductions() if device == "cuda" else {}
    for name in _HALVES:
        for operation in _operations():
            emit(_case(operation, name, device))
        _ones(emit, name, device)
    with full_precision():  # TF32, which NVIDIA's containers switch on, is the business of another experiment
        for operation in _large():
            emit(_case(operation, "fp32", device))
    emit(_dropped(device))
    for name, value in switches.items():
        setattr(torch.backends.cuda.matmul, name, value)
    for name in _HALVES if switches else ():
        emit(_case(_tiled(), name, device))


def _without_reduced_reductions() -> dict[str, Any]:
    """Switch off sums of products in half precision on CUDA, which torch allows by itself and which are no fault of a
    kernel; the settings as they were, by name."""
    matmul: Any = torch.backends.cuda.matmul
    names = [f"allow_{kind}_reduced_precision_reduction" for kind in _HALVES]
    before = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    for name in before:
        setattr(matmul, name, False)
    return before


def _case(operation: _Operation, dtype: str, device: str) -> dict[str, Any]:
    """The observation of one operation."""
    case: dict[str, Any] = {"judge": "rounding", "dtype": dtype, "backend": "default"}
    if operation.limits is not None:
        case["limits"] = list(operation.limits)
    case.update(case=f"{operation.label} {dtype}", gate=operation.gate, params={"operation": operation.label})
    return {**case, **found_by(lambda: _measured(operation, dtype, device), device)}


def _measured(operation: _Operation, dtype: str, device: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(21)
    given = [torch.randn(*shape, generator=generator).to(DTYPES[dtype]) for shape in operation.shapes]

    def upstream(shape: Any) -> Any:
        return torch.randn(shape, generator=torch.Generator().manual_seed(22)).to(torch.bfloat16)

    low = forward_backward(operation.function, [value.to(device) for value in given], upstream)
    return compare(low, forward_backward(operation.formula, [value.double() for value in given], upstream))


def _operations() -> list[_Operation]:
    """Those that are judged in half precision."""
    targets = torch.arange(64) % 50
    softmax, gelu = partial(torch.softmax, dim=-1), partial(functional.gelu, approximate="tanh")

    def logsumexp(x: Any) -> Any:
        return torch.logsumexp(20 * x, -1)

    return [
        _Operation("linear", functional.linear, _product, [(4096, 32), (16, 32)], ["o", "d0", "d1"]),
        _Operation("wide linear", functional.linear, _product, [(16, 4096), (24, 4096)], ["o", "d0", "d1"]),
        _Operation("odd linear", functional.linear, _product, [(200, 1001), (72, 1001)], ["o", "d0", "d1"]),
        _Operation("bmm", torch.bmm, torch.bmm, [(4, 65, 64), (4, 64, 33)], ["o", "d0", "d1"]),
        _Operation("softmax", softmax, softmax, [(8, 8192)], ["o", "d0"]),
        _Operation("cross entropy", *_losses(targets), [(64, 50)], ["o", "d0"]),
        _Operation("silu", functional.silu, lambda x: x * torch.sigmoid(x), [(64, 512)], ["o", "d0"]),
        _Operation("gelu", gelu, gelu, [(64, 512)], ["o", "d0"]),
        _Operation("layer norm", _normed, _layer_norm, [(2048, 64), (64,), (64,)], ["o", "d0"]),
        _Operation("logsumexp", logsumexp, logsumexp, [(8, 8192)], ["o"]),
    ]


def _tiled() -> _Operation:
    """A product of 128 tiles of 128 x 128, for which libraries take the kernels of training."""
    shapes: list[tuple[int, ...]] = [(1024, 1024), (2048, 1024)]
    return _Operation("tiled linear", functional.linear, _product, shapes, ["o", "d0", "d1"], _AS_SET)


def _large() -> list[_Operation]:
    """Those whose gradients are sums over many rows, judged in float32."""
    generator = torch.Generator().manual_seed(23)
    targets = torch.randint(0, _VOCABULARY, (12,), generator=generator)
    fewer = targets % _ODD_VOCABULARY
    tokens = torch.cat([targets, targets, torch.randint(0, 300, (600,), generator=generator)])

    rows = torch.arange(64) % 7

    def embedding(weight: Any) -> Any:
        return functional.embedding(tokens.to(weight.device), weight)

    def index_add(x: Any) -> Any:
        return x.new_zeros(7, x.shape[-1]).index_add_(0, rows.to(x.device), x)

    def added(x: Any) -> Any:
        return (rows[None] == torch.arange(7)[:, None]).to(x.dtype) @ x

    return [
        _Operation("index add", index_add, added, [(64, 32)], ["o", "d0"], _SUMS),
        _Operation("wide linear", functional.linear, _product, [(16, 4096), (24, 4096)], ["o", "d0", "d1"], _SUMS),
        _Operation("layer norm", _normed, _layer_norm, [(2048, 64), (64,), (64,)], ["o", "d0", "d1", "d2"], _SUMS),
        _Operation("embedding", embedding, lambda weight: weight[tokens], [(_VOCABULARY, 4)], ["o", "d0"], _SUMS),
        _Operation("cross entropy", *_losses(targets), [(12, _VOCABULARY)], ["o", "d0"]),
        _Operation("odd cross entropy", *_losses(fewer), [(12, _ODD_VOCABULARY)], ["o", "d0"]),
    ]


def _dropped(device: str) -> dict[str, Any]:
    """Dropout of ones: what is left must be 1 / (1 - p), and as many as p says."""
    out = functional.dropout(torch.ones(256, 256, device=device), 0.25, training=True).double().cpu()
    left = out[out != 0]
    share = abs(left.numel() / out.numel() - 0.75)
    error = float((left * 0.75 - 1).abs().max()) if left.numel() else 1.0
    ratio = max(error / torch.finfo(torch.float32).eps, 800 * share)  # 0.01 is six times what chance allows
    case = {"case": "dropout fp32", "judge": "rounding", "dtype": "fp32", "backend": "default", "gate": ["o"]}
    return {**case, "params": {"operation": "dropout"}, "ratio": {"o": ratio}}


def _product(x: Any, weight: Any) -> Any:
    return x @ weight.transpose(0, 1)


def _losses(targets: Any) -> tuple[Any, Any]:
    """The loss of each row of logits as torch has it, and as a formula."""

    def cross_entropy(logits: Any) -> Any:
        return functional.cross_entropy(logits, targets.to(logits.device), reduction="none")

    return cross_entropy, lambda logits: torch.logsumexp(logits, -1) - logits.gather(-1, targets[:, None])[:, 0]


def _normed(x: Any, weight: Any, bias: Any) -> Any:
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def _off(make: Any, terms: float) -> dict[str, Any]:
    return {"difference": float((make().double() - terms).abs().max()), "detail": f"{terms:g} expected"}


def _ones(emit: Emit, name: str, device: str) -> None:
    """Products and convolutions of ones count: every element must be exactly the number of terms."""
    ones = torch.ones(32, 1024, dtype=DTYPES[name], device=device)
    image, kernel = (torch.ones(1, 1, size, size, dtype=DTYPES[name], device=device) for size in (8, 2))
    for label, make, terms in (
        ("matmul of ones", lambda: ones @ ones.T, 1024.0),
        ("2 x 2 convolution of ones", lambda: functional.conv2d(image, kernel), 4.0),
    ):
        case = judged("exact", "wrong-sum", ["o"], dtype=name, backend="default", limit=0.0)
        case.update(case=f"{label} {name}", params={"operation": label})
        emit({**case, **found_by(partial(_off, make, terms), device)})
