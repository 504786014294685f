"""Attention cases: draw inputs, run a kernel forward and backward, measure both against the float64 truth; and how
a backend is forced (torch 2.0 and newer).

What must come out is evaluated twice. In float64 without rounding it is the truth. In float32, rounding to the tested
dtype exactly where every fused half-precision kernel must (P, O, dS, the results, and P rebuilt from a float32
logsumexp), it is the *model*: what a kernel's result is divided by. A kernel whose error is many times the model's lost
accuracy that it did not have to lose. Comparing with an unfused implementation in the same dtype instead would pass
kernels that are 95 times worse than they had to be.

Shapes: q and dO (B, H, L, D); k and v (B, Hk, S, D); keep (B, 1, L, S) says which keys a row may see. A row that may
see none is *dead*. All of that is computed on the CPU, whatever device is tested: the truth must not depend on it.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .kit import DTYPES, ENOUGH, Emit, Job, failure, in_parts, lost, note_error, seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: ((q, k, v), attn_mask, is_causal, case) -> output (B, H, L, D).
    Kernel = Callable[[tuple[Any, Any, Any], Any, bool, dict[str, Any]], Any]

#: Our names, and those of torch.nn.attention.SDPBackend.
BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}

#: The results, as they are called.
TENSORS = ("o", "dq", "dk", "dv")
_NO_BIAS = torch.zeros(())
#: After so many cases what they leave behind is handed back: a quarter of all that an experiment takes.
_SOME = 24
#: Errors, in units of rounding, that healthy kernels reach with one draw of a thousand.
_DOUBTFUL = (3.0, 8.0)


# A mask is called ``form_pattern``. Forms: ``bool`` (True = keep), ``inf`` and ``min`` (added: -inf, or the least of
# the dtype, as by transformers), ``f32`` (added in float32 to half inputs), ``bias`` (a number for each row and key,
# as of T5), ``pack`` (no padding is handed over: those rows count as dead). Patterns, on a lower triangle: a third of
# the keys is padding, ``left`` or ``right``, in all samples but the first; ``left_dead`` (the last sample is padding
# alone); ``band``; ``key`` (padding on the right without the triangle, expanded over the rows).
#: Keys of the sliding window of ``band``.
_WINDOW = 32
#: By how much a shift moves every logit.
_SHIFT = 200.0
#: x3: q, k and v times three, as in flash-attn's own tests. shift: a constant part of every head, as trained biases add
#: it: pytorch#196678 needs a logsumexp below -88.7. outlier: one channel is large, as in trained residual streams.
STRESSES = ("unit", "x3", "shift-", "shift+", "outlier")
#: hf: contiguous (B, L, H, D) seen transposed, as a model sends it. strided: every second row of a buffer. expand: the
#: scalar 1 seen as the whole shape, whatever the numbers, what ``.sum().backward()`` sends. plain: contiguous.
UPSTREAMS: dict[str, Any] = {
    "hf": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "strided": lambda x: torch.stack([x, torch.zeros_like(x)], 3).flatten(2, 3)[:, :, ::2],
    "expand": lambda x: torch.ones((), dtype=x.dtype, device=x.device).expand(x.shape),
    "plain": lambda x: x.contiguous(),
}


def _fresh(x: Any) -> Any:
    return x.contiguous().clone()


#: Kernels have read memory as if it were laid out otherwise (pytorch#138354, pytorch#139298, pytorch#191937).
#: bhsd: contiguous (B, H, L, D). bshd: contiguous (B, L, H, D) seen as (B, H, L, D), what a projection yields. packed:
#: views into one (B, L, 3, H, D) buffer. offset: one element into its storage, so 16-byte alignment is lost. expanded
#: and expanded_batch: k and v, not q, are one head (one sample) seen as all of them, with stride 0.
LAYOUTS: dict[str, Any] = {
    "bhsd": _fresh,
    "bshd": lambda x: _fresh(x.transpose(1, 2)).transpose(1, 2),
    "packed": None,
    "offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "expanded": lambda x: _fresh(x[:, :1]).expand(x.shape),
    "expanded_batch": lambda x: _fresh(x[:1]).expand(x.shape),
}


def keep(mask: str, batch: int, rows: int, keys: int) -> Any:
    """Return (B, 1, L, S) on the CPU: True where a row may see a key."""
    everything = torch.ones(batch, 1, rows, keys, dtype=torch.bool)
    if mask in ("none", "alltrue"):
        return everything
    if mask == "causal":
        return everything.tril()
    form, _, pattern = mask.partition("_")
    padded = max(1, keys // 3)
    view = everything if pattern == "key" else everything.tril(keys - rows)
    if pattern in ("left", "left_dead"):
        view[1:, :, :, :padded] = False
    elif pattern in ("right", "key"):
        view[1:, :, :, keys - padded :] = False
    elif pattern == "band":
        view = view.triu(keys - rows - _WINDOW + 1)
    elif pattern != "none":
        raise ValueError(f"no mask is called {mask!r}")
    if pattern == "left_dead":
        view[-1] = False
    if form == "pack" and pattern != "none":
        view[1:, :, slice(0, padded) if pattern == "left" else slice(rows - padded, rows), :] = False
    return view


def bias_of(mask: str, view: Any, dtype: Any) -> Any:
    """Return what a mask adds to the logits beside hiding some, rounded to the dtype; a zero for all but ``bias``."""
    if not mask.startswith("bias_"):
        return torch.zeros((), dtype=dtype)
    return torch.randn(view.shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def hand_over(mask: str, view: Any, dtype: Any, device: str) -> tuple[Any, bool]:
    """Return (attn_mask or None, is_causal) as scaled_dot_product_attention takes them."""
    if mask in ("none", "causal"):
        return None, mask == "causal"
    form, _, pattern = mask.partition("_")
    if form == "pack":
        return None, False
    if form in ("bool", "alltrue"):
        if pattern == "key":
            return view[:, :, :1, :].contiguous().to(device).expand(view.shape), False
        return view.to(device), False
    if form == "bias":
        return bias_of(mask, view, dtype).masked_fill(~view, float("-inf")).to(device), False
    kind = torch.float32 if form == "f32" else dtype
    least = torch.finfo(dtype).min if form == "min" else float("-inf")
    return torch.zeros(view.shape, dtype=kind).masked_fill(~view, least).to(device), False


def share(k: Any, v: Any, layout: str) -> tuple[Any, Any]:
    """Return k and v whose numbers suit the layout: all heads, or samples, alike where one stands for all."""
    return (LAYOUTS[layout](k), LAYOUTS[layout](v)) if layout.startswith("expanded") else (k, v)


def arrange(inputs: tuple[Any, Any, Any], layout: str) -> tuple[Any, Any, Any]:
    """Return the numbers of q, k and v in new memory, laid out as named; leaves that require gradients."""
    if layout == "packed":
        both = torch.stack([x.transpose(1, 2) for x in inputs], dim=2)  # (B, L, 3, H, D)
        views = [both[:, :, place].transpose(1, 2) for place in range(3)]
    else:
        of_q = _fresh if layout.startswith("expanded") else LAYOUTS[layout]
        views = [of_q(inputs[0]), *map(LAYOUTS[layout], inputs[1:])]
    a, b, c = (view.detach().requires_grad_() for view in views)
    return a, b, c


def draw(shape: dict[str, int], stress: str, seed: int, dtype: Any) -> tuple[Any, Any, Any, Any]:
    """Return q, k, v and the upstream gradient for ``shape`` (B, H, Hk, L, S, D), rounded to ``dtype``, on the CPU.

    All draws are normal numbers in float32 from a generator of our own, in the order q, k, v, direction or channel,
    upstream gradient; the global generator of torch is not touched.
    """
    generator = torch.Generator().manual_seed(seed)
    batch, heads, groups, depth = shape["B"], shape["H"], shape["Hk"], shape["D"]
    q = torch.randn(batch, heads, shape["L"], depth, generator=generator)
    k = torch.randn(batch, groups, shape["S"], depth, generator=generator)
    v = torch.randn(batch, groups, shape["S"], depth, generator=generator)
    if stress == "x3":
        q, k, v = q * 3, k * 3, v * 3
    elif stress in ("shift-", "shift+"):
        direction = torch.randn(1, heads, 1, depth, generator=generator)
        # All heads of a group share one direction, that of its first head.
        direction = direction[:, :: heads // groups]
        direction = direction / direction.norm(dim=-1, keepdim=True)
        offset = (_SHIFT * depth**0.5) ** 0.5 * direction
        q = 0.5 * q + offset.repeat_interleave(heads // groups, 1)
        k = 0.5 * k + (offset if stress == "shift+" else -offset)
    elif stress == "outlier":
        channel = int(torch.randint(depth, (1,), generator=generator))
        k[:, :, :: max(1, shape["S"] // 5), channel] += 40
        q[..., channel] *= 4
    elif stress != "unit":
        raise ValueError(f"no stress is called {stress!r}")
    upstream = torch.randn(batch, heads, shape["L"], depth, generator=generator)
    return q.to(dtype), k.to(dtype), v.to(dtype), upstream.to(dtype)


class Expected(NamedTuple):
    """Truth and model of one case, by tensor, with the ``dead`` rows (B, 1, L) and the range of the logsumexp."""

    truth: dict[str, Any]
    model: dict[str, Any]
    dead: Any
    lse: list[float]


class _Prepared(NamedTuple):
    """A case with its numbers on the CPU and what must come out."""

    case: dict[str, Any]
    inputs: tuple[Any, Any, Any]
    gradient: Any
    kept: Any
    expected: Expected


def sdpa(inputs: tuple[Any, Any, Any], mask: Any, is_causal: bool, case: dict[str, Any]) -> Any:
    """Call torch's scaled_dot_product_attention as a kernel; return the output (B, H, L, D).

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
    """Emit one observation a case in the job's dtype (or these) and with its backend, for the judge ``attention``."""
    if not is_known(job["backend"] or "default", emit):
        return
    for name in [job["dtype"]] if job["dtype"] else dtypes:
        in_parts(partial(_run_some, job, emit, name, kernel), cases, _SOME)


