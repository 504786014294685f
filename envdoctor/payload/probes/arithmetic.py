"""Are the plain operations of a transformer as accurate as their dtype allows?

Linear layers, batched products, softmax, losses, activations, layer norm, embeddings, sums (running ones and by index
too), the largest of a row, roots, sine and cosine, forward and backward, each against a formula of its own in
float64: a function that is wrong in every dtype is not compared with itself. The sizes are drawn anew for each seed:
widths and vocabularies as models have them, and sizes that no tile divides, so that each kind of size meets each
operation, dtype and other kind of size. Healthy half precision is 1.0 to 3 times the error of rounding the exact
result once, on the CPU in torch 2.4.1 to 2.13.0. Weight gradients of layer norm (45 times), embedding gradients (27)
and logsumexp gradients (140) are that inaccurate on healthy CPUs: the first two gate in float32, where a mistake is
worth a million such units, the last does not. On CUDA sums of parts in half precision are switched off for the gate;
a product of many tiles is then judged with the settings as they are, which training runs with, by a wider limit.

Bugs that it exists for: saturating sums of bf16 (https://github.com/pytorch/pytorch/issues/83863,
https://github.com/pytorch/pytorch/issues/95125), a convolution of ones
(https://github.com/pytorch/pytorch/issues/163347), gradients of norms that drop features
(https://github.com/pytorch/pytorch/issues/190828), split-K products with NaN
(https://github.com/ROCm/rocm-libraries/issues/9055).
"""

from __future__ import annotations

import operator
from itertools import accumulate
from typing import Any

import torch
from torch.nn import functional

from ..probing.kit import DTYPES, Case, Emit, Job, found_by, full_precision, run_rows, seed_of
from ..probing.shapes import HIDDEN, SIZES, WORDS, drawn, each

PROBE = {
    "title": "linear layers, norms, softmax and losses against float64",
    "settles": ["arithmetic", "linear", "losses", "norms"],
}

_HALVES = ("bf16", "fp16")
#: (pass, warn, why) in float32: sums over thousands of rows cost hundreds of roundings, a lost or doubled value 1e6.
_SUMS = [2000.0, 20000.0, "sums over many rows"]
#: The same where torch may add parts of a sum in half precision, each of which may cost a rounding.
_AS_SET = [16.0, 64.0, "parts of sums in half precision"]
#: What a tensor, and the work of a product, is kept below by fewer rows: an operation takes milliseconds.
_ELEMENTS, _WORK = 1 << 18, 1 << 24
#: Of sums by index, where many numbers have one index.
_BINS = 37
#: Inputs of a great range, about a great mean, and so small that fp16 has no normal numbers for them.
_WIDE, _FAR, _TINY = {0: (30.0, 0.0)}, {0: (1.0, 1000.0)}, {0: (2e-5, 0.0)}


def _layer_norm(at: Any, x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def _logsumexp(at: Any, x: Any, times: float = 20.0) -> Any:
    most = x.amax(-1, keepdim=True)
    return times * most[..., 0] + (times * (x - most)).exp().sum(-1).log()


def _softmax(at: Any, x: Any) -> Any:
    return (x - _logsumexp(at, x, 1.0)[..., None]).exp()


def _losses(at: Any, x: Any) -> Any:
    return _logsumexp(at, x, 1.0) - x.gather(-1, at[:, None])[:, 0]


def _gelu(at: Any, x: Any) -> Any:
    return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))


def _mean_loss(at: Any, x: Any) -> Any:
    return _losses(at % x.shape[-1], x).sum() / len(at)


def _log_sigmoid(at: Any, x: Any) -> Any:
    return x.clamp(max=0) - torch.log1p((-x.abs()).exp())


def _running(at: Any, x: Any) -> Any:
    return torch.stack(list(accumulate(x.unbind(-1))), -1)


def _scatter_add(at: Any, x: Any) -> Any:
    return x.new_zeros(_BINS).scatter_add_(0, at % _BINS, x)


