"""The operations of a training step, each with a formula of its own: what :mod:`..probes.arithmetic` tries.

All that transformers' families, optimizers and losses call of torch, by families. A row has the shapes of its inputs,
how it is judged, what is done, and the same in float64 on the CPU by other means. Sizes, memory layouts, dtypes and
kinds of numbers are drawn for each; what stands behind the row says which of them are not for it. An operation is
looked up at each call: who wraps torch's function is tested as well.
"""

from __future__ import annotations

import math
import re
from itertools import accumulate
from typing import Any, Callable, Dict, Tuple  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch
from torch.nn import functional

from .kit import IGNORED, Unavailable

#: By name of the axis: rows and width are drawn together, the others beside them.
Row = Tuple[Any, ...]  # noqa: UP006

#: The numbers of an input, made of normal ones in float32. "whole" ones have exact sums in every dtype.
VALUES: Dict[str, Callable[[Any], Any]] = {  # noqa: UP006
    "unit": lambda x: x,
    "wide": lambda x: 30 * x,
    "far": lambda x: x + 300,
    "out": lambda x: 12 * x,
    "low": lambda x: 3 * x - 95,
    "tiny": lambda x: 2e-5 * x,
    "angles": lambda x: 900 * x,
    "zeros": lambda x: torch.zeros_like(x),
    "equal": lambda x: torch.ones_like(x),
    "mixed": lambda x: x * torch.tensor([1.0, 0.0, 1000.0]).repeat(x.numel() // 3 + 1)[: x.numel()].view(x.shape),
    "counts": lambda x: (2 * x).round().clamp(-3, 3).abs(),
    "whole": lambda x: (2 * x).round().clamp(-3, 3),
    "inf": lambda x: torch.where(x.abs() < 2, x, x * math.inf),
}

#: The same numbers lying otherwise in memory; of "expanded" all are those of the first row.
LAYOUTS: Dict[str, Callable[[Any], Any]] = {  # noqa: UP006
    "plain": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "strided": lambda x: torch.stack((x, x), -1)[..., 0],
    "padded": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "offset": lambda x: torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape),
    "expanded": lambda x: x[:1].expand(x.shape),
}