def _run_some(job: Job, emit: Emit, name: str, kernel: Kernel, cases: Sequence[dict[str, Any]]) -> None:
    for case in cases:
        # An error that healthy kernels reach once in a thousand draws counts when it is there in two of them.
        with force(job["backend"] or "default"):
            draws = (
                observe(prepare(case, DTYPES[name], seed_of(job) + more), DTYPES[name], job["device"], kernel)
                for more in range(2)
            )
            observation = next(draws)
            if _DOUBTFUL[0] < _worst(observation) <= _DOUBTFUL[1]:
                observation = min(observation, next(draws), key=_worst)
        emit({"dtype": name, **observation})


def _worst(observation: dict[str, Any]) -> float:
    """Return the largest of the errors that an observation has; infinite for one that has none."""
    return max(observation.get("ratio", {}).values(), default=float("inf"))


def prepare(case: dict[str, Any], dtype: Any, seed: int = 0) -> _Prepared:
    """Return numbers and truth of a case. ``seed`` 0 are the published inputs, any other number gives new ones."""
    case = {**case, "seed": 1000 + case["number"] + 100_003 * seed}
    q, k, v, gradient = draw(case, case["stress"], case["seed"], dtype)
    k, v = share(k, v, case["layout"])
    view = keep(case["mask"], case["B"], case["L"], case["S"])
    if case["dout"] == "expand":
        gradient = torch.ones_like(gradient)  # a stride of 0 leaves no way to send nothing into dead rows
    else:
        # A padded loss sends nothing into dead rows.
        gradient = gradient.masked_fill(~view.any(-1, keepdim=True), 0.0)
    return _Prepared(
        case, (q, k, v), gradient, view, expected((q, k, v, gradient), view, bias_of(case["mask"], view, dtype))
    )