def _binned(at: Any, x: Any) -> Any:
    return (at[None] % _BINS == torch.arange(_BINS)[:, None]).to(x.dtype) @ x


def _counted(at: Any, x: Any) -> Any:
    return (at[None] == torch.arange(int(at.max()) + 1)[:, None]).to(x.dtype) @ x


def _index_add(at: Any, x: Any) -> Any:
    return x.new_zeros(int(at.max()) + 1, x.shape[-1]).index_add_(0, at, x)


#: What is tried with more than one kind of inputs, and the same as a formula.
_LINEAR = (lambda at, x, weight: functional.linear(x, weight), lambda at, x, weight: x @ weight.transpose(0, 1))
_NORM = (lambda at, x, w, b: functional.layer_norm(x, x.shape[-1:], w, b), _layer_norm)
_SILU = (lambda at, x: functional.silu(x), lambda at, x: x * torch.sigmoid(x))
_SOFTMAX = (lambda at, x: torch.softmax(x, -1), _softmax)
#: By name: what is done with tensors and ``at``, a number for each row; the same as a formula; shapes; what gates in
#: half precision (nothing: it is not tried there), and what in float32; inputs that are no standard normal ones.
#: torch's is looked up at each call: who wraps it is tested as well.
_OPERATIONS: dict[str, tuple[Any, ...]] = {
    "linear": (*_LINEAR, "rows width, outer width", "o d0 d1", "o d0 d1"),
    "bmm": (
        *(lambda at, x, y: torch.bmm(x, y), lambda at, x, y: torch.einsum("brw,bwo->bro", x, y)),
        *("few rows width, few width outer", "o d0 d1", "o d0 d1"),
    ),
    "softmax": (*_SOFTMAX, "rows width", "o d0", "o d0"),
    "cross entropy": (
        *(lambda at, x: functional.cross_entropy(x, at, reduction="none"), _losses, "rows words", "o d0", "o d0"),
    ),
    "silu": (*_SILU, "rows width", "o d0", "o d0"),
    "gelu": (lambda at, x: functional.gelu(x, approximate="tanh"), _gelu, "rows width", "o d0", "o d0"),
    "layer norm": (*_NORM, "rows width, width, width", "o d0", "o d0 d1 d2"),
    "logsumexp": (lambda at, x: torch.logsumexp(20 * x, -1), _logsumexp, "rows width", "o", "o"),
    "embedding": (lambda at, w: functional.embedding(at, w), lambda at, w: w[at], "words few", "o", "o d0"),
    "index add": (_index_add, _counted, "rows width", "d0", "o d0"),
    "linear of tiny numbers": (*_LINEAR, "rows width, outer width", "o", "o", _TINY),
    "head": (*_LINEAR, "few thin, words thin", "o d0", "o d0 d1"),
    "baddbmm": (
        *(lambda at, x, y, z: torch.baddbmm(x, y, z), lambda at, x, y, z: x + torch.einsum("brw,bwo->bro", y, z)),
        *("few rows outer, few rows narrow, few narrow outer", "o d0 d1 d2", "o d0 d1 d2"),
    ),
    "softmax of a wide range": (*_SOFTMAX, "rows width", "o", "o d0", _WIDE),
    "log softmax of a wide range": (
        *(lambda at, x: torch.log_softmax(x, -1), lambda at, x: x - _logsumexp(at, x, 1.0)[..., None]),
        *("rows width", "o", "o d0", _WIDE),
    ),
    "mean cross entropy": (
        *(lambda at, x: functional.cross_entropy(x, at % x.shape[-1]), _mean_loss, "rows narrow", "d0", "d0"),
    ),
    "silu of a wide range": (*_SILU, "rows width", "o d0", "o d0", _WIDE),
    "exact gelu": (
        *(lambda at, x: functional.gelu(x), lambda at, x: x * (1 + torch.erf(x / 2**0.5)) / 2),
        *("rows width", "o d0", "o d0"),
    ),
    "log sigmoid": (lambda at, x: functional.logsigmoid(x), _log_sigmoid, "rows width", "o d0", "o d0", _WIDE),
    "layer norm far from zero": (*_NORM, "rows width, width, width", "", "o", _FAR),
    "sum of rows": (lambda at, x: x.sum(-1), lambda at, x: x @ x.new_ones(x.shape[-1]), "rows width", "o", "o d0"),
    "sum of columns": (lambda at, x: x.sum(0), lambda at, x: x.new_ones(len(x)) @ x, "rows width", "o", "o d0"),
    "running sum": (lambda at, x: torch.cumsum(x, -1), _running, "rows width", "o", "o d0"),
    "norm of many": (
        *(lambda at, x: torch.linalg.vector_norm(x, dim=-1), lambda at, x: x.pow(2).sum(-1).sqrt()),
        *("few long", "", "o d0"),
    ),
    "largest": (
        lambda at, x: torch.topk(x, 4).values,
        lambda at, x: x.sort(-1)[0].flip(-1)[..., :4],
        "rows width",
        "o",
        "o",
    ),
    "reciprocal root": (
        lambda at, x: torch.rsqrt(x.abs() + 1),
        lambda at, x: (x.abs() + 1) ** -0.5,
        "rows width",
        "o",
        "o",
    ),
    "sine and cosine": (
        *(lambda at, x: torch.cat((torch.sin(x), torch.cos(x)), -1), lambda at, x: torch.cat((x.sin(), x.cos()), -1)),
        *("rows width", "o", "o", {0: (900.0, 0.0)}),
    ),
    "embedding of a transposed table": (
        *(lambda at, w: functional.embedding(at, w.transpose(0, 1)), lambda at, w: w.transpose(0, 1)[at]),
        *("few words", "", "o d0"),
    ),
    "scatter add": (_scatter_add, _binned, "rows", "", "o d0"),
}


