"""A stand-alone script of at most 30 lines for one failing case: torch only, fit for a bug report.

The script draws the same numbers as the probe (a case carries its seed), so that it prints what the probe found. It is
made of texts of this module and of numbers alone: no line of it comes from a child or a recording.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.experiments.probe.session import JudgedCase
from envdoctor.experiments.probe.verdict import params_of
from envdoctor.system.clean import clean

_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
_BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
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
_HOW = ("bool", "inf", "min", "f32", "bias")
_HIDDEN = {
    "left": "keep[1:, ..., : max(1, S // 3)] = False",
    "left_dead": "keep[1:, ..., : max(1, S // 3)] = keep[-1] = False",
    **dict.fromkeys(("right", "key"), "keep[1:, ..., S - max(1, S // 3) :] = False"),
    "band": "keep = keep.triu(S - L - 31)",
}
#: Each layout keeps the numbers of the probe, and q, k and v are leaves.
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
_COMPARE = (
    "got = (out, *torch.autograd.grad(out, (q, k, v), do))",
    "a, b, c = (x.detach().double().requires_grad_() for x in (q, k, v))",
    "s = a @ b.repeat_interleave(H // Hk, 1).transpose(-1, -2) * D**-0.5",
    "p = s.masked_fill(~keep.to(device), -torch.inf).masked_fill(~live, 0).softmax(-1).masked_fill(~live, 0)",
    "want = ((y := p @ c.repeat_interleave(H // Hk, 1)), *torch.autograd.grad(y, (a, b, c), do.double()))",
    "rows = [live, live, live[:1, :1, :1] | True, live[:1, :1, :1] | True]",
    "pairs = [(x.double().masked_fill(~row, 0), y.masked_fill(~row, 0)) for x, y, row in zip(got, want, rows)]",
    'print("not finite in out, dq, dk, dv:", [int((~x.isfinite()).sum()) for x, y in pairs])',
    'print("relative errors:", [float((x - y).norm() / y.norm()) for x, y in pairs], torch.finfo(dtype).eps)',
)


def script_of(
    case: JudgedCase, environment: Mapping[str, Mapping[str, Any]], seed: int | None = None
) -> Sequence[str] | None:
    """Return the script's lines for one case, with the ``seed`` of the run; None for a case of another kind."""
    lines = _attention(case) if case.observation.get("judge") == "attention" else []
    if not lines:
        return None
    build, device = environment.get("build", {}), environment.get("device", {})
    words = [f"torch {build.get('torch')}", str(device.get("name") or case.observation.get("device"))]
    if device.get("cudnn"):
        words.append(f"cuDNN {device['cudnn']}")
    if seed is not None:
        words.append(f"envdoctor probe --seed {seed}")
    heads = clean(", ".join(words), 150), clean(f"{case.verdict.signature}: {case.verdict.why}", 200)
    return [*(f"# {head}" for head in heads), *lines]


def _attention(case: JudgedCase) -> list[str]:
    observation, params = case.observation, params_of(case.observation)
    if not all(isinstance(params.get(name), int) for name in (*_SIZES, "seed")):
        return []
    mask, stress, layout, dout = (str(params.get(name)) for name in ("mask", "stress", "layout", "dout"))
    form, _, pattern = mask.partition("_")
    dtype, backend = _DTYPES.get(str(observation.get("dtype"))), str(observation.get("backend") or "default")
    valid = stress in _STRESSES and layout in _LAYOUTS and dout in _UPSTREAM
    valid = valid and (mask in ("none", "causal", "alltrue") or (form in _HOW and pattern in _HIDDEN))
    valid = valid and not (form == "min" and dout == "expand")  # what dead rows give is then part of dk and dv
    if dtype is None or not valid or (backend != "default" and backend not in _BACKENDS):
        return []
    device = "cuda" if observation.get("device") == "cuda" else "cpu"
    return [
        "import torch",
        *([] if backend == "default" else ["from torch.nn.attention import SDPBackend, sdpa_kernel"]),
        f"{', '.join(_SIZES)} = {', '.join(str(params[name]) for name in _SIZES)}",
        f'device, dtype, g = "{device}", {dtype}, torch.Generator().manual_seed({params["seed"]})',
        "q, k, v = (torch.randn(B, h, n, D, generator=g) for h, n in ((H, L), (Hk, S), (Hk, S)))",
        *_STRESSES[stress],
        "q, k, v, do = (x.to(device, dtype) for x in (q, k, v, torch.randn(B, H, L, D, generator=g)))",
        *_mask_lines(mask, form, pattern),
        "live = keep.any(-1, keepdim=True).to(device)",
        *([] if dout == "expand" else ["do = do.masked_fill(~live, 0)"]),
        _LAYOUTS[layout],
        _UPSTREAM[dout],
        *_call(params, mask, backend),
        *(line + " + mask.double()" * (form == "bias" and line.startswith("s = ")) for line in _COMPARE),
    ]


def _mask_lines(mask: str, form: str, pattern: str) -> list[str]:
    if mask == "none":
        return [_KEEP]
    if mask == "causal":
        return [f"{_KEEP}.tril()"]
    if mask == "alltrue":
        return [_KEEP, "mask = keep.to(device)"]
    keep = _KEEP if pattern == "key" else f"{_KEEP}.tril(S - L)"
    lines = [keep, _HIDDEN[pattern]]
    if form == "bool":
        view = "keep[:, :, :1].contiguous().to(device).expand(keep.shape)" if pattern == "key" else "keep.to(device)"
        return [*lines, f"mask = {view}"]
    if form == "bias":
        drawn = "torch.randn(keep.shape, generator=g.manual_seed(7)).to(device, dtype)"
        return [*lines, f"mask = {drawn}.masked_fill(~keep.to(device), -torch.inf)"]
    least = "torch.finfo(dtype).min" if form == "min" else "-torch.inf"
    kind = "torch.float32" if form == "f32" else "dtype"
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