def evaluate(
    inputs: tuple[Any, Any, Any, Any], view: Any, precision: Any, rounded: Any = None, bias: Any = 0.0
) -> dict[str, Any]:
    """Return o, dq, dk, dv and lse of (q, k, v, dO) in ``precision``, with a ``bias`` added to the logits.

    With a dtype ``rounded``, what a kernel of that dtype must round is rounded to it and taken back.
    """

    def r(x: Any) -> Any:
        return x if rounded is None else x.to(rounded).to(precision)

    q, k, v, upstream = (tensor.to(precision) for tensor in inputs)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = q.shape[-1] ** -0.5
    dead = ~view.any(-1, keepdim=True)
    # Dead rows get zeros for logits and then for probabilities, so that nothing is NaN by construction.
    scores = (scale * (q @ k.transpose(-1, -2)) + bias).masked_fill(~view, float("-inf")).masked_fill(dead, 0.0)
    p = torch.softmax(scores, -1).masked_fill(dead, 0.0)
    o = r(r(p) @ v)
    lse = torch.logsumexp(scores, -1, keepdim=True)
    # The backward computes the logits anew, and may fold the scale into q: where it is no power of two they differ in
    # the last bit, which exp turns into a relative error of |logit| ulps. It is what float32 kernels are limited by.
    again = ((scale * q) @ k.transpose(-1, -2) + bias).masked_fill(~view, float("-inf")).masked_fill(dead, 0.0)
    rebuilt = torch.exp(again - lse).masked_fill(dead, 0.0)
    delta = (upstream * o).sum(-1, keepdim=True)
    ds = r(rebuilt * (upstream @ v.transpose(-1, -2) - delta))

    def heads(x: Any) -> Any:  # torch rounds the gradients of the heads of a group, and their sum
        return r(x).reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)

    dq = r(scale * (ds @ k))
    dk = r(heads(scale * (ds.transpose(-1, -2) @ q)))
    dv = r(heads(r(rebuilt).transpose(-1, -2) @ upstream))
    return {"o": o, "dq": dq, "dk": dk, "dv": dv, "lse": lse}