def run(job: Job, emit: Emit) -> None:
    """One observation an operation, dtype and sizes, for the judge ``rounding``; exact ones of products of ones."""
    device = job["device"]
    switches = _without_reduced_reductions() if device == "cuda" else {}
    with full_precision():  # TF32, which NVIDIA's containers switch on, is the business of another experiment
        run_rows(job, emit, [_operation(device, sizes, seed_of(job)) for sizes in _sizes(seed_of(job))])
    run_rows(job, emit, [row for dtype in _HALVES for row in _ones(dtype)])
    case = {"case": "dropout fp32", "judge": "rounding", "dtype": "fp32", "backend": "default", "gate": ["o"]}
    emit({**case, "params": {"operation": "dropout"}, **found_by(lambda: _dropped(device), device)})
    for name, value in switches.items():
        setattr(torch.backends.cuda.matmul, name, value)
    # 128 tiles of 128 x 128, for which libraries take the kernels of training.
    tiled = {"operation": "linear", "rows": 1024, "width": 1024, "outer": 2048}
    rows = [_operation(device, {**tiled, "dtype": dtype}, 0) for dtype in _HALVES if switches]
    run_rows(job, emit, [row._replace(name=f"tiled {row.name}", limit=_AS_SET) for row in rows])


def _without_reduced_reductions() -> dict[str, Any]:
    """Switch off sums of products in half precision on CUDA, which torch allows by itself and which are no fault of a
    kernel; the settings as they were, by name."""
    matmul: Any = torch.backends.cuda.matmul
    names = [f"allow_{kind}_reduced_precision_reduction" for kind in _HALVES]
    before = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    for name in before:
        setattr(matmul, name, False)
    return before


