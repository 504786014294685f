"""A stand-alone script of at most 30 lines for one failing case: torch only, fit for a bug report.

The script draws the same numbers as the probe (a case carries its seed), so that it prints what the probe found. It is
made of texts of this module and of numbers alone: no line of it comes from a child or a recording.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.experiments.probe.catalogue import UNUSABLE, Outcome
from envdoctor.experiments.probe.verdict import Verdict, judge_all, params_of
from envdoctor.system.clean import clean
from envdoctor.system.message import NOTHING, Message

# From observations to results: each judged, and those that came out alike together.

#: From the worst to the best.
ORDER = ("fail", "crash", "oom", "timeout", "killed", "garbage", "error", "partial", "warn", "pass", "skip")
#: Verdicts that are doubted until a second run repeats them.
DOUBTED = ("fail", "error")
_UNLIKE = "unlike-answers"
#: Numbers of the same input that differ by more than this share are two answers. Between processes of one healthy
#: machine, those of a CPU do not differ at all; atomics of a GPU change the last digits.
_APART = 0.1
_MEASURED = ("o", "dq", "dk", "dv", "d0", "d1", "d2", "dx", "dw", "relative", "difference", "e1", "eN")
#: The verdict and the signature of an ending in a record.
_ENDED = {
    **{name: (name, name) for name in ("timeout", "killed", "crash", "garbage")},
    **{name: ("error", name) for name in ("failed", "lost", *UNUSABLE)},
    **{"oom": ("oom", "out-of-memory"), "sticky": ("error", "sticky-error")},
    "output-limit": ("garbage", "output-limit"),
}
#: The signature of a job that was done alone after it had ended so beside others; else "died-once".
_ONCE = {"crash": "crashed-once", "timeout": "hung-once"}
_MODULI = (128, 64, 32, 16)
#: A key length below this fits into one tile of every kernel.
_SHORT = 16


class JudgedCase(NamedTuple):
    """One observation with its verdict."""

    observation: Mapping[str, Any]
    verdict: Verdict

    def param(self, name: str) -> str | None:
        """Return a parameter of the case as text."""
        return text_of(params_of(self.observation), name)

    @property
    def title(self) -> str:
        """Return the case in a line: its name, or its parameters."""
        name = self.observation.get("case")
        if isinstance(name, str) and name:
            return name[:300]
        return " ".join(f"{key}={value}" for key, value in params_of(self.observation).items())[:300]


class Result(NamedTuple):
    """Cases of one probe on one device, in one dtype and with one backend and model, that came out alike, or a child
    that died: a record for the rules and the report.

    ``wrong`` of the ``cases`` with this probe, device, dtype and backend came out so; 0 if they are right: then the
    fields below ``why`` are empty. ``ratio`` is the worst error in units of unavoidable rounding, None if no ratio is
    finite. ``nodes`` are the autograd nodes that ran, the most frequent first; ``masks``, ``stresses``, ``lengths`` and
    ``cured_by`` values of parameters, ``lse`` the least and largest logsumexp of a row, ``example`` the case to show.
    ``tile`` is what the lengths share (:func:`_tile`), ``batch`` the property of the batch that matters
    (:func:`_batch`), ``ranks`` the machines and ranks of a job, if only some of them have the result.
    """

    name: str = ""
    device: str = ""
    dtype: str | None = None
    backend: str | None = None
    model: str | None = None
    verdict: str = ""
    signature: str = ""
    wrong: int = 0
    cases: int = 0
    tensors: tuple[str, ...] = ()
    ratio: float | None = None
    nodes: tuple[str, ...] = ()
    why: str = NOTHING
    masks: tuple[str, ...] = ()
    stresses: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    tile: str | None = None
    lse: tuple[float, float] | None = None
    example: str | None = None
    ranks: str | None = None
    cured_by: tuple[str, ...] = ()
    batch: str | None = None


def cases_of(outcomes: Iterable[Outcome]) -> list[JudgedCase]:
    """Return every observation that is a case, judged, in the order in which they came.

    A case that failed in one run and gave another answer to the same input in another is "unlike-answers", and so are
    all failed cases of its job.
    """
    once = [outcome for outcome in outcomes if not outcome.again]
    repeated: dict[_Same, list[JudgedCase]] = {}
    for outcome in outcomes:
        for same, case in _keyed_cases(outcome) if outcome.again else ():
            repeated.setdefault(same, []).append(case)
    cases = _judge_cases([observation for outcome in once for observation in outcome.observations])
    if not repeated and not any("again" in case.observation for case in cases):
        return cases
    names = [same for outcome in once for same, _ in _keyed_cases(outcome)]
    doubted = [
        _doubted(case, [*_other_answer(case), *repeated.get(same, ())]) for same, case in zip(names, cases, strict=True)
    ]
    shaken = {same[0] for same, case in zip(names, doubted, strict=True) if case.verdict.signature == _UNLIKE}
    return [_shaken(case) if same[0] in shaken else case for same, case in zip(names, doubted, strict=True)]


_Same = tuple[str, str, str, int]


def _judge_cases(observations: Sequence[Mapping[str, Any]]) -> list[JudgedCase]:
    verdicts = judge_all(observations)
    return [
        JudgedCase(entry, verdict) for entry, verdict in zip(observations, verdicts, strict=True) if verdict is not None
    ]


def _keyed_cases(outcome: Outcome) -> list[tuple[_Same, JudgedCase]]:
    """Return the cases of a job, each with the key that it has in every run of that job."""
    count: Counter[tuple[str, str, str]] = Counter()
    pairs = []
    for case in _judge_cases(outcome.observations):
        name = (outcome.job.label, case.title, str(case.observation.get("dtype")))
        count[name] += 1
        pairs.append(((*name, count[name]), case))
    return pairs


def _other_answer(case: JudgedCase) -> list[JudgedCase]:
    """Return the case with the answer of its operation's second call, if that answer was another."""
    match case.observation.get("again"):
        case {**again}:
            return _judge_cases([{**case.observation, **{str(key): value for key, value in again.items()}}])
    return []