def expected(inputs: tuple[Any, Any, Any, Any], view: Any, bias: Any = _NO_BIAS) -> Expected:
    """Return truth and model for (q, k, v, dO) that are already rounded to the tested dtype."""
    truth = evaluate(inputs, view, torch.float64, bias=bias.double())
    model = evaluate(inputs, view, torch.float32, inputs[0].dtype, bias.float())
    lse = [round(float(truth["lse"].min()), 1), round(float(truth["lse"].max()), 1)]
    return Expected(truth, model, ~view.any(-1), lse)


def measure(got: dict[str, Any], case: Expected, dtype: Any) -> dict[str, Any]:
    """Return the measures: ``ratio``, ``nonfinite``, ``dead_rows_nonfinite``, ``dead_dq_nonfinite``, ``unjudged``.

    Only live rows count for o and dq, all rows for dk and dv. A tensor whose truth does not fit the dtype is unjudged.
    """
    measures: dict[str, Any] = {"ratio": {}, "nonfinite": {}, "unjudged": []}
    rows, keys = case.truth["o"].shape[2], case.truth["dk"].shape[2]
    for name, tensor in got.items():
        x = tensor.detach().to("cpu", torch.float64)
        numbers = x, case.truth[name], case.model[name].to(torch.float64)
        if name in ("o", "dq"):
            lost_in_dead = lost(x[case.dead.expand(x.shape[:3])])
            if name == "o":
                measures["dead_rows_nonfinite"] = lost_in_dead
            elif lost_in_dead:
                # Its truth is 0, and the gradient of q's projection is summed over these rows too.
                measures["dead_dq_nonfinite"] = lost_in_dead
            numbers = (x.masked_fill(case.dead[..., None], 0.0), *numbers[1:])  # of dead rows truth and model are 0
        # The last keys of a triangle are seen by few rows: dk of 64 keys may be 9 times off where a head is right.
        block = 0 if min(rows, keys) < ENOUGH else 64 if name in ("o", "dq") else keys
        note_error(measures, name, numbers, dtype, block)
    unjudged = measures.pop("unjudged")
    return {**measures, "unjudged": unjudged} if unjudged else measures


def observe(prepared: _Prepared, dtype: Any, device: str, kernel: Kernel) -> dict[str, Any]:
    """Run the kernel; the observation of it, for the judge ``attention``."""
    case = prepared.case
    observation: dict[str, Any] = {"case": _title(case), "params": dict(case), "judge": "attention"}
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
        return {**observation, **failure(error, device)}
    observation.update(node=node, ms=round(1000 * (time.perf_counter() - started), 2))
    if cuda:
        observation["peak_mib"] = round(torch.cuda.max_memory_allocated() / 1048576.0, 1)
    observation.update(measure(dict(zip(TENSORS, (out, *gradients))), prepared.expected, dtype))
    observation["lse"] = prepared.expected.lse
    if case["S"] == 1:
        # Softmax over one key is constant: exact dq and dk are 0, and a ratio would divide one noise by another.
        observation["gate"] = ["o", "dv"]
    return observation


def _title(case: dict[str, Any]) -> str:
    """Return the short name of a case: ``L64 S64 D64 bool_left bhsd hf shift-``."""
    words = [f"B{case['B']}"] if case["B"] != 2 else []
    words += [f"H{case['H']}/{case['Hk']} {case['gqa']}"] if case["H"] != case["Hk"] else []
    words += [f"L{case['L']}", f"S{case['S']}", f"D{case['D']}"]
    return " ".join([*words, case["mask"], case["layout"], case["dout"], case["stress"]])


def is_known(backend: str, emit: Emit) -> bool:
    """Return whether this torch can force the backend; emit a skip if it cannot."""
    older = backend in ("default", "math", "flash", "efficient")
    if older or hasattr(_backends(), BACKENDS.get(backend, "")):
        return True
    emit({"case": "backend", "skip": f"this torch has no {backend} backend to ask for"})
    return False


def force(backend: str) -> Any:
    """Return a context in which scaled_dot_product_attention may use this backend alone; none for ``default``."""
    if backend == "default":
        return nullcontext()
    members = _backends()
    if members is not None:
        return torch.nn.attention.sdpa_kernel(getattr(members, BACKENDS[backend]))
    switches = {"enable_flash": "flash", "enable_math": "math", "enable_mem_efficient": "efficient"}
    return torch.backends.cuda.sdp_kernel(**{name: backend == kernel for name, kernel in switches.items()})


def _backends() -> Any:
    """Return torch.nn.attention.SDPBackend, from torch 2.3 on; None before."""
    try:
        from torch.nn.attention import SDPBackend
    except ImportError:
        return None
    return SDPBackend
