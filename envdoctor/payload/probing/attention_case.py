"""Attention cases: draw inputs, run a kernel forward and backward, measure both against the float64 truth."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .backends import force, is_known
from .inputs import arrange, draw, hand_over, keep, share, upstream
from .kit import DTYPES, Emit, Job, failure, wanted_dtypes
from .reference import TENSORS, Expected, expected, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: ((q, k, v), attn_mask, is_causal, case) -> output (B, H, L, D).
    Kernel = Callable[[tuple[Any, Any, Any], Any, bool, dict[str, Any]], Any]


class Prepared(NamedTuple):
    """A case with its numbers on the CPU and what must come out."""

    case: dict[str, Any]
    inputs: tuple[Any, Any, Any]
    gradient: Any
    kept: Any
    expected: Expected


def sdpa(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """torch's scaled_dot_product_attention as a kernel: the output (B, H, L, D).

    It is looked up at each call: who wraps torch's function is tested as well.
    """
    q, k, v = inputs
    extra: dict[str, Any] = {}
    group = q.shape[1] // k.shape[1]
    if group > 1 and case["gqa"] == "flag":
        extra["enable_gqa"] = True  # unknown before torch 2.5: a TypeError, and so a skip
    elif group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, **extra)


def run_cases(
    job: Job, emit: Emit, cases: Sequence[dict[str, Any]], dtypes: tuple[str, ...] = ("bf16",), kernel: Kernel = sdpa
) -> None:
    """One observation a case in the job's dtype (or these) and with its backend, for the judge ``attention``.

    ``seed`` among the job's options gives other inputs of the same kind, ``only`` is the number of one case.
    """
    options, backend = job["options"], job["backend"] or "default"
    if not is_known(backend, emit):
        return
    for name in wanted_dtypes(job, dtypes):
        for case in cases:
            if options.get("only") in (None, case["number"]):
                prepared = prepare(case, DTYPES[name], int(options.get("seed") or 0))
                with force(backend):
                    emit({"dtype": name, **observe(prepared, DTYPES[name], job["device"], kernel)})


def prepare(case: dict[str, Any], dtype: Any, seed: int = 0) -> Prepared:
    """Numbers and truth of a case. ``seed`` 0 are the published inputs, any other number gives new ones."""
    case = {**case, "seed": 1000 + case["number"] + 100_003 * seed}
    q, k, v, gradient = draw(case, case["stress"], case["seed"], dtype)
    k, v = share(k, v, case["layout"])
    kept = keep(case["mask"], case["B"], case["L"], case["S"])
    if case["dout"] == "expand":
        gradient = torch.ones_like(gradient)  # a stride of 0 leaves no way to send nothing into dead rows
    else:
        # A padded loss sends nothing into dead rows.
        gradient = gradient.masked_fill(~kept.any(-1, keepdim=True), 0.0)
    return Prepared(case, (q, k, v), gradient, kept, expected((q, k, v, gradient), kept))


def observe(prepared: Prepared, dtype: Any, device: str, kernel: Kernel) -> dict[str, Any]:
    """Run the kernel; the observation of it, for the judge ``attention``."""
    case = prepared.case
    found: dict[str, Any] = {"case": _title(case), "params": dict(case), "judge": "attention"}
    cuda = device == "cuda"
    try:
        q, k, v = (x.to(device) for x in prepared.inputs)
        inputs = arrange((q, k, v), case["layout"])
        mask, is_causal = hand_over(case["mask"], prepared.kept, dtype, device)
        gradient = upstream(prepared.gradient.to(device), case["dout"])
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        out = kernel(inputs, mask, is_causal, case)
        node = type(out.grad_fn).__name__
        gradients = torch.autograd.grad(out, inputs, gradient)
        if cuda:
            torch.cuda.synchronize()
    except Exception as error:
        return {**found, **failure(error, device)}
    found.update(node=node, ms=round(1000 * (time.perf_counter() - started), 2))
    if cuda:
        found["peak_mib"] = round(torch.cuda.max_memory_allocated() / 1048576.0, 1)
    found.update(measure(dict(zip(TENSORS, (out, *gradients))), prepared.expected, dtype))
    found["lse"] = prepared.expected.lse
    if case["S"] == 1:
        # Softmax over one key is constant: exact dq and dk are 0, and a ratio would divide one noise by another.
        found["gate"] = ["o", "dv"]
    return found


def _title(case: dict[str, Any]) -> str:
    """The short name of a case: ``L64 S64 D64 bool_left bhsd hf shift-``."""
    words = [f"L{case['L']}", f"S{case['S']}", f"D{case['D']}", case["mask"], case["layout"], case["dout"]]
    if case["H"] != case["Hk"]:
        words.insert(0, f"H{case['H']}/{case['Hk']} {case['gqa']}")
    return " ".join([*words, case["stress"]])
