"""A stand-alone script of at most 30 lines for one failing case: torch only, fit for a bug report.

The script draws the same numbers as the probe (a case carries its seed), so that what it prints is what was found. It
is made of what is known here and of numbers alone: no line of it comes from a child or a recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envdoctor.probe.grouping import Case, Group
from envdoctor.text.clean import clean

#: Lines of a script at most.
LINES = 30

_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
_BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
_SIZES = ("B", "H", "Hk", "L", "S", "D")

_STRESSES = {
    "unit": [],
    "x3": ["q, k, v = q * 3, k * 3, v * 3"],
    "outlier": [
        "channel = int(torch.randint(D, (1,), generator=g))",
        "k[:, :, :: max(1, S // 5), channel] += 40",
        "q[..., channel] *= 4",
    ],
    "shift-": [
        "w = torch.randn(1, H, 1, D, generator=g)[:, :: H // Hk]",
        "w = (200 * D**0.5) ** 0.5 * (w / w.norm(dim=-1, keepdim=True))  # moves every logit by -200",
        "q, k = 0.5 * q + w.repeat_interleave(H // Hk, 1), 0.5 * k - w",
    ],
}
_STRESSES["shift+"] = [
    line.replace("-200", "+200").replace("0.5 * k - w", "0.5 * k + w") for line in _STRESSES["shift-"]
]

_KEEP = "keep = torch.ones(B, 1, L, S, dtype=torch.bool)"
_HOW = ("bool", "inf", "min", "f32")
_HIDDEN = {
    "left": ["keep[1:, ..., : max(1, S // 3)] = False"],
    "left_dead": ["keep[1:, ..., : max(1, S // 3)] = keep[-1] = False"],
    "right": ["keep[1:, ..., S - max(1, S // 3) :] = False"],
    "key": ["keep[1:, ..., S - max(1, S // 3) :] = False"],
    "band": ["keep = keep.triu(S - L - 31)"],
}
#: In each the numbers are those of the probe, and q, k and v are leaves.
_LAYOUTS = {
    "bhsd": "q, k, v = (x.contiguous().requires_grad_() for x in (q, k, v))",
    "bshd": "q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v))",
    "packed": "q, k, v = (x.requires_grad_() for x in torch.stack([q, k, v]).permute(1, 3, 0, 2, 4)"
    ".contiguous().permute(2, 0, 3, 1, 4))",
    "offset": "q, k, v = (torch.cat([x[0, 0, 0, :1], x.ravel()])[1:].view(x.shape).requires_grad_()"
    " for x in (q, k, v))",
    "expanded": "q, k, v = (x.requires_grad_() for x in (q, *(x[:, :1].contiguous().expand(x.shape) for x in (k, v))))",
    "expanded_batch": "q, k, v = (x.requires_grad_() for x in (q, k[:1].expand(k.shape), v[:1].expand(v.shape)))",
}
_UPSTREAM = {
    "hf": "do = do.transpose(1, 2).contiguous().transpose(1, 2)",
    "strided": "do = torch.stack([do, torch.zeros_like(do)], 3).flatten(2, 3)[:, :, ::2]",
    "expand": "do = torch.ones((), dtype=dtype, device=device).expand(do.shape)",
    "plain": "do = do.contiguous()",
}


def reproducer(groups: Iterable[Group], environment: Mapping[str, Mapping[str, Any]]) -> Sequence[str] | None:
    """The lines of the script for the worst failing case that one can be written for; None when there is none."""
    for group in groups:
        if group.verdict == "fail" and group.worst is not None:
            script = script_of(group.worst, environment)
            if script is not None:
                return script
    return None


def script_of(case: Case, environment: Mapping[str, Mapping[str, Any]]) -> Sequence[str] | None:
    """The lines of the script of one case; None for a case of another kind."""
    lines = _attention(case) if case.observation.get("judge") == "attention" else []
    return [*_head(case, environment), *lines] if lines else None


def _head(case: Case, environment: Mapping[str, Mapping[str, Any]]) -> list[str]:
    build, device = environment.get("build", {}), environment.get("device", {})
    words = [f"torch {build.get('torch')}", str(device.get("name") or case.observation.get("device"))]
    if device.get("cudnn"):
        words.append(f"cuDNN {device['cudnn']}")
    return [f"# {clean(', '.join(words), 150)}", f"# {clean(f'{case.verdict.signature}: {case.verdict.why}', 200)}"]


def _attention(case: Case) -> list[str]:
    params = case.observation.get("params")
    seen = case.observation
    if not isinstance(params, Mapping) or not all(isinstance(params.get(name), int) for name in (*_SIZES, "seed")):
        return []
    mask, stress, layout, dout = (str(params.get(name)) for name in ("mask", "stress", "layout", "dout"))
    how, _, what = mask.partition("_")
    dtype, backend = _DTYPES.get(str(seen.get("dtype"))), str(seen.get("backend") or "default")
    known = stress in _STRESSES and layout in _LAYOUTS and dout in _UPSTREAM
    known = known and (mask in ("none", "causal", "alltrue") or (how in _HOW and what in _HIDDEN))
    known = known and not (how == "min" and dout == "expand")  # what dead rows give is then part of dk and dv
    if dtype is None or not known or (backend != "default" and backend not in _BACKENDS):
        return []
    device = "cuda" if seen.get("device") == "cuda" else "cpu"
    lines = ["import torch"]
    if backend != "default":
        lines.append("from torch.nn.attention import SDPBackend, sdpa_kernel")
    lines += [
        f"{', '.join(_SIZES)} = {', '.join(str(params[name]) for name in _SIZES)}",
        f'device, dtype, g = "{device}", {dtype}, torch.Generator().manual_seed({params["seed"]})',
        "q, k, v = (torch.randn(B, h, n, D, generator=g) for h, n in ((H, L), (Hk, S), (Hk, S)))",
        *_STRESSES[stress],
        "q, k, v, do = (x.to(device, dtype) for x in (q, k, v, torch.randn(B, H, L, D, generator=g)))",
        *_mask_lines(mask, how, what),
        "live = keep.any(-1, keepdim=True).to(device)",
        *([] if dout == "expand" else ["do = do.masked_fill(~live, 0)"]),
        _LAYOUTS[layout],
        _UPSTREAM[dout],
        *_call(params, mask, backend),
        *_compare(),
    ]
    return lines


def _mask_lines(mask: str, how: str, what: str) -> list[str]:
    if mask == "none":
        return [_KEEP]
    if mask == "causal":
        return [f"{_KEEP}.tril()"]
    if mask == "alltrue":
        return [_KEEP, "mask = keep.to(device)"]
    keep = _KEEP if what == "key" else f"{_KEEP}.tril(S - L)"
    lines = [keep, *_HIDDEN[what]]
    if how == "bool":
        view = "keep[:, :, :1].contiguous().to(device).expand(keep.shape)" if what == "key" else "keep.to(device)"
        return [*lines, f"mask = {view}"]
    least = "torch.finfo(dtype).min" if how == "min" else "-torch.inf"
    kind = "torch.float32" if how == "f32" else "dtype"
    return [*lines, f"mask = torch.zeros(keep.shape, dtype={kind}).masked_fill(~keep, {least}).to(device)"]


def _call(params: Mapping[str, Any], mask: str, backend: str) -> list[str]:
    arguments = ", is_causal=True" if mask == "causal" else "" if mask == "none" else ", attn_mask=mask"
    shared = params["H"] != params["Hk"]
    keys, lines = "k, v", []
    if shared and params.get("gqa") == "flag":
        arguments += ", enable_gqa=True"
    elif shared:
        keys, lines = "*kv", ["kv = [x.repeat_interleave(H // Hk, 1) for x in (k, v)]"]
    call = f"out = torch.nn.functional.scaled_dot_product_attention(q, {keys}{arguments})"
    if backend == "default":
        return [*lines, call]
    return [*lines, f"with sdpa_kernel(SDPBackend.{_BACKENDS[backend]}):", f"    {call}"]


def _compare() -> list[str]:
    return [
        "got = (out, *torch.autograd.grad(out, (q, k, v), do))",
        "a, b, c = (x.detach().double().requires_grad_() for x in (q, k, v))",
        "s = a @ b.repeat_interleave(H // Hk, 1).transpose(-1, -2) * D**-0.5",
        "p = s.masked_fill(~keep.to(device), -torch.inf).masked_fill(~live, 0).softmax(-1).masked_fill(~live, 0)",
        "want = ((y := p @ c.repeat_interleave(H // Hk, 1)), *torch.autograd.grad(y, (a, b, c), do.double()))",
        "rows = [live, live, live[:1, :1, :1] | True, live[:1, :1, :1] | True]",
        "pairs = [(x.double().masked_fill(~row, 0), y.masked_fill(~row, 0)) for x, y, row in zip(got, want, rows)]",
        'print("not finite in out, dq, dk, dv:", [int((~x.isfinite()).sum()) for x, y in pairs])',
        'print("relative errors:", [float((x - y).norm() / y.norm()) for x, y in pairs], torch.finfo(dtype).eps)',
    ]