def _doubted(case: JudgedCase, others: Sequence[JudgedCase]) -> JudgedCase:
    """Return the case; its verdict is "unlike-answers" if the same input gave a right and a wrong answer."""
    wrong = next((answer for answer in (case, *others) if answer.verdict.verdict in DOUBTED), None)
    other = next((answer for answer in others if _unlike(case, answer)), None)
    if wrong is None or other is None:
        return case
    texts = [answer.verdict.why or Message("what is right") for answer in (case, other)]
    reason = Message("the same input gave: {}; and again: {}: suspect hardware, a race or clocks", *texts)
    return case._replace(verdict=Verdict("fail", _UNLIKE, wrong.verdict.tensors, None, reason))


def _shaken(case: JudgedCase) -> JudgedCase:
    """Return the case; its verdict changes if other cases of its job gave two answers."""
    if case.verdict.verdict not in DOUBTED or case.verdict.signature == _UNLIKE:
        return case
    reason = Message("{}; other cases of this experiment gave two answers to the same input", case.verdict.why)
    return case._replace(verdict=Verdict("fail", _UNLIKE, case.verdict.tensors, None, reason))


def _unlike(case: JudgedCase, other: JudgedCase) -> bool:
    """Return whether two results of the same input are two answers: another verdict, or numbers that are far apart.

    An exception of Python does not count as an answer: a program may raise only until something has been made.
    """
    first, second = case.verdict, other.verdict
    if "error" in (first.signature, second.signature):
        return False
    if (first.verdict in DOUBTED, first.signature) != (second.verdict in DOUBTED, second.signature):
        return first.verdict in DOUBTED or second.verdict in DOUBTED
    before, after = _numbers(case), _numbers(other)
    pairs = [(before[name], after[name]) for name in _MEASURED]
    return any(abs(value - again) > _APART * max(value, again) for value, again in pairs)


def _numbers(case: JudgedCase) -> dict[str, float]:
    """Return the measured values by name."""
    observation = case.observation
    ratios = observation.get("ratio")
    fields = {**(ratios if isinstance(ratios, dict) else {}), **observation}
    return {name: _float(fields.get(name)) for name in _MEASURED}


_Family = tuple[str, str, str | None, str | None]


def groups_of(outcomes: Sequence[Outcome]) -> list[Result]:
    """Return the results, by probe in the order of the run, the worst first. A child that died has its own result."""
    return [result for result, _ in grouped(outcomes, cases_of(outcomes))]


def grouped(outcomes: Sequence[Outcome], cases: Iterable[JudgedCase]) -> list[tuple[Result, JudgedCase | None]]:
    """Return :func:`groups_of` outcomes with these cases, each with the case to show, if there is one."""
    outcomes = [outcome for outcome in outcomes if not outcome.again]
    families: dict[_Family, list[JudgedCase]] = {_family(outcome): [] for outcome in outcomes}
    for case in cases:
        entry = case.observation
        family = (str(entry.get("probe")), str(entry.get("device")), text_of(entry, "dtype"), text_of(entry, "backend"))
        families.setdefault(family, []).append(case)
    results: list[tuple[Result, JudgedCase | None]] = []
    counts = {family: sum(case.verdict.verdict != "skip" for case in members) for family, members in families.items()}
    for family, members in families.items():
        right = [case for case in members if case.verdict.verdict == "pass"]
        kinds: dict[tuple[str, str | None], list[JudgedCase]] = {}
        for case in members:
            kinds.setdefault((case.verdict.signature, case.param("model")), []).append(case)
        for (_, model), alike in kinds.items():
            same = [case for case in right if case.param("model") == model]
            results.append(_result(family, model, alike, counts[family], same))
    for outcome in outcomes:
        dead = Result(*(family := _family(outcome)), wrong=1, cases=counts[family], why=outcome.detail)
        if outcome.ending != "ok":
            verdict, signature = _ENDED[outcome.ending]
            results.append((dead._replace(verdict=verdict, signature=signature), None))
        if outcome.earlier:
            text = "at first {}, in a process with other experiments: {}"
            once = dead._replace(verdict="warn", signature=_ONCE.get(outcome.earlier, "died-once"))
            results.append((once._replace(why=Message(text, outcome.earlier, outcome.earlier_detail)), None))
    places = {name: place for place, name in enumerate(dict.fromkeys(outcome.job.probe for outcome in outcomes))}
    return sorted(results, key=lambda pair: (places.get(pair[0].name, len(places)), _rank(pair[0].verdict)))


