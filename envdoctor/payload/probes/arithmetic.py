"""Are the operations of a training step right: each number of a copy, each sum, each product, forward and backward?

All operations of :mod:`..probing.operations` in every dtype, each against a formula of its own in float64: a function
that is wrong in every dtype is not compared with itself. Sizes, layouts in memory and kinds of numbers are drawn anew
for each seed, so that each meets each operation: no rows and one, numbers that no tile divides, widths as models have
them, more than 65,536 rows or columns, a million numbers; transposed, strided, expanded, an odd element into its
storage; far from zero, tiny, all alike, infinite. Copies are exact; whole numbers have exact sums, in which one lost
number shows; the rest is measured in units of rounding the exact result once: healthy ones have 1.0 to 3 in half
precision, on the CPU in torch 2.4.1 to 2.13.0. Gradients that healthy CPUs sum less exactly gate in float32 only,
where a mistake is worth a million such units. On CUDA sums of parts in half precision are switched off for the gate; a
product of many tiles is then judged with the settings as they are, which training runs with, by a wider limit.

Bugs that it exists for: saturating sums of bf16 (https://github.com/pytorch/pytorch/issues/83863,
https://github.com/pytorch/pytorch/issues/95125), a convolution of ones
(https://github.com/pytorch/pytorch/issues/163347), gradients of norms that drop features
(https://github.com/pytorch/pytorch/issues/190828), split-K products with NaN
(https://github.com/ROCm/rocm-libraries/issues/9055).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch.nn import functional

from ..probing.kit import DTYPES, Case, Emit, Job, compare, full_precision, run_rows, seed_of
from ..probing.operations import LAYOUTS, OPERATIONS, VALUES
from ..probing.shapes import HIDDEN, SIZES, WORDS, drawn, each

PROBES = {
    "arithmetic": {
        "title": "operations of a training step against float64",
        "settles": ["arithmetic", "linear", "losses", "norms"],
    }
}

_HALVES = ("bf16", "fp16")
#: (pass, warn, why) in float32: sums over thousands of rows cost hundreds of roundings, a lost or doubled value 1e6.
_SUMS = [2000.0, 20000.0, "sums over many rows"]
#: The same where torch may add parts of a sum in half precision, each of which may cost a rounding.
_AS_SET = [16.0, 64.0, "parts of sums in half precision"]
#: By how an operation is judged, of float32 and of half precision (None: the dtype's).
_LIMITS: dict[str, tuple[Any, Any]] = {
    "exact": ([0.0, 0.0, "copies are exact"],) * 2,
    "whole": (
        [0.0, 0.0, "sums of whole numbers are exact"],
        [2.0, 8.0, "sums of whole numbers are rounded once or twice"],
    ),
    "element": ([32.0, 256.0, "one number at a time"], [8.0, 32.0, "one number at a time"]),
    "rms": (_SUMS, None),
}
#: Kinds of rows and width.
_TWO: dict[str, tuple[Any, Any]] = {
    "empty": ((0,), range(1, 9)),
    "one": ((1, 2, 3), range(1, 9)),
    "tails": (range(9, 64), range(9, 64)),
    "tiles": ((16, 32, 64), (64, 128, 256)),
    "hidden": (range(5, 40), [width for some in HIDDEN for width in some]),
    "tall": (range(65537, 70000), (1, 2, 3)),
    "wide": ((1, 2, 3), range(65537, 90000)),
    "middle": (range(257, 530), range(257, 530)),
    "large": (range(1025, 1050), range(1025, 1050)),
}
#: Shares of the operations that are tried with so many numbers in one run, each in one dtype.
_SHARES = {"tall": 0.7, "wide": 0.7, "middle": 0.7, "large": 0.25}
#: What other axes are, and a second input of two that are taken together.
_BESIDE_THEM: dict[str, Any] = {
    "outer": SIZES,
    "words": WORDS,
    "few": ((2, 3, 4),),
    "some": ((3, 4, 5, 6, 7),),
    "many": (range(90, 110),),
    "narrow": (range(33, 64),),
    "thin": (range(9, 16),),
    "tokens": (range(4099, 9000),),
    "long": ((1027, 2048, 4099),),
    "flat": (range(65537, 300000),),
}
_BESIDE = {"same": "rows width", "row": "width", "column": "rows 1", "number": "1"}
_USUAL = {
    "dtypes": DTYPES,
    "layouts": LAYOUTS,
    "values": [name for name in VALUES if name not in ("angles", "counts", "inf")],
    "sizes": (),
}
_USUAL["beside"] = _BESIDE
#: The share of rows in which not all inputs have gradients.
_FROZEN = 0.4
#: What dropout is tried with; the ratio of one that chance does not explain.
_DROPOUT: dict[str, Any] = {
    "rows": (range(33, 64), range(257, 530), range(2049, 4600)),
    "width": (range(33, 64), (64,)),
    "share": each(0.05, 0.1, 0.5, 0.9),
    "dtype": each(*DTYPES),
    "layout": each("plain", "transposed", "strided"),
    "in_place": each(False, True),
}
_UNLIKELY = 1e6
#: The work of a product is kept below this by fewer columns: it takes milliseconds.
_WORK = 1 << 22


def arithmetic(job: Job, emit: Emit) -> None:
    """Emit one observation for each operation, dtype and sizes, for the judge ``rounding``."""
    device = job["device"]
    switches = _without_reduced_reductions() if device == "cuda" else {}
    with full_precision():  # TF32, which NVIDIA's containers switch on, is the business of another experiment
        run_rows(job, emit, _rows(device, seed_of(job)))
        run_rows(job, emit, (_dropout(device, row) for row in drawn(seed_of(job), **_DROPOUT)))
    for name, value in switches.items():
        setattr(torch.backends.cuda.matmul, name, value)
    # 128 tiles of 128 x 128, for which libraries take the kernels of training.
    kinds = {"size": "tiles", "layouts": "plain", "values": "unit", "beside": "same"}
    tiled, choose = {"rows": 1024, "width": 1024, "outer": 2048}, random.Random(0)  # noqa: S311
    halves = [{**kinds, "dtype": dtype} for dtype in _HALVES if switches]
    rows = [_operation(device, "linear", half, choose, **tiled) for half in halves]
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


def _rows(device: str, seed: int) -> Iterator[Case]:
    """Yield every operation in each dtype and kind of size that is for it; layouts and kinds of numbers take turns."""
    choose = random.Random(seed)  # noqa: S311 (sizes are no secret)
    for name, (shapes, unit, _, _, only) in OPERATIONS.items():
        choices = {axis: only[axis].split() if axis in only else [*usual] for axis, usual in _USUAL.items()}
        for kinds in choices.values():
            choose.shuffle(kinds)
        turns = {axis: cycle(choices[axis]) for axis in ("layouts", "values", "beside")}
        sized = {"rows", "width"} & set(shapes.replace(",", "").split())
        for size in choices["sizes"] if sized else ["tails"]:
            # Where there are many numbers, dtypes take turns, and so do operations.
            share = _SHARES.get(size)
            if share is not None and choose.random() > share:
                continue
            # Where threads share a sum, half precision rounds the sum of each.
            shared = unit == "whole" and size not in ("empty", "one", "tails", "tiles")
            dtypes = ["fp32"] if shared and "fp32" in choices["dtypes"] else choices["dtypes"]
            for dtype in dtypes if share is None else [choose.choice(dtypes)]:
                kinds = {axis: next(turn) for axis, turn in turns.items()}
                yield _operation(device, name, {"size": size, "dtype": dtype, **kinds}, choose)


def _operation(device: str, name: str, kinds: dict[str, str], choose: random.Random, **fixed: int) -> Case:
    """Return the row of an operation with numbers of these kinds."""
    shapes, unit, function, formula, only = OPERATIONS[name]
    size, dtype = kinds["size"], kinds["dtype"]
    sizes = {axis: choose.choice(choose.choice(ranges)) for axis, ranges in _BESIDE_THEM.items()}
    sizes.update(zip(("rows", "width"), map(choose.choice, _TWO[size])))
    if size in _SHARES and "few rows" in shapes:  # as many numbers as without samples
        sizes["few"], longest = 2, "width" if size == "wide" else "rows"
        sizes[longest] = sizes[longest] // 2 + 1
    work = sizes["rows"] * sizes["width"] * (sizes["few"] if "few" in shapes else 1)
    most = _WORK // max(1, work, 8 * max(sizes["rows"], sizes["width"]))
    sizes["outer"] = min(sizes["outer"], max(1, most))
    sizes.update(fixed)
    dims = []
    for shape in shapes.split(", "):
        axes = _BESIDE[kinds["beside"]] if shape == "beside" else shape
        dims.append(tuple(sizes[axis] if axis in sizes else int(axis) for axis in axes.split()))
    places = [*LAYOUTS]
    at = places.index(kinds["layouts"])
    # Each input lies otherwise; what has one axis only, or one layout only, cannot.
    ways = [places[(at + place) % len(places)] if "layouts" not in only else places[at] for place in range(len(dims))]
    ways = [way if len(shape) > 1 else "plain" for way, shape in zip(ways, dims)]
    value = VALUES[kinds["values"]]
    others = VALUES["whole" if unit == "whole" or kinds["values"] == "whole" else "unit"]
    gate = (only.get("half", "") if dtype != "fp32" else "") or only.get("gate", "")
    # Where some inputs are frozen, or are no parameters, other kernels run.
    asks, frozen = None, []
    if len(dims) > 1 and choose.random() < _FROZEN:
        asks = sorted(choose.sample(range(len(dims)), choose.randint(0, len(dims) - 1)))
        frozen = ["with a gradient of " + (" and ".join("xyz"[at] for at in asks) or "none")]
        gate = " ".join(part for part in gate.split() if part == "o" or int(part[1:]) in asks) or "o" * bool(gate)
    return Case(
        " ".join(
            [name, *frozen, ", ".join(" x ".join(map(str, shape)) for shape in dims), kinds["values"], *ways, dtype]
        ),
        function,
        formula,
        tuple(dims),
        gate,
        limit=_LIMITS["element" if only.get("limit") == "element" else unit]["fp32" not in (dtype, only.get("limit"))],
        dtype=dtype,
        spread={place: others if place else value for place in range(len(dims))},
        params={"operation": name},
        unit=unit,
        layouts=[LAYOUTS[way] for way in ways],
        asks=asks,
    )


def _dropout(device: str, row: dict[str, Any]) -> Case:
    name = "dropout of " + ", ".join(f"{name} {value}" for name, value in row.items())
    limits, params = _LIMITS["element"][row["dtype"] != "fp32"], {"operation": "dropout"}
    return Case(name, partial(_dropped, device, row), gate="o d0", limit=limits, dtype=row["dtype"], params=params)


def _dropped(device: str, row: dict[str, Any]) -> dict[str, Any]:
    """Measure dropout of ones, and its gradient: what is left must be 1 / (1 - p), as many as p says in each part, and
    others the next time and further on."""
    ones = torch.ones(row["rows"], row["width"], dtype=DTYPES[row["dtype"]], device=device)
    tensor = LAYOUTS[row["layout"]](ones).requires_grad_()
    first, second = (functional.dropout(tensor * 1, row["share"], True, row["in_place"]) for _ in range(2))
    first.backward(ones)
    left = (first.detach() != 0).double().cpu()
    truth = left / (1 - row["share"])
    measures = compare({"o": first.detach(), "d0": tensor.grad}, {"o": truth, "d0": truth}, "exact")
    flat = left.flatten()
    deviation = (row["share"] * (1 - row["share"])) ** 0.5
    off = max(
        abs(float(part.mean()) - 1 + row["share"]) * len(part) ** 0.5 for part in (*flat.tensor_split(8), flat[-256:])
    )
    again = any(torch.equal(flat[:size], flat[size : 2 * size]) for size in (1 << power for power in range(8, 17, 2)))
    # Chance alone does not get to eight deviations.
    if off > 8 * deviation or again or torch.equal(first, second):
        measures["ratio"]["o"] = max(measures["ratio"].get("o", 0.0), _UNLIKELY)
    return measures