def _sizes(seed: int) -> Any:
    """Operations with their dtype and sizes, rows cut to what is quick."""
    for sizes in drawn(
        seed,
        operation=each(*_OPERATIONS),
        dtype=each(*DTYPES),
        rows=(*SIZES, range(1030, 2048), range(2051, 4096), range(4099, 9000)),
        width=(*SIZES, *HIDDEN),
        outer=SIZES,
        words=WORDS,
        few=((1, 2, 3), (4, 6)),
        narrow=(range(33, 64),),
        thin=(range(9, 16),),
        long=(range(65539, 70000),),
    ):
        if not _OPERATIONS[sizes["operation"]][3]:
            sizes["dtype"] = "fp32"
        beside = {
            name
            for shape in _OPERATIONS[sizes["operation"]][2].split(", ")
            if "rows" in shape
            for name in shape.split()
        }
        longest = max([sizes[name] for name in beside - {"rows", "few"}], default=1)
        sizes["rows"] = min(sizes["rows"], max(3, _ELEMENTS // longest))
        sizes["outer"] = min(sizes["outer"], max(9, _WORK // (sizes["rows"] * sizes["width"])))
        yield sizes


def _operation(device: str, sizes: dict[str, Any], seed: int) -> Case:
    """The row of an operation of these sizes."""
    name, dtype = sizes["operation"], sizes["dtype"]
    function, formula, shapes, half, single, *spread = _OPERATIONS[name]
    # Of words every second is one of few, which so come again and again; the last one is in no whole tile.
    below = sizes["words"] if "words" in shapes else 1 + sizes["rows"] // 4
    generator = torch.Generator().manual_seed(23 + seed)
    at = torch.randint(0, below, (sizes["rows"],), generator=generator)
    at[::2] %= 1 + sizes["rows"] // 4
    at[-1] = below - 1
    moved = at.to(device)
    said = [[sizes[axis] for axis in shape.split()] for shape in shapes.split(", ")]
    return Case(
        f"{name} {', '.join(' x '.join(map(str, shape)) for shape in said)} {dtype}",
        lambda *tensors: function(moved, *tensors),
        lambda *tensors: formula(at, *tensors),
        tuple(map(tuple, said)),
        single if dtype == "fp32" else half,
        limit=_SUMS if dtype == "fp32" and name != "cross entropy" else None,
        dtype=dtype,
        spread=spread[0] if spread else (),
        params={"operation": name},
    )


def _ones(dtype: str) -> list[Case]:
    """Products and convolutions of ones count: every element must be exactly the number of terms."""
    rows: list[tuple[str, Any, Any, float]] = [
        ("matmul of ones", ((32, 1024), (1024, 32)), operator.matmul, 1024.0),
        ("2 x 2 convolution of ones", ((1, 1, 8, 8), (1, 1, 2, 2)), functional.conv2d, 4.0),
    ]
    return [
        Case(
            f"{label} {dtype}",
            lambda x, y, count=count, terms=terms: {f"{terms:g} expected": count(x, y)},
            lambda x, y, terms=terms: [torch.tensor(terms)],
            shapes,
            judge="exact",
            limit=0.0,
            dtype=dtype,
            spread={0: (0.0, 1.0), 1: (0.0, 1.0)},
            params={"operation": label},
            signature="wrong-sum",
        )
        for label, shapes, count, terms in rows
    ]


def _dropped(device: str) -> dict[str, Any]:
    """Dropout of ones: what is left must be 1 / (1 - p), as many as p says, and others the next time and further on."""
    ones = torch.ones(256, 256, dtype=torch.float32, device=device)
    first, second = (functional.dropout(ones, 0.25, training=True) for _ in range(2))
    out = first.double().cpu()
    left = out[out != 0]
    share = abs(left.numel() / out.numel() - 0.75)
    again = any(
        torch.equal(out.flatten()[:size], out.flatten()[size : 2 * size]) for size in (256, 1 << 10, 1 << 12, 1 << 14)
    )
    told = left.numel() and not again and not torch.equal(first, second)
    error = float((left * 0.75 - 1).abs().max()) if told else 1.0
    # 0.01 is six times what chance allows.
    return {"ratio": {"o": max(error / torch.finfo(torch.float32).eps, 800 * share)}}