def _result(
    family: _Family, model: str | None, alike: Sequence[JudgedCase], ran: int, right: Sequence[JudgedCase]
) -> tuple[Result, JudgedCase]:
    """Return the result of these cases beside the ``right`` ones, with the case of the largest error. If values were
    lost it is the first case, because a grid begins simply."""
    verdict, signature = min((case.verdict.verdict for case in alike), key=_rank), alike[0].verdict.signature
    same = [case for case in alike if case.verdict.verdict == verdict]
    worst = max(same, key=lambda case: 0.0 if "nan" in signature else case.verdict.ratio or 0.0)
    ratios = [case.verdict.ratio for case in alike if case.verdict.ratio is not None]
    nodes = Counter(node for case in alike if (node := text_of(case.observation, "node")) is not None)
    result = Result(
        *(*family, model, verdict, signature, 0, ran),
        tensors=tuple(dict.fromkeys(name for case in alike for name in case.verdict.tensors)),
        ratio=max((ratio for ratio in ratios if math.isfinite(ratio)), default=None),
        nodes=tuple(node for node, _ in nodes.most_common()),
        why=worst.verdict.why,
    )
    if not worst.verdict.wrong:
        return result, worst
    record = result._replace(
        wrong=len(same),
        masks=_values(alike, "mask"),
        stresses=_values(alike, "stress"),
        lengths=_values(alike, "S"),
        tile=_tile(alike, right),
        lse=_lse(alike),
        example=worst.title,
        cured_by=_values(alike, "cured_by"),
        batch=_batch(signature, alike, right),
    )
    return record, worst


def _values(cases: Iterable[JudgedCase], name: str) -> tuple[str, ...]:
    """Return the values of a parameter in these cases: numbers in order, words in alphabetical order."""
    values = {value for case in cases if (value := case.param(name)) is not None}
    return tuple(sorted(values, key=lambda text: (float(text) if is_length(text) else math.inf, text)))


def _lse(cases: Iterable[JudgedCase]) -> tuple[float, float] | None:
    pairs = [case.observation.get("lse") for case in cases]
    both = [[_float(end) for end in pair] for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]
    ends = [pair for pair in both if all(map(math.isfinite, pair))]
    return (min(pair[0] for pair in ends), max(pair[1] for pair in ends)) if ends else None


def _tile(cases: Sequence[JudgedCase], right: Iterable[JudgedCase]) -> str | None:
    """Return what these cases' key lengths share and those of comparable right ones do not: ``%128=64``, ``<16``.

    Comparable cases have a mask and a stress of the wrong cases. One length alone shares everything with itself, and a
    key of length 1 has gradients of zero: neither counts.
    """
    wrong = sorted({int(text) for text in _values(cases, "S") if is_length(text)})
    shared = {name: _values(cases, name) or ("",) for name in ("mask", "stress")}
    alike = [case for case in right if all((case.param(name) or "") in shared[name] for name in shared)]
    others = {int(text) for case in alike if (text := case.param("S")) and is_length(text) and text != "1"}
    if not wrong or not others:
        return None
    if wrong[-1] < _SHORT <= min(others):
        return f"<{_SHORT}"
    for modulus in _MODULI if len(wrong) > 1 else ():
        rests = {length % modulus for length in wrong}
        if len(rests) == 1 and not rests & {length % modulus for length in others}:
            return f"%{modulus}={rests.pop()}"
    return None


def _batch(signature: str, cases: Sequence[JudgedCase], right: Sequence[JudgedCase]) -> str | None:
    """Return the property of the batch that matters: ``padded``, ``size`` or ``any``; None if it was not varied."""
    if signature.startswith("mask-"):
        return "padded"
    if not any(case.param("padding") for case in (*cases, *right)):
        return None
    if not signature.startswith("batch-"):
        return "any"
    return "size" if "none" in _values(cases, "padding") else "padded"


def _family(outcome: Outcome) -> _Family:
    return outcome.job.probe, outcome.device, outcome.job.dtype, outcome.job.backend


def is_length(text: str) -> bool:
    """Return whether a text is a number of keys: a recording may hold other digits, or thousands of them."""
    return text.isascii() and text.isdigit() and len(text) < 10


def _rank(verdict: str) -> int:
    return ORDER.index(verdict) if verdict in ORDER else 0


def text_of(observation: Mapping[str, Any], key: str) -> str | None:
    """Return a field as text; None if it is missing."""
    value = observation.get(key)
    return None if value is None else str(value)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


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
