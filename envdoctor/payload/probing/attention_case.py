"""Attention cases: draw inputs, run a kernel forward and backward, measure both against the float64 truth; and which
backends torch has for it: how one is forced, which is chosen, why not another (torch 2.0 and newer)."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .inputs import UPSTREAMS, arrange, bias_of, draw, hand_over, keep, share
from .kit import DTYPES, Emit, Job, failure, in_parts, seed_of, wanted_dtypes
from .reference import TENSORS, Expected, expected, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: ((q, k, v), attn_mask, is_causal, case) -> output (B, H, L, D).
    Kernel = Callable[[tuple[Any, Any, Any], Any, bool, dict[str, Any]], Any]

#: Our names, and those of torch.nn.attention.SDPBackend.
BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}

#: What ``torch._fused_sdp_choice`` answers, the number of an SDPBackend.
CHOICES = {-1: "none", 0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "overrideable"}


#: After so many cases what they leave behind is handed back: a quarter of all that an experiment takes.
_SOME = 24
#: Errors, in units of rounding, that healthy kernels reach with one draw of a thousand.
_DOUBTFUL = (3.0, 8.0)


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

    ``only`` among the job's options is the number of one case.
    """
    options, backend = job["options"], job["backend"] or "default"
    if not is_known(backend, emit):
        return
    wanted = [case for case in cases if options.get("only") in (None, case["number"])]
    for name in wanted_dtypes(job, dtypes):
        in_parts(partial(_run_some, job, emit, name, kernel), wanted, _SOME)


def _run_some(job: Job, emit: Emit, name: str, kernel: Kernel, cases: Sequence[dict[str, Any]]) -> None:
    for case in cases:
        # An error that healthy kernels reach once in a thousand draws counts when it is there in two of them.
        with force(job["backend"] or "default"):
            draws = (
                observe(prepare(case, DTYPES[name], seed_of(job) + more), DTYPES[name], job["device"], kernel)
                for more in range(2)
            )
            found = next(draws)
            if _DOUBTFUL[0] < _worst(found) <= _DOUBTFUL[1]:
                found = min(found, next(draws), key=_worst)
        emit({"dtype": name, **found})


def _worst(found: dict[str, Any]) -> float:
    """The largest of the errors that an observation has; infinite for one that has none."""
    return max(found.get("ratio", {}).values(), default=float("inf"))


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
    return Prepared(
        case, (q, k, v), gradient, kept, expected((q, k, v, gradient), kept, bias_of(case["mask"], kept, dtype))
    )


def observe(prepared: Prepared, dtype: Any, device: str, kernel: Kernel) -> dict[str, Any]:
    """Run the kernel; the observation of it, for the judge ``attention``."""
    case = prepared.case
    found: dict[str, Any] = {"case": _title(case), "params": dict(case), "judge": "attention"}
    cuda = device == "cuda"
    try:
        q, k, v = (x.to(device) for x in prepared.inputs)
        inputs = arrange((q, k, v), case["layout"])
        mask, is_causal = hand_over(case["mask"], prepared.kept, dtype, device)
        gradient = UPSTREAMS[case["dout"]](prepared.gradient.to(device))
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
    words = [f"B{case['B']}"] if case["B"] != 2 else []
    words += [f"H{case['H']}/{case['Hk']} {case['gqa']}"] if case["H"] != case["Hk"] else []
    words += [f"L{case['L']}", f"S{case['S']}", f"D{case['D']}"]
    return " ".join([*words, case["mask"], case["layout"], case["dout"], case["stress"]])


def is_known(backend: str, emit: Emit) -> bool:
    """Whether this torch can force the backend; else that is said."""
    older = backend in ("default", "math", "flash", "efficient")
    if older or hasattr(_backends(), BACKENDS.get(backend, "")):
        return True
    emit({"case": "backend", "skip": f"this torch has no {backend} backend to ask for"})
    return False


def force(backend: str) -> Any:
    """A context in which scaled_dot_product_attention may use this backend alone; none for ``default``."""
    if backend == "default":
        return nullcontext()
    members = _backends()
    if members is not None:
        return torch.nn.attention.sdpa_kernel(getattr(members, BACKENDS[backend]))
    switches = {"enable_flash": "flash", "enable_math": "math", "enable_mem_efficient": "efficient"}
    return torch.backends.cuda.sdp_kernel(**{name: backend == one for name, one in switches.items()})


def chosen(given: tuple[Any, ...]) -> str:
    """The backend that torch would take for (q, k, v, attn_mask, is_causal, gqa), without running it."""
    q, k, v, mask, is_causal, gqa = given
    extra: dict[str, Any] = {"enable_gqa": True} if gqa else {}
    try:
        number = int(torch._fused_sdp_choice(q, k, v, attn_mask=mask, is_causal=is_causal, **extra))
        return CHOICES.get(number, "unknown")
    except (AttributeError, TypeError, RuntimeError, NotImplementedError):
        return "unknown"


def declined(given: tuple[Any, ...]) -> dict[str, str]:
    """CUDA only: what torch says against each fused backend for (q, k, v, attn_mask, is_causal, gqa)."""
    cuda: Any = torch.backends.cuda
    (q, k, v, mask, *more), reasons = given, {}
    for arguments in (more, more[:1]):  # before enable_gqa there was one less
        try:
            parameters = cuda.SDPAParams(q, k, v, mask, 0.0, *arguments)
            break
        except (AttributeError, TypeError, RuntimeError):
            continue
    else:
        return {}
    for backend in ("flash", "efficient", "cudnn"):
        ask = getattr(cuda, f"can_use_{backend}_attention", None)
        if ask is None:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                usable = bool(ask(parameters, True))
            except (TypeError, RuntimeError):
                continue
        if not usable:
            texts = [str(warning.message).split("(Triggered")[0].strip() for warning in caught]
            reasons[backend] = " ".join(text for text in texts if text)[:300] or "declined without a reason"
    return reasons


def _backends() -> Any:
    """torch.nn.attention.SDPBackend, from torch 2.3 on; None before."""
    try:
        from torch.nn.attention import SDPBackend
    except ImportError:
        return None
    return SDPBackend