def labels(count: int, below: int, like: Any) -> Any:
    """Return so many numbers below a bound: every second is one of few, every fourth the same; the last is the
    largest."""
    generator = torch.Generator().manual_seed(23 + count)
    at = torch.randint(0, max(1, below), (count,), generator=generator)
    at[::2] = torch.randint(0, max(1, min(below, 1 + count // 4)), (len(at[::2]),), generator=generator)
    at[::4] = at[:1].clone()
    at[-1:] = below - 1
    return at.to(like.device)


def _rows_of(x: Any, y: Any = None) -> Any:
    """Return a label for each row of x: a column of it, or a row of y."""
    return labels(len(x), x.shape[-1] if y is None else len(y), x)


def _mask(x: Any) -> Any:
    """Return true for about half of the numbers."""
    return labels(x.numel(), 5, x).view(x.shape) % 2 == 0


def _grid(x: Any) -> Any:
    """Return for each row of x, as many columns of it in another order."""
    return (labels(len(x), x.shape[-1], x)[:, None] + torch.arange(x.shape[-1], device=x.device)) % x.shape[-1]


def _hot(at: Any, below: int) -> Any:
    return (at[..., None] == torch.arange(below)).double()


def _positive(x: Any) -> Any:
    return x.abs().clamp_min(2**-7)


def _logsumexp(x: Any) -> Any:
    most = x.amax(-1, keepdim=True).detach()
    return most + (x - most).exp().sum(-1, keepdim=True).log()


def _log_softmax(x: Any) -> Any:
    return x - _logsumexp(x)


def _sigmoid(x: Any) -> Any:
    power = math.e ** x.clamp(max=0)
    return torch.where(x < 0, power / (1 + power), 1 / (1 + math.e ** -x.clamp(min=0)))


def _log_sigmoid(x: Any) -> Any:
    low, high = x.clamp(max=0), x.clamp(min=0)
    return torch.where(x < 0, low - (math.e**low).log1p(), -(math.e**-high).log1p())


def _normal_share(x: Any) -> Any:
    return torch.special.ndtr(x)


def _layer_norm(x: Any, weight: Any = 1.0, bias: Any = 0.0) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5) ** 0.5 * weight + bias


def _gelu(x: Any) -> Any:
    return x * _sigmoid(2 * (2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))


def _labelled(x: Any) -> Any:
    """Return labels of rows, of which every fifth does not count."""
    at = _rows_of(x).clone()
    at[1::5] = IGNORED
    return at


def _counted(x: Any) -> tuple[Any, Any]:
    """Return the rows whose labels count, and these as ones among zeros."""
    at = _labelled(x)
    return x[at != IGNORED], _hot(at[at != IGNORED], x.shape[-1])


def _smoothed(x: Any, share: float = 0.1) -> Any:
    rows, hot = _counted(x)
    return -(_log_softmax(rows) * (hot * (1 - share) + share / x.shape[-1])).sum() / len(rows)


def _weighted(x: Any) -> Any:
    rows, hot = _counted(x)
    weights = hot @ _class_weights(x)
    return -((_log_softmax(rows) * hot).sum(-1) * weights).sum() / weights.sum()


def _class_weights(x: Any) -> Any:
    return 0.5 + torch.arange(x.shape[-1], device=x.device).to(x.dtype) % 4


def _positions(x: Any) -> Any:
    return labels(len(x) * x.shape[2], x.shape[1], x).view(len(x), -1)


def _losses(x: Any) -> Any:
    return -(_log_softmax(x) * _hot(_rows_of(x), x.shape[-1])).sum(-1)


def _taken(x: Any, pick: Any) -> Any:
    """Return the parts of x that were picked along its last axis, one after another."""
    return torch.stack([x[row, column] for row, column in enumerate(pick)]) if len(x) else x[:, : pick.shape[-1]]


def _running(x: Any) -> Any:
    return torch.stack(list(accumulate(x.unbind(-1))), -1)


def _multiplied(x: Any) -> Any:
    return torch.stack(list(accumulate(x.unbind(-1), lambda a, b: a * b)), -1)


def _unfolded(x: Any, weight: Any, step: int = 1) -> Any:
    """Return a convolution of (few, channels, length) by a weight (out, channels, k) as products."""
    windows = torch.stack([x[..., at : at + weight.shape[-1]] for at in range(0, x.shape[-1] - 2, step)], -1)
    return torch.einsum("bckl,ock->bol", windows, weight)


def _patches(x: Any, weight: Any) -> Any:
    """Return patches of two by two of images (few, channels, rows, width), as a vision tower makes its tokens."""
    rows, width = (size // 2 * 2 for size in x.shape[-2:])
    parts = [x[..., i:rows:2, j:width:2] * 1 for i in range(2) for j in range(2)]
    return torch.einsum("kbchw,ock->bohw", torch.stack(parts), weight.flatten(2))


def _changed(x: Any, change: Any) -> Any:
    """Return a copy of x after a change in place; without gradients of the copy itself."""
    y = x.clone()
    change(y)
    return y


def _pair(x: Any, y: Any) -> Any:
    return torch.cat((x.reshape(-1), y.reshape(-1).to(x.dtype)))


def _grouped(x: Any, weight: Any) -> Any:
    if not hasattr(torch, "_grouped_mm"):
        raise Unavailable("this torch has no grouped products")
    ends = torch.tensor([len(x) // 3, len(x)], dtype=torch.int32, device=x.device)
    return torch._grouped_mm(x, weight, offs=ends)


def _embedded(at: Any, x: Any, **how: Any) -> Any:
    return functional.embedding(at, x, **how)


def _places(x: Any) -> Any:
    """Return a place of x for each of 4,600 tokens, of which one comes more than 1,024 times."""
    return labels(4611, len(x), x)


def _filled(x: Any, mask: Any, value: Any) -> Any:
    keep = (~mask).to(x.dtype)
    return torch.nan_to_num(x, 0.0, 0.0, 0.0) * keep + value * (1 - keep)


def _below(x: Any, at: int = 0) -> Any:
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[-2:])
    return columns[None] <= rows[:, None] + at


def _written(x: Any) -> Any:
    out = x.new_zeros(len(x) + 3, x.shape[-1])
    out[torch.arange(len(x) - 1, -1, -1, device=x.device)] = x
    return out


def _into_view(x: Any) -> Any:
    out = x.new_zeros(len(x), 2 * x.shape[-1])
    out[:, x.shape[-1] :] = x
    return out


def _turned(x: Any) -> Any:
    first, second = x.chunk(2, -1)
    return torch.cat((second, first), -1)


def _placed(out: Any, *parts: Any) -> Any:
    """Return parts beside one another."""
    at = 0
    pieces = []
    for part in parts:
        pieces.append(functional.pad(part, (at, out.shape[-1] - at - part.shape[-1])))
        at += part.shape[-1]
    return sum(pieces, out)


#: Kinds of sizes by one word.
_SIZES = {
    "most": "empty one tails tiles hidden tall wide middle",
    "filled": "one tails tiles hidden tall wide middle",
    "square": "tails tiles hidden middle",
}
#: In each paragraph a name, the shapes of the inputs x, y and z, how it is judged and what is for it where not all is;
#: then what is done, and behind a ~ its formula. "exact": no number may differ. "whole": sums of whole numbers, exact
#: but for the rounding of the result. "element": each number is as good as its dtype allows. "rms": all numbers
#: together, and none far off.
_TABLE = r"""
# One number at a time.
exp | rows width | element
    x.exp() ~ math.e ** x
log | rows width | element
    _positive(x).log() ~ _positive(x).log2() * math.log(2)
log1p | rows width | element
    _positive(x).log1p() ~ (_positive(x) + 1).log()
expm1 | rows width | rms | limit: element
    x.expm1() ~ math.e ** x - 1
sqrt | rows width | element
    _positive(x).sqrt() ~ _positive(x) ** 0.5
rsqrt | rows width | element | half: o
    _positive(x).rsqrt() ~ _positive(x) ** (-0.5)
reciprocal | rows width | element | half: o
    _positive(x).reciprocal() ~ 1 / _positive(x)
pow | rows width | element
    _positive(x).pow(0.75) ~ (0.75 * _positive(x).log()).exp()
square | rows width | element
    x.pow(2) ~ x * x
cube | rows width | element | half: o
    x.pow(3) ~ x * x * x
powers of a number | rows width | element | dtypes: fp32, values: unit
    torch.pow(10000.0, x / 64) ~ (x / 64 * math.log(10000)).exp()
tanh | rows width | element | values: unit far low zeros equal
    x.tanh() ~ 1 - 2 / (1 + math.e ** (2 * x))
sigmoid | rows width | element | values: unit far zeros equal whole
    x.sigmoid() ~ _sigmoid(x)
erf | rows width | rms | values: unit wide far zeros equal, limit: element
    x.erf() ~ 2 * _normal_share(x * 2 ** 0.5) - 1
sin | rows width | rms | values: unit far tiny angles, limit: element
    x.sin() ~ (math.pi / 2 - x).cos()
cos | rows width | rms | values: unit far tiny angles, limit: element
    x.cos() ~ (math.pi / 2 - x).sin()
silu | rows width | element
    functional.silu(x) ~ x * _sigmoid(x)
gelu | rows width | rms | limit: element | limit: element
    functional.gelu(x) ~ x * _normal_share(x)
gelu by tanh | rows width | rms | limit: element
    functional.gelu(x, approximate='tanh') ~ _gelu(x)
logsigmoid | rows width | element | values: unit wide low zeros equal
    functional.logsigmoid(x) ~ _log_sigmoid(x)
softplus | rows width | rms | limit: element
    functional.softplus(x) ~ -_log_sigmoid(-x)
mish | rows width | rms | limit: element
    functional.mish(x) ~ x * torch.tanh(-_log_sigmoid(-x))
# Up to torch 2.6 exp(x) - 1, which loses the digits of tiny numbers: https://github.com/pytorch/pytorch/pull/62546.
elu | rows width | rms | values: unit wide far out low zeros equal mixed whole
    functional.elu(x) ~ torch.where(x > 0, x, math.e ** x.clamp(max=0) - 1)
relu | rows width | exact
    functional.relu(x) ~ x * (x > 0)
leaky relu | rows width | element
    functional.leaky_relu(x, 0.125) ~ x * (0.125 + 0.875 * (x > 0))
neg | rows width | exact
    -x ~ 0 - x
abs | rows width | exact
    x.abs() ~ x * x.sign()
clamp | rows width | exact
    x.clamp(-0.5, 1.5) ~ x * ((x >= -0.5) & (x <= 1.5)) - 0.5 * (x < -0.5) + 1.5 * (x > 1.5)
floor and round | rows width | exact | values: unit wide whole equal, sizes: most
    torch.cat((x.floor(), x.ceil(), x.trunc(), x.round()))
    ~ torch.cat((x - x % 1, x + -x % 1, x - x.fmod(1), x - (x + 0.5) % 1 + 0.5 - ((x + 0.5) % 2 == 1) * 1.0))
isfinite | rows width | exact | values: unit inf mixed, sizes: most
    torch.stack((x.isfinite(), x.isinf(), x.isnan())) ~ torch.stack((x.abs() < math.inf, x.abs() == math.inf, x != x))
nan_to_num | rows width | exact | values: inf unit
    torch.nan_to_num(x, 0.0, 7.0, -7.0) ~ torch.where(x.abs() == math.inf, 7 * x.sign(), x)
changes in place | rows width | element | values: unit wide zeros equal, half: o
    _changed(x, lambda z: z.abs_().clamp_min_(0.5).pow_(2).rsqrt_()) ~ x.abs().clamp_min(0.5) ** -1.0
# Two numbers at a time, of shapes that are stretched and of dtypes that are not the same.
add | rows width, beside | element | gate: o d0
    x + y ~ x - -y
add of a share | rows width, beside | element | gate: o d0
    torch.add(x, y, alpha=0.5) ~ x - y * -0.5
sub | rows width, beside | element | gate: o d0
    x - y ~ x + -y
rsub | rows width | element
    1.0 - x ~ (x - 1) * -1
mul | rows width, beside | element | gate: o d0
    x * y ~ torch.einsum('...,...->...', x, y.expand(x.shape))
div | rows width, beside | element | gate: o d0
    x / _positive(y) ~ x * _positive(y) ** (-1.0)
mul by a number | rows width | element
    x * 0.3 ~ x / (1 / 0.3)
div by a number | rows width | element
    x / 3 ~ x * (1 / 3)
minimum and maximum | rows width, beside | exact | values: unit, gate: o, sizes: most
    _pair(torch.minimum(x, y), torch.maximum(x, y))
    ~ _pair(x * (x < y) + y * (y < x) + (x + y) / 2 * (x == y), x * (x > y) + y * (y > x) + (x + y) / 2 * (x == y))
addcmul | rows width, rows width, beside | rms | values: unit, gate: o d0 d1, half: o
    torch.addcmul(x, y, z, value=0.5) ~ x + torch.einsum('...,...->...', y, z.expand(y.shape)) / 2
addcmul_ and addcdiv_ | rows width, rows width, rows width | rms | values: unit, gate: o, dtypes: fp32
    _changed(x, lambda u: u.addcmul_(y, z, value=0.5).addcdiv_(y, _positive(z) + 0.25, value=2.0))
    ~ x + y * z / 2 + 2 * y / (_positive(z) + 0.25)
lerp | rows width, beside | rms | values: unit, gate: o d0, half: o
    torch.lerp(x, y.expand(x.shape), 0.25) ~ x - x / 4 + y.expand(x.shape) / 4
logaddexp | rows width, beside | rms | values: unit, gate: o d0, half: o
    torch.logaddexp(x, y.expand(x.shape)) ~ x - _log_sigmoid(x - y.expand(x.shape))
lists of tensors | rows width, rows width | element | values: unit, gate: o, half: o, sizes: tails tiles hidden tall
    _pair(*torch._foreach_add(torch._foreach_mul([x, y], 0.5), [y, x])) ~ _pair(x / 2 + y, y / 2 + x)
norms of lists | rows width, few width | rms | values: unit, gate: o, half: o, sizes: tails tiles hidden tall
    torch.stack(torch._foreach_norm([x, y])) ~ torch.stack((x.square().sum() ** 0.5, y.square().sum() ** 0.5))
add_ | rows width, beside | element | gate: o d0, beside: same row column number
    _changed(x, lambda z: z.add_(y)) ~ x - -y
mul_ | rows width, beside | element | gate: o d0, beside: same row column number
    _changed(x, lambda z: z.mul_(y)) ~ torch.einsum('...,...->...', x, y.expand(x.shape))
div_ | rows width, beside | element | gate: o d0, beside: same row column number
    _changed(x, lambda z: z.div_(_positive(y))) ~ x * _positive(y) ** (-1.0)
comparisons | rows width, beside | exact | values: unit whole mixed, sizes: most
    torch.stack([test.expand(x.shape) for test in (x < y, x <= y, x > y, x >= y, x == y, x != y)])
    ~ torch.stack([y - x > 0, x - y <= 0, x - y > 0, y - x <= 0, (x - y).abs() <= 0, (x - y).abs() > 0])
comparisons with a number | rows width | exact | values: unit whole equal, sizes: most
    torch.stack((x < 1, x <= 1, x > 1, x >= 1, x == 1, x != 1))
    ~ torch.stack((1 - x > 0, x - 1 <= 0, x - 1 > 0, 1 - x <= 0, (x - 1).abs() <= 0, (x - 1).abs() > 0))
logic | rows width | exact | values: unit whole, sizes: most
    torch.stack(((x > 0) & (x < 1), (x > 1) | (x < 0), ~(x > 0), (x > 0) ^ (x > 1)))
    ~ torch.stack(((x > 0) * 1 * (x < 1), (x > 1) + 0 + (x < 0), 1 - (x > 0) * 1, (x > 0) * 1 - (x > 1) * 1))
whole numbers | rows width | exact | values: whole, sizes: most
    torch.stack((x.long() + 7, x.long() * 3, x.long() // 2, x.long() % 5, x.int() - 2, x.long().clamp(0, 2)))
    ~ torch.stack((x + 7, 3 * x, (x / 2).floor(), x - 5 * (x / 5).floor(), x - 2, x * (x > 0) - (x - 2) * (x > 2)))
remainder | rows width | rms | values: unit, dtypes: fp32, limit: element
    x.remainder(0.75) ~ x - 0.75 * (x / 0.75).floor()
# Sums, means, spreads and the like of rows, of columns and of all.
sum of rows | rows width | whole | values: counts
    x.sum(-1) ~ x @ x.new_ones(x.shape[-1])
sum of rows, kept | few rows width | whole | values: counts
    x.sum(-1, keepdim=True) ~ x @ x.new_ones(x.shape[-1], 1)
sum of columns | rows width | whole | values: counts
    x.sum(0) ~ x.new_ones(len(x)) @ x
sum of matrices | few rows width | whole | values: counts
    x.sum((0, 1)) ~ x.new_ones(len(x) * x.shape[1]) @ x.reshape(-1, x.shape[-1])
sum of the middle | few rows width | whole | values: counts
    x.sum(1) ~ x.new_ones(x.shape[1]) @ x
sum of all | rows width | whole | values: counts
    x.sum() ~ x.flatten() @ x.new_ones(x.numel())
sum in float32 | rows width | whole | values: counts
    x.sum(-1, dtype=torch.float32) ~ x @ x.new_ones(x.shape[-1])
sum of numbers | rows width | rms | values: unit far
    x.sum(-1) ~ x @ x.new_ones(x.shape[-1])
sum of what is true | rows width | exact
    (x > 0).sum(-1) ~ (x > 0).double() @ x.new_ones(x.shape[-1])
mean of rows | rows width | rms | values: unit far equal zeros
    x.mean(-1) ~ x @ x.new_ones(x.shape[-1]) / x.shape[-1]
mean of columns | rows width | rms | sizes: filled, values: unit far equal
    x.mean(0) ~ x.new_ones(len(x)) @ x / len(x)
mean of all | rows width | rms | sizes: filled, values: far equal
    x.mean() ~ x.flatten() @ x.new_ones(x.numel()) / x.numel()
mean of squares | rows width | rms | dtypes: fp32
    x.pow(2).mean(-1, keepdim=True) ~ x * x @ x.new_ones(x.shape[-1], 1) / x.shape[-1]
var | rows width | rms | values: unit wide, dtypes: fp32, sizes: tails tiles hidden wide middle
    x.var(-1, unbiased=False) ~ (x - x.mean(-1, keepdim=True)).square().sum(-1) / x.shape[-1]
std | rows width | rms | values: unit wide, sizes: tails tiles hidden wide middle, dtypes: fp32
    x.std(-1) ~ ((x - x.mean(-1, keepdim=True)).square().sum(-1) / (x.shape[-1] - 1)) ** 0.5
norm of rows | rows width | rms | values: unit whole far, gate: o
    torch.linalg.vector_norm(x, dim=-1) ~ x.square().sum(-1) ** 0.5
norm by one | rows width | rms | values: unit whole far, gate: o
    x.norm(1, -1) ~ (x * x.sign()).sum(-1)
normalize | rows width | rms | values: unit far, dtypes: fp32, sizes: tails tiles hidden wide middle
    functional.normalize(x, dim=-1) ~ x / x.square().sum(-1, keepdim=True) ** 0.5
amax and amin | rows width | exact | gate: o, values: unit wide far inf mixed equal
    torch.stack((x.amax(-1), x.amin(-1))) ~ torch.stack((x.sort(-1)[0][..., -1], x.sort(-1)[0][..., 0]))
max of columns | rows width | exact | sizes: filled, gate: o, values: unit inf mixed
    torch.stack((x.max(0).values, x.min(0).values)) ~ torch.stack((x.sort(0)[0][-1], x.sort(0)[0][0]))
max of all | rows width | exact | sizes: filled, gate: o, values: unit inf mixed
    torch.stack((x.max(), x.min())) ~ x.flatten().sort()[0][[-1, 0]]
argmax | rows width | exact | gate: o, values: unit wide mixed
    x.gather(-1, x.argmax(-1, keepdim=True)) ~ x.sort(-1)[0][..., -1:]
argmin | rows width | exact | gate: o, values: unit wide mixed
    x.gather(-1, x.argmin(-1, keepdim=True)) ~ x.sort(-1)[0][..., :1]
any and all | rows width | exact | values: unit equal zeros
    torch.stack(((x > 2).any(-1), (x > -2).all(-1)))
    ~ torch.stack(((x > 2).double().sum(-1) > 0, (x <= -2).double().sum(-1) == 0))
any and all of all | rows width | exact | values: unit
    torch.stack(((x > 3.5).any(), (x > -3.5).all()))
    ~ torch.stack(((x > 3.5).double().sum() > 0, (x <= -3.5).double().sum() == 0))
prod | rows narrow | rms | values: unit, sizes: one tails tiles hidden middle, dtypes: fp32
    _positive(x).clamp(0.5, 2).prod(-1) ~ _multiplied(_positive(x).clamp(0.5, 2))[..., -1]
logsumexp | rows width | rms | gate: o, values: unit wide far low, sizes: tails tiles hidden wide middle tall
    torch.logsumexp(x, -1) ~ _logsumexp(x)[..., 0]
cumsum | rows width | whole | sizes: empty one tails tiles hidden middle tall, dtypes: fp32
    x.cumsum(-1) ~ _running(x)
cumsum of columns | rows width | whole | sizes: one tails tiles middle wide, dtypes: fp32
    x.cumsum(0) ~ _running(x.T).T
cumsum of whole numbers | rows width | exact | sizes: empty one tails tiles hidden middle tall
    (x > 0).long().cumsum(-1) ~ _running((x > 0).double())
cumprod | rows narrow | rms | values: unit, dtypes: fp32, gate: o, sizes: one tails tiles hidden middle
    (x.abs() + 0.5).cumprod(-1) ~ _multiplied(x.abs() + 0.5)
# In order, and the largest.
sort | rows width | exact | gate: o, values: unit wide inf equal
    x.sort(-1)[0] ~ x.kthvalue(1, -1, keepdim=True)[0].expand_as(x) if x.shape[-1] < 2 else -(-x).sort(-1)[0].flip(-1)
sort, downwards | rows width | exact | gate: o, values: unit wide far
    x.gather(-1, x.sort(-1, descending=True)[1]) ~ x.sort(-1)[0].flip(-1)
argsort of few | rows width | exact | sizes: empty one tails tiles middle tall
    torch.argsort(_rows_of(x), stable=True) ~ _rows_of(x).sort(stable=True)[1]
topk | rows width | exact | gate: o, values: unit wide far inf
    _pair(*(lambda found: (found[0], x.gather(-1, found[1])))(x.topk(min(4, x.shape[-1]), -1)))
    ~ _pair(*[x.sort(-1)[0].flip(-1)[..., :4]] * 2)
bincount and histc | rows width | exact | sizes: tails tiles
    torch.cat((torch.bincount(_rows_of(x), minlength=x.shape[-1]), torch.histc(_rows_of(x).float(), x.shape[-1], 0,
    x.shape[-1] - 1).long())) ~ _hot(_rows_of(x), x.shape[-1]).sum(0).repeat(2)
searchsorted | rows width | exact | sizes: one tails tiles hidden
    torch.searchsorted(torch.arange(0, 2 * x.shape[-1], 2, device=x.device), _rows_of(x))
    ~ (torch.arange(0, 2 * x.shape[-1], 2) < _rows_of(x)[:, None]).double().sum(-1)
isin | rows width | exact
    torch.isin(_rows_of(x), torch.tensor([0, 2, 5], device=x.device))
    ~ (_rows_of(x)[:, None] == torch.tensor([0, 2, 5])).double().sum(-1)
multinomial | rows narrow | exact | sizes: one tails tiles tall, values: unit, gate: o, dtypes: fp32 bf16
    torch.multinomial(torch.where(_grid(x) == 0, x.abs() + 1, x * 0), 1)[:, 0]
    ~ (_grid(x) == 0).double() @ torch.arange(x.shape[-1]).double()
# By index.
gather | rows width | whole | sizes: empty one tails tiles hidden wide
    x.gather(-1, _grid(x)) ~ _taken(x, _grid(x))
gather of one | rows width | exact
    x.gather(-1, _rows_of(x)[:, None]) ~ x[torch.arange(len(x)), _rows_of(x)][:, None]
take_along_dim | rows width | exact
    torch.take_along_dim(x, _rows_of(x)[:, None], -1) ~ x[torch.arange(len(x)), _rows_of(x)][:, None]
scatter | rows width | exact | sizes: empty one tails tiles hidden wide
    torch.zeros_like(x).scatter(-1, _grid(x), x)
    ~ torch.stack([x[row, at.argsort()] for row, at in enumerate(_grid(x))]) if len(x) else x
scatter_add | tokens few | whole | dtypes: fp32 fp16, layouts: plain transposed strided padded offset
    x.new_zeros(37, x.shape[-1]).scatter_add_(0, (_rows_of(x, x[:37]) % 37)[:, None].expand(x.shape), x)
    ~ _hot(_rows_of(x, x[:37]) % 37, 37).T @ x
scatter_add of neighbours | tokens | whole
    x.new_zeros(len(x) // 5 + 1).scatter_add(0, torch.arange(len(x), device=x.device) // 5, x)
    ~ torch.cat((x, x.new_zeros(5 - len(x) % 5))).view(-1, 5).sum(-1)
index_add | tokens few | whole | dtypes: fp32 fp16, layouts: plain transposed strided padded offset
    x.new_zeros(37, x.shape[-1]).index_add_(0, _rows_of(x, x[:37]) % 37, x) ~ _hot(_rows_of(x, x[:37]) % 37, 37).T @ x
index_select | rows width | whole | sizes: one tails tiles hidden middle wide
    x.index_select(0, _places(x)[:x.shape[0]]) ~ _hot(_places(x)[:x.shape[0]], len(x)) @ x
index_select of columns | rows width | exact | sizes: one tails tiles, gate: o
    x.index_select(-1, _rows_of(x.T, x.T)) ~ torch.stack([x.detach()[:, at] for at in _rows_of(x.T, x.T).tolist()], -1)
rows by number | rows width | exact | sizes: one tails tiles hidden middle wide, gate: o
    x[_places(x)[:x.shape[0]]] ~ torch.stack([x.detach()[at] for at in _places(x)[:x.shape[0]].tolist()])
rows that are true | rows width | exact | sizes: square
    x[_mask(x[:, 0])] ~ torch.stack([x[at] for at, kept in enumerate(_mask(x[:, 0])) if kept])
index_put | tokens few | whole | dtypes: fp32 fp16, layouts: plain transposed strided padded offset
    x.new_zeros(37, x.shape[-1]).index_put((_rows_of(x, x[:37]) % 37,), x, accumulate=True)
    ~ _hot(_rows_of(x, x[:37]) % 37, 37).T @ x
rows written by number | rows width | exact
    _written(x) ~ torch.cat((x.new_zeros(3, x.shape[-1]), x)).flip(0)
index_copy | rows width | exact
    torch.zeros_like(x).index_copy(0, torch.arange(len(x) - 1, -1, -1, device=x.device), x) ~ x.flip(0)
nonzero | rows width | exact | sizes: one tails tiles hidden
    _mask(x).nonzero() ~ torch.tensor([(row, column) for row, some in enumerate(_mask(x).tolist()) for column, kept in
    enumerate(some) if kept]).view(-1, 2)
masked_fill | rows width | exact
    x.masked_fill(_mask(x), 7.0) ~ _filled(x, _mask(x), 7.0)
masked_fill of rows | rows width | exact
    x.masked_fill(_mask(x[:, :1]), -7.0) ~ _filled(x, _mask(x[:, :1]).expand(x.shape), -7.0)
masked_fill_ | rows width | exact
    _changed(x, lambda z: z.masked_fill_(_mask(x), 7.0)) ~ _filled(x, _mask(x), 7.0)
masked_select | rows width | exact
    x.masked_select(_mask(x)) ~ x.flatten()[_mask(x).flatten().nonzero()[:, 0]]
masked_scatter | rows width, rows width | exact | values: unit
    x.masked_scatter(_mask(x), y)
    ~ x.flatten().index_put((_mask(x).flatten().nonzero()[:, 0],), y.flatten()[:int(_mask(x).sum())]).view(x.shape)
where | rows width, beside | exact | values: unit wide tiny, gate: o d0
    torch.where(_mask(x), x, y) ~ x * _mask(x) + y * ~_mask(x)
where of a number | rows width | exact | gate: o, values: unit wide, dtypes: fp32
    torch.where(_mask(x), x, -math.inf).clamp_min(-65000) ~ _filled(x, ~_mask(x), -65000.0).clamp_min(-65000)
tril | few rows width | exact | values: unit wide far tiny
    x.tril(1) ~ x * _below(x, 1)
triu | few rows width | exact | values: unit wide far tiny
    x.triu(1) ~ x * ~_below(x)
one_hot | rows width | exact
    functional.one_hot(_rows_of(x), x.shape[-1]) ~ _hot(_rows_of(x), x.shape[-1])
embedding | words few | exact
    _embedded(_places(x), x.detach()) ~ torch.stack([x.detach()[at] for at in _places(x).tolist()])
embedding of wide rows | 4099 1152 | exact | layouts: plain, values: unit, dtypes: fp32 bf16
    _embedded(_places(x)[-23:], x.detach()) ~ torch.stack([x.detach()[at] for at in _places(x)[-23:].tolist()])
embedding of many words | 70001 9 | exact | layouts: plain, values: unit, dtypes: fp32
    _embedded(_places(x)[-23:], x.detach()) ~ torch.stack([x.detach()[at] for at in _places(x)[-23:].tolist()])
embedding's gradient | narrow few | whole | dtypes: fp32
    _embedded(_places(x), x) ~ _hot(_places(x), len(x)) @ x
embedding with padding | narrow few | whole | dtypes: fp32
    _embedded(_places(x), x, padding_idx=1) ~ torch.cat((x[:1], x[1:2].detach(), x[2:]))[_places(x)]
embedding_bag | narrow few | whole | dtypes: fp32
    functional.embedding_bag(_places(x)[:4610].view(-1, 10), x, mode='sum')
    ~ _hot(_places(x)[:4610].view(-1, 10), len(x)).sum(1) @ x
# Parts of tensors, and tensors of parts.
cat | rows width, rows width | exact
    torch.cat((x, y, x[:, :1]), -1) ~ _placed(x.new_zeros(len(x), 2 * x.shape[-1] + 1), x, y, x[:, :1])
cat of rows | rows width, few width | exact | sizes: most
    torch.cat((x, y, x[:0], x)) ~ _placed(x.new_zeros(x.shape[-1], 2 * len(x) + len(y)), x.T, y.T, x.T).T
stack | rows width, rows width | exact | sizes: one tails tiles hidden tall wide middle large
    torch.stack((x, y), 1) ~ _placed(x.new_zeros(len(x), 2 * x.shape[-1]), x, y).view(len(x), 2, -1)
split | rows width | exact | sizes: empty one tails tiles hidden
    torch.cat(x.split(5, -1)[::-1], -1)
    ~ x[:, torch.cat([torch.arange(at, min(at + 5, x.shape[-1])) for at in range(0, x.shape[-1], 5)][::-1])]
chunk | rows width | exact | sizes: tails tiles hidden middle wide
    _turned(x) ~ x[..., [*range((x.shape[-1] + 1) // 2, x.shape[-1]), *range((x.shape[-1] + 1) // 2)]]
rotated halves | few rows width | exact
    torch.cat((-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]), -1) ~ x[..., [*range(x.shape[-1] // 2,
    x.shape[-1]), *range(x.shape[-1] // 2)]] * (1 - 2 * (torch.arange(x.shape[-1]) < (x.shape[-1] + 1) // 2).double())
every second | few rows width | exact
    torch.stack((-x[..., 1::2], x[..., :x.shape[-1] // 2 * 2:2]), -1).flatten(-2) ~ x[..., [at ^ 1 for at in
    range(x.shape[-1] // 2 * 2)]] * (1 - 2 * (torch.arange(x.shape[-1] // 2 * 2) % 2 == 0).double())
roll | rows width | exact
    x.roll((3, 1), (-1, 0))
    ~ x[(torch.arange(len(x)) - 1) % max(1, len(x))][:, (torch.arange(x.shape[-1]) - 3) % x.shape[-1]]
flip | rows width | exact
    x.flip(-1) ~ x[:, torch.arange(x.shape[-1] - 1, -1, -1)]
repeat | rows width | whole | sizes: most
    x.repeat(2, 3) ~ x[torch.arange(2 * len(x)) % max(1, len(x))][:, torch.arange(3 * x.shape[-1]) % x.shape[-1]]
repeat_interleave | few rows width | whole | sizes: most
    x.repeat_interleave(3, 1) ~ x[:, torch.arange(3 * x.shape[1]) // 3]
repeat_interleave by counts | rows width | whole | sizes: empty one tails tiles hidden
    x.repeat_interleave(labels(len(x), 4, x), 0)
    ~ x[torch.tensor([at for at, times in enumerate(labels(len(x), 4, x).tolist()) for _ in range(times)]).long()]
expand | rows 1 width | whole | sizes: most
    x.expand(-1, 3, -1).reshape(-1, x.shape[-1]) ~ x[torch.arange(3 * len(x)) // 3, 0]
pad | rows width | exact
    functional.pad(x, (2, 3, 1, 0), value=5.0) ~ torch.cat((x.new_full((1, x.shape[-1] + 5), 5.0),
    torch.cat((x.new_full((len(x), 2), 5.0), x, x.new_full((len(x), 3), 5.0)), -1)))
pad by less | rows width | exact | sizes: tails tiles hidden middle tall wide
    functional.pad(x, (-1, 0, 0, -1)) ~ x[:-1, 1:]
slices | rows width | exact | gate: o
    torch.cat((x[..., ::2], x[..., 1::2], x[..., -1:], x[..., :-1]), -1)
    ~ x[..., [*range(0, x.shape[-1], 2), *range(1, x.shape[-1], 2), x.shape[-1] - 1, *range(x.shape[-1] - 1)]]
slices' gradients | rows width | whole | sizes: one tails tiles hidden middle tall wide
    x[1:] - x[:-1] ~ x[torch.arange(1, len(x))] - x[torch.arange(len(x) - 1)]
select | rows width | exact
    x[:, -1] * 1 ~ x[:, x.shape[-1] - 1]
unbind | rows narrow | whole | sizes: square
    sum(x.unbind(-1)[::3]) ~ x @ (torch.arange(x.shape[-1]) % 3 == 0).double()
diagonal | rows width | exact | sizes: empty one tails tiles
    x.diagonal() * 1 ~ torch.stack([x[at, at] for at in range(min(x.shape))]) if len(x) else x[:, 0]
squeeze and reshape | few rows width | exact | sizes: filled
    x[:, None].squeeze(1).transpose(1, 2).reshape(-1, x.shape[1]).unsqueeze(-1)
    ~ torch.cat([part.T for part in x.unbind()])[..., None]
heads | few rows width | exact | sizes: filled
    x.transpose(0, 1).contiguous().view(x.shape[1], -1).T.contiguous() ~ torch.cat(x.unbind(), -1).T
permute | few rows width | exact | sizes: empty one tails tiles hidden middle tall
    x.permute(2, 0, 1).contiguous() ~ torch.stack(x.unbind(-1))
long heads | 2 tokens 3 few | exact
    x.transpose(1, 2).contiguous() ~ torch.stack(x.unbind(2), 1)
long heads, cloned | 2 3 tokens few | exact
    x.transpose(1, 2).clone(memory_format=torch.contiguous_format).view(2, len(x[0, 0]), -1)
    ~ torch.cat(x.unbind(1), -1)
channels last | 2 few rows few | exact
    x.contiguous(memory_format=torch.channels_last) * 1 ~ x * 1
unfold | rows width | whole | sizes: square
    x.unfold(-1, 3, 2) * 1 ~ x[:, 2 * torch.arange((x.shape[-1] - 1) // 2)[:, None] + torch.arange(3)]
interpolate | 1 few rows few | rms | sizes: one tails tiles
    functional.interpolate(x, scale_factor=2, mode='nearest') ~ x.repeat_interleave(2, -1).repeat_interleave(2, -2)
# Copies, and from one dtype to another.
clone | rows width | exact
    x.clone() ~ x * 1
contiguous | rows width | exact
    x.contiguous() ~ x * 1
contiguous transposed | rows width | exact
    x.T.contiguous() ~ x.T
copy_ | rows width | exact
    torch.empty_like(x).copy_(x) ~ x * 1
copy_ into a view | rows width | exact
    _into_view(x) ~ torch.cat((torch.zeros_like(x), x), -1)
copy_ of a row | rows width | whole | sizes: filled
    torch.zeros_like(x).copy_(x[:1]) ~ x[:1].expand(x.shape)
copy_ into another dtype | rows width | exact | dtypes: bf16 fp16
    torch.empty(x.shape, dtype=torch.float32, device=x.device).copy_(x) ~ x * 1
to float32 | rows width | exact | dtypes: bf16 fp16
    x.float() ~ x * 1
to bfloat16 | rows width | exact | dtypes: fp32 fp16
    x.to(torch.bfloat16) ~ x * 1
to float16 | rows width | exact | dtypes: fp32 bf16
    x.to(torch.float16) ~ x * 1
to float64 | rows width | exact | gate: o
    x.double() ~ x * 1
to int64 and back | rows width | exact | values: unit wide far whole
    x.long().to(x.dtype) ~ x - x.fmod(1)
to int32 | rows width | exact | values: unit wide far whole
    x.int() ~ x - x.fmod(1)
to bool | rows width | exact | values: unit zeros whole tiny
    x.bool() ~ x != 0
int64 to floats | rows width | exact | values: unit, gate: o, dtypes: fp32, sizes: one tails tiles tall
    torch.cat([torch.arange(x.numel(), device=x.device).to(kind).double() for kind in (x.dtype, torch.float32)])
    ~ torch.cat([torch.arange(float(x.numel())).to(kind).double() for kind in (x.dtype, torch.float32)])
fill_ | rows width | exact | values: unit, gate: o
    torch.full_like(x, 2.5) + torch.empty_like(x).fill_(3.0) + torch.empty_like(x).zero_() + torch.ones_like(x)
    ~ x * 0 + 6.5
arange | rows width | exact | values: unit, sizes: empty one tails tiles tall
    torch.arange(3, 3 + 2 * x.numel(), 2, device=x.device) ~ torch.tensor([3.0 + 2 * at for at in range(x.numel())])
# Products.
linear | rows width, outer width | rms | values: unit tiny
    functional.linear(x, y) ~ x @ y.T
linear of whole numbers | rows width, outer width | whole
    functional.linear(x, y) ~ x @ y.T
linear with bias | rows width, outer width, outer | whole
    functional.linear(x, y, z) ~ x @ y.T + z
linear of samples | few rows width, outer width, outer | whole | sizes: most
    functional.linear(x, y, z) ~ torch.einsum('brw,ow->bro', x, y) + z
linear with one column | rows width, 1 width | rms | values: unit
    functional.linear(x, y) ~ (x * y).sum(-1, keepdim=True)
head | few thin, words thin | whole | layouts: plain transposed
    functional.linear(x, y) ~ x @ y.T
long sums of products | few long, narrow long | rms | values: unit
    functional.linear(x, y) ~ x @ y.T
mm | rows width, width outer | whole
    x @ y ~ torch.einsum('rw,wo->ro', x, y)
mm of transposed | width rows, outer width | whole
    x.T @ y.T ~ torch.einsum('wr,ow->ro', x, y)
product of counts | rows width | whole | values: counts, gate: o, sizes: one tails tiles hidden middle
    x @ x.T ~ torch.einsum('rw,ow->ro', x, x)
addmm | outer, rows width, width outer | rms | values: unit
    torch.addmm(x, y, z, beta=0.5, alpha=2.0) ~ x / 2 + 2 * torch.einsum('rw,wo->ro', y, z)
addmm of a matrix | rows outer, rows width, width outer | whole
    torch.addmm(x, y, z) ~ x + torch.einsum('rw,wo->ro', y, z)
bmm | few rows width, few width outer | rms | values: unit tiny
    torch.bmm(x, y) ~ torch.einsum('brw,bwo->bro', x, y)
bmm of whole numbers | few rows width, few width outer | whole
    torch.bmm(x, y) ~ torch.einsum('brw,bwo->bro', x, y)
scores | many rows few, many rows few | whole | sizes: one tails tiles
    x @ y.transpose(-1, -2) ~ torch.einsum('brw,bow->bro', x, y)
baddbmm | few rows outer, few rows narrow, few narrow outer | rms | values: unit, sizes: one tails tiles hidden middle
    torch.baddbmm(x, y, z, beta=0.5, alpha=2.0) ~ x / 2 + 2 * torch.einsum('brw,bwo->bro', y, z)
matmul of four axes | 2 few rows narrow, few narrow outer | whole | sizes: one tails tiles hidden middle
    x @ y ~ torch.einsum('abrw,bwo->abro', x, y)
matmul of vectors | few rows width, width | rms | values: unit, gate: o d0
    x @ y ~ (x * y).sum(-1)
dot | flat, flat | whole
    torch.dot(x, y) ~ (x * y).sum()
outer | rows, outer | element | values: unit whole, gate: o
    torch.outer(x, y) ~ x[:, None] * y
einsum | few rows narrow, few outer narrow | whole | sizes: one tails tiles middle
    torch.einsum('brn,bon->rbo', x, y) ~ (x @ y.transpose(-1, -2)).transpose(0, 1)
grouped products of rows | rows 64, 2 64 32 | rms | values: unit, layouts: plain, dtypes: bf16, gate: o, sizes: square
    _grouped(x, y) ~ torch.cat((x[:len(x) // 3] @ y[0], x[len(x) // 3:] @ y[1]))
grouped products | tokens 64, 2 64 32 | rms | values: unit, layouts: plain, dtypes: bf16, gate: o
    _grouped(x, y) ~ torch.cat((x[:len(x) // 3] @ y[0], x[len(x) // 3:] @ y[1]))
conv1d | 2 few rows, outer few 3 | whole | sizes: tails tiles middle, layouts: plain transposed
    functional.conv1d(x, y) ~ _unfolded(x, y)
conv1d with padding | 2 few rows, outer few 3, outer | whole | sizes: tails tiles middle, layouts: plain
    functional.conv1d(x, y, z, stride=2, padding=1)
    ~ _unfolded(torch.cat((x[..., :1] * 0, x, x[..., :1] * 0), -1), y, 2) + z[:, None]
conv1d of channels | 2 narrow rows, narrow 1 3 | whole | sizes: tails tiles, layouts: plain
    functional.conv1d(x, y, groups=len(y)) ~ sum((x[..., at:x.shape[-1] - 2 + at] * y[:, :, at] for at in range(3)))
conv2d of patches | 2 3 rows narrow, outer 3 2 2 | whole | sizes: tails tiles, layouts: plain transposed
    functional.conv2d(x, y, stride=2) ~ _patches(x, y)
# Softmax and norms.
softmax | rows width | rms | values: unit wide far low equal, gate: o
    torch.softmax(x, -1) ~ (x - _logsumexp(x)).exp()
softmax's gradient | rows width | rms | values: unit, gate: d0, sizes: square
    torch.softmax(x, -1) ~ (x - _logsumexp(x)).exp()
softmax in float32 | few rows width | rms | values: unit wide far low, dtypes: bf16 fp16, gate: o, limit: fp32
    torch.softmax(x, -1, dtype=torch.float32) ~ (x - _logsumexp(x)).exp()
softmax of columns | few rows width | rms | sizes: square, half: o, values: unit
    torch.softmax(x, 1) ~ (x.transpose(1, 2) - _logsumexp(x.transpose(1, 2))).exp().transpose(1, 2)
softmax of what is masked | few rows width | rms | values: unit, sizes: square, half: o
    torch.softmax(x.masked_fill(~_below(x), -math.inf), -1)
    ~ (lambda e: e / e.sum(-1, keepdim=True))((x - x.amax(-1, keepdim=True)).exp() * _below(x))
log_softmax | rows width | rms | values: unit wide far low, gate: o
    torch.log_softmax(x, -1) ~ _log_softmax(x)
log_softmax's gradient | rows width | rms | values: unit wide, dtypes: fp32
    torch.log_softmax(x, -1) ~ _log_softmax(x)
layer_norm | rows width, width, width | rms | values: unit wide, half: o d0, sizes: square
    functional.layer_norm(x, x.shape[-1:], y, z) ~ _layer_norm(x, y, z)
layer_norm far from zero | rows width, width, width | rms | values: far, dtypes: fp32, sizes: square
    functional.layer_norm(x, x.shape[-1:], y, z) ~ _layer_norm(x, y, z)
attention, narrow values | 2 few rows 64, 2 few rows 64, 2 few rows 40 | rms | values: unit, half: o, sizes: tails tiles
    functional.scaled_dot_product_attention(x, y, z)
    ~ (lambda s: (s - _logsumexp(s)).exp() @ z)(x @ y.transpose(-1, -2) / 8)
group_norm of more | few 12 rows, 12, 12 | rms | values: unit, sizes: tails tiles, dtypes: fp32
    functional.group_norm(x, 3, y, z) ~ _layer_norm(x.reshape(len(x), 3, -1)).view(x.shape) * y[:, None] + z[:, None]
layer_norm without weights | few rows width | rms | values: unit, sizes: square
    functional.layer_norm(x, x.shape[-1:]) ~ _layer_norm(x)
group_norm | few 8 rows | rms | values: unit, sizes: tails tiles middle, dtypes: fp32
    functional.group_norm(x, 2) ~ _layer_norm(x.reshape(len(x), 2, -1)).view(x.shape)
# Losses.
cross_entropy of rows | rows width | rms | values: unit, gate: o, sizes: tails tiles hidden middle tall
    functional.cross_entropy(x, _rows_of(x), reduction='none') ~ _losses(x)
cross_entropy of words | some words | rms | values: unit, gate: o d0
    functional.cross_entropy(x, _rows_of(x), reduction='none') ~ _losses(x)
cross_entropy | rows width | rms | values: unit, gate: d0, sizes: square
    functional.cross_entropy(x, _labelled(x), ignore_index=IGNORED) ~ _smoothed(x, 0.0)
cross_entropy of many | tokens narrow | rms | values: unit, dtypes: fp32
    functional.cross_entropy(x, _labelled(x)) ~ _smoothed(x, 0.0)
summed cross_entropy | rows width | rms | values: unit, sizes: square, dtypes: fp32
    functional.cross_entropy(x, _labelled(x), reduction='sum') ~ _smoothed(x, 0.0) * len(_counted(x)[0])
cross_entropy of positions | few narrow tokens | rms | values: unit, dtypes: fp32, gate: o d0
    functional.cross_entropy(x, _positions(x), reduction='none')
    ~ -(x - _logsumexp(x.transpose(1, 2)).transpose(1, 2)).gather(1, _positions(x)[:, None])[:, 0]
cross_entropy of positions, mean | few width rows | rms | values: unit, sizes: square, dtypes: fp32
    functional.cross_entropy(x, _positions(x))
    ~ -(x - _logsumexp(x.transpose(1, 2)).transpose(1, 2)).gather(1, _positions(x)[:, None]).mean()
cross_entropy, each weighed | rows width | rms | values: unit, sizes: square, half: o
    functional.cross_entropy(x, _rows_of(x), reduction='none') ~ _losses(x)
cross_entropy, smoothed | rows width | rms | values: unit, sizes: square, dtypes: fp32
    functional.cross_entropy(x, _labelled(x), label_smoothing=0.1) ~ _smoothed(x)
cross_entropy with weights | rows width | rms | values: unit, sizes: square, dtypes: fp32
    functional.cross_entropy(x, _labelled(x), _class_weights(x)) ~ _weighted(x)
cross_entropy of shares | rows width, rows width | rms | values: unit, sizes: tails hidden, dtypes: fp32, gate: o d0
    functional.cross_entropy(x, torch.softmax(y.detach(), -1))
    ~ -(_log_softmax(x) * (y.detach() - _logsumexp(y.detach())).exp()).sum(-1).mean() + 0 * y.sum()
nll_loss | rows width | rms | values: unit, sizes: square, dtypes: fp32, gate: d0
    functional.nll_loss(x, _labelled(x)) ~ -(_counted(x)[0] * _counted(x)[1]).sum() / len(_counted(x)[0])
mse_loss | rows width, rows width | rms | values: unit, sizes: filled, dtypes: fp32
    functional.mse_loss(x, y) ~ (x - y).square().sum() / x.numel()
l1 and huber losses | rows width, rows width | rms | values: unit, sizes: filled, dtypes: fp32
    functional.l1_loss(x, y) + functional.smooth_l1_loss(x, y)
    ~ (lambda d: (d + torch.where(d < 1, d * d / 2, d - 0.5)).mean())((x - y).abs())
binary_cross_entropy | rows width, rows width | rms | values: unit wide, sizes: filled, dtypes: fp32, gate: o d0
    functional.binary_cross_entropy_with_logits(x, (y > 0).to(x.dtype))
    ~ (x.clamp(min=0) - x * (y > 0) + (1 + (-x.abs()).exp()).log()).mean() + 0 * y.sum()
kl_div | rows width, rows width | rms | values: unit, sizes: square, dtypes: fp32, gate: d0 d1
    functional.kl_div(x, _positive(y), reduction='batchmean') ~ (_positive(y) * (_positive(y).log() - x)).sum() / len(x)
cosine_similarity | rows width, rows width | rms | values: unit, sizes: square, dtypes: fp32
    functional.cosine_similarity(x, y) ~ (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)) ** 0.5
cross_entropy of GPT-2's words | some 50257 | rms | values: unit, gate: o d0
    functional.cross_entropy(x, _rows_of(x), reduction='none') ~ _losses(x)
"""


def _read(table: str) -> dict[str, Row]:
    rows = {}
    for part in re.split(r"\n(?=\S)", re.sub(r"(?m)^#.*\n", "", table).strip()):
        head, _, body = part.partition("\n")
        name, shapes, unit, *more = head.split(" | ")
        only = dict(option.split(": ") for option in more[0].split(", ")) if more else {}
        if unit == "whole":
            only.setdefault("values", "whole")
        only["sizes"] = _SIZES.get(only.get("sizes", ""), only.get("sizes", _SIZES["most"] + " large"))
        inputs = ", ".join("xyz"[: len(shapes.split(", "))])
        texts = " ".join(body.split()).split(" ~ ")
        rows[name] = (shapes, unit, *(eval(f"lambda {inputs}: {text}") for text in texts), only)  # noqa: S307 (ours)
    return rows


#: Name: shapes, how it is judged, what is done, its formula, and what is for it.
OPERATIONS = _read(_TABLE)
