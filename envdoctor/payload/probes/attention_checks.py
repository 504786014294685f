"""Short checks of attention, cheap enough to run before every training: accuracy in half precision, rows that see no
key, and NaN that must stay visible. The functions cite the bugs that they exist for, such as
https://github.com/pytorch/pytorch/pull/128922."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..probing.attention_case import Prepared, prepare, run_cases
from ..probing.backends import force, is_known
from ..probing.kit import DTYPES, Emit, Job, found_by, lost, wanted_dtypes
from ..probing.reference import measure

PROBES = {
    "dead-rows": {
        "title": "rows that see no key",
        "attention": "sdpa",
        "suites": {
            "quick": [{"backend": "default"}],
            "full": [
                {"backend": "default"},
                {"backend": "math"},
                {"backend": "flash"},
                {"backend": "efficient", "devices": ["cuda"]},
                {"backend": "cudnn", "devices": ["cuda"]},
            ],
        },
    },
    "half-accuracy": {"title": "accuracy of half-precision attention", "attention": "sdpa"},
    "nan-honesty": {
        "title": "NaN stays visible in attention",
        "attention": "sdpa",
        "suites": {
            "quick": [{"backend": "default"}],
            "full": [
                {"backend": "default", "short": True},
                {"backend": "math"},
                {"backend": "flash"},
                {"backend": "efficient", "devices": ["cuda"]},
                {"backend": "cudnn", "devices": ["cuda"]},
            ],
        },
    },
}

_SIZE = {"B": 2, "H": 2, "Hk": 2, "layout": "bhsd", "dout": "plain"}
_HALF = {**_SIZE, "L": 96, "S": 96, "D": 64, "mask": "none", "stress": "shift-", "gqa": "", "number": 0}
#: The last sample of left_dead is padding alone: a batch filled up with empty samples.
_DEAD = [
    {**_SIZE, "L": 24, "S": 24, "D": 16, "stress": "unit", "mask": mask, "gqa": "", "number": number}
    for number, mask in enumerate(("bool_left", "inf_left", "min_left", "bool_left_dead"))
]
#: case -> (shape of the queries, number of keys, row of the first head that is poisoned, what of it is NaN). A whole
#: row in a sequence as small as it gets with 16 keys; one element in a row of a head among others; rows with few keys.
_POISONED = {
    "row": ((1, 1, 16, 8), 16, 3, slice(None)),
    "element": ((1, 2, 40, 64), 40, 7, 3),
    "row, 8 keys": ((1, 2, 8, 64), 8, 7, slice(None)),
    "row, 15 keys": ((1, 2, 40, 64), 15, 7, slice(None)),
}
_SHORT = 16


def dead_rows(job: Job, emit: Emit) -> None:
    """Do rows that may see no key at all stay harmless: the padding of a sample that is padded on the left?

    Before torch 2.5 such rows come out as NaN, and 0 · NaN then enters dk and dv of the whole sample: finite outputs,
    finite loss, NaN in the weights after one step. https://github.com/pytorch/pytorch/issues/103749,
    https://github.com/pytorch/pytorch/issues/110213; zeros by definition since
    https://github.com/pytorch/pytorch/pull/131060. On a B200 NaN in the outputs of exactly these rows was seen with
    2.13: https://github.com/unslothai/unsloth/pull/9848.

    The upstream gradient of dead rows is 0, as a loss over the other tokens sends it. NaN in the output of dead rows
    alone is a warning; NaN in a live row, dk or dv is a failure.
    """
    run_cases(job, emit, _DEAD, ("bf16", "fp16"))


def half_accuracy(job: Job, emit: Emit) -> None:
    """Is half-precision attention as accurate as half precision allows when all logits share a large offset?

    The math backend of torch before 2.5 rounds the logits to the half dtype: invisible with normal inputs (2 times the
    unavoidable error), 95 times with the offset that trained q and k biases bring. On the CPU the default of 2.4.1 does
    it in fp16. https://github.com/pytorch/pytorch/pull/128922 (float32 intermediates since 2.5; a switch takes them
    back: ``allow_fp16_bf16_reduction_math_sdp``). Under fp16 autocast the same gave NaN:
    https://github.com/pytorch/pytorch/issues/119131. Default and math × bf16 and fp16, the output only.
    """
    for name in wanted_dtypes(job, ("bf16", "fp16")):
        prepared = prepare(_HALF, DTYPES[name])
        for backend in [job["backend"]] if job["backend"] else ["default", "math"]:
            case = {"case": f"{backend} {name}", "params": _HALF, "dtype": name, "backend": backend}
            case.update(judge="attention", gate=["o"], lse=prepared.expected.lse)
            emit(
                {**case, **found_by(partial(_accuracy, prepared, DTYPES[name], backend, job["device"]), job["device"])}
            )


def nan_honesty(job: Job, emit: Emit) -> None:
    """Does a NaN that enters attention come out again, in its own row and nowhere else?

    torch 2.5.0 and 2.5.1 turn a NaN query into zeros on the CPU (default and flash, every dtype):
    https://github.com/pytorch/pytorch/issues/141128. A watch on the loss is blind behind such a layer: training goes on
    with numbers that look right. 2.4.1 and 2.13.0 hand the NaN on.

    Two inputs for each dtype: a whole query row of NaN in a tiny sequence, and one NaN element in a longer one. The
    full suite adds two with fewer than 16 keys: there the default and the flash kernel of 2.13.0 give zeros on some
    CPUs (not on one that has AVX2 alone), in every dtype, however many queries there are (2.4.1 and the math kernel do
    not). Harmless in training, but a test of a watch on a tiny model sees nothing: a warning, not a failure.
    """
    backend = job["backend"] or "default"
    if not is_known(backend, emit):
        return
    wanted = wanted_dtypes(job, tuple(DTYPES))
    for name in wanted:
        for case, (shape, keys, _, _) in _POISONED.items():
            # One dtype is enough for short ones: they come out alike in all.
            if keys < _SHORT and not (job["options"].get("short") and name == wanted[0]):
                continue
            found = {"dtype": name, "case": case, "judge": "honesty", "soft": keys < _SHORT, "expected": shape[3]}
            found["params"] = {"poisoned": case, "D": shape[3], "L": shape[2], "S": keys}
            emit({**found, **found_by(partial(_honesty, case, DTYPES[name], backend, job["device"]), job["device"])})


def _accuracy(prepared: Prepared, dtype: Any, backend: str, device: str) -> dict[str, Any]:
    return measure({"o": _forward(prepared.inputs, backend, device)}, prepared.expected, dtype)


def _honesty(case: str, dtype: Any, backend: str, device: str) -> dict[str, Any]:
    """How many values of the poisoned row came out as NaN, and of others as anything that is not finite."""
    shape, keys, row, poisoned = _POISONED[case]
    shapes = (shape, (*shape[:2], keys, shape[3]), (*shape[:2], keys, shape[3]))
    seeds = (0, 1, 1 if case == "row" else 2)
    given = [
        torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype) for size, seed in zip(shapes, seeds)
    ]
    given[0][0, 0, row, poisoned] = float("nan")
    out = _forward(given, backend, device).float().cpu()
    inside = out[0, 0, row]
    return {"row_nan": int(torch.isnan(inside).sum()), "elsewhere": lost(out) - lost(inside)}


def _forward(inputs: Any, backend: str, device: str) -> Any:
    with torch.no_grad(), force(backend):
        return torch.nn.functional.scaled_dot_product_attention(*[x.to(device) for x in inputs])
