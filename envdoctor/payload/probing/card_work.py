"""What every card is given to compute and to move, what must come out, and how long it took."""

from __future__ import annotations

import ctypes
import hashlib
import time
from functools import lru_cache
from typing import Any, Callable, Dict, Tuple  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from .kit import forward_backward, rms

_UNIT = torch.finfo(torch.bfloat16).eps
#: Rows of the matrices. 4,096 make 1,024 tiles of 128 x 128, eight for each multiprocessor of the largest cards, and
#: more than their caches hold; 8,192 make 4,096 and keep a card busy while the others get their work.
ROWS, SOAK_ROWS = {"cuda": 4096, "cpu": 64}, {"cuda": 8192, "cpu": 64}
#: Columns that a vector of signs sums at once, a tile's: one wrong tile is not lost among the rounding of a whole row.
_TILE = 128
#: Heads of attention and their length: every multiprocessor gets several blocks of 128 rows. Sizes that models have.
_HEADS, LENGTH, HEAD_SIZES = {"cuda": 32, "cpu": 4}, {"cuda": 2048, "cpu": 64}, (64, 128, 256)
KERNELS = ("flash", "cudnn", "efficient")
#: Bytes that are moved to measure how fast, at most, and of the free memory; how often, of which the best counts.
_MOVED, _MOVED_SHARE, _TIMES = {"cuda": 1 << 28, "cpu": 1 << 16}, 8, 3
#: What is computed, of the two bf16 matrices.
WORK: Dict[str, Callable[[Any, Any], Any]] = {  # noqa: UP006
    "matmul": lambda a, b: a @ b,
    "softmax": lambda a, b: torch.softmax(a, -1),
    "layer norm": lambda a, b: torch.nn.functional.layer_norm(a, a.shape[-1:]),
}


def compute(name: str, place: Any, number: int) -> Any:
    """Return the result on a device, on the CPU; ``number`` is its place among them."""
    a, b = drawn(ROWS[place.type])
    return WORK[name](a.to(place), b.to(place)).cpu()


def multiplied(a: Any, b: Any, number: int) -> Any:
    """Return the product on the device of both, which is the one of this number."""
    return a @ b


def attended(size: int, place: Any, number: int) -> Any:
    """Return output and gradients of causal attention on the device, on the CPU: all heads are the same one."""
    heads = (1, _HEADS[place.type], LENGTH[place.type], size)
    q, k, v, upstream = (part.to(place).expand(heads).contiguous() for part in _head(LENGTH[place.type], size))
    results = forward_backward(_causal, (q, k, v), lambda shape: upstream)
    return torch.cat([results[name] for name in ("o", "d0", "d1", "d2")]).cpu()


def copied(value: Any, source: Any, target: Any) -> Any:
    """Return what arrives on ``target`` of a value on ``source``, as soon as both are synchronised."""
    return value.to(target, non_blocking=True) if source != target else value.clone()


def stored(pattern: Any, number: int) -> Any:
    """Return the pattern in memory of its own on the device of this number."""
    return pattern.clone()


def direct(source: int, target: int) -> bool:
    """Return whether one of these two GPUs reads the memory of the other without the host."""
    return bool(torch.cuda.can_device_access_peer(source, target))


def speed(what: str, places: list[Any], number: int, other: int) -> float:
    """Return the speed of the device of this number, in the unit of ``SPEEDS``; to the ``other`` for a pair."""
    place, kind = places[number], places[number].type
    if what == "product":
        a, b = (part.to(place) for part in drawn(SOAK_ROWS[kind]))
        return float(2 * a.shape[0] ** 3) / _seconds(lambda: a @ b, places) / 1e12
    free = torch.cuda.mem_get_info(place)[0] if kind == "cuda" else _MOVED[kind] * _MOVED_SHARE
    size = min(_MOVED[kind], free // _MOVED_SHARE)
    there = torch.zeros(size, dtype=torch.uint8, device=place)
    if what in ("memory", "pair"):
        end = torch.empty_like(there, device=places[other])
    else:
        end = torch.zeros(size, dtype=torch.uint8, pin_memory=kind == "cuda")
    begin, end = (end, there) if what == "sent" else (there, end)
    moved = 2 * size if what == "memory" else size  # read and written in the same place
    return float(moved) / _seconds(lambda: end.copy_(begin, non_blocking=True), places) / 1e9


def _seconds(work: Callable[[], Any], places: list[Any]) -> float:
    """Return the least seconds that the work took; the first run is a start."""
    durations = []
    for _ in range(_TIMES + 1):
        wait(places)
        started = time.perf_counter()
        work()
        wait(places)
        durations.append(time.perf_counter() - started)
    return min(durations[1:])


@lru_cache(maxsize=2)
def drawn(size: int) -> Tuple[Any, Any]:  # noqa: UP006
    """Return two bf16 matrices, the same ones everywhere."""
    generator = torch.Generator().manual_seed(11)
    a, b = (torch.randn(size, size, generator=generator).to(torch.bfloat16) for _ in range(2))
    return a, b


@lru_cache(maxsize=1)
def _head(length: int, size: int) -> Any:
    """Return a query, key, value and gradient of one head, in bf16."""
    generator = torch.Generator().manual_seed(13)
    return torch.randn(4, length, size, generator=generator).to(torch.bfloat16)


def _causal(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def digest(result: Any) -> str:
    """Return a digest that two results share only if they agree to the bit."""
    result = result.contiguous()
    data = ctypes.string_at(result.data_ptr(), result.numel() * result.element_size())
    return hashlib.sha256(data).hexdigest()[:16]


def seen(result: Any, name: str) -> Any:
    """Return the part of a result that is compared with float64, row by row, on the CPU: all of it; of a product what
    the columns of each tile make of a vector of signs, a number for each of its rows."""
    if name != "matmul":
        return result.double()
    tile = min(_TILE, result.shape[-1])
    signs = _signs(result.shape[-1])
    sums = [(part.double() * signs).unflatten(-1, (-1, tile)).sum(-1, keepdim=True) for part in result.split(512)]
    return torch.cat(sums)


def _signs(size: int) -> Any:
    return torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(12)).double() * 2 - 1


@lru_cache(maxsize=1)
def truth(name: str, size: int) -> Any:
    """Return what :func:`seen` must give, in float64."""
    a, b = (x.double() for x in drawn(size))
    return (a @ seen(b, name)[..., 0])[..., None] if name == "matmul" else WORK[name](a, b)


def error(name: str, result: Any, truth: Any) -> float:
    """Return the error of the worst row, in units of the dtype's epsilon: 2 at most where only rounding is at work."""
    rows = (seen(result, name) - truth).square().mean(-1).sqrt()
    return float(rows.max() / rms(truth) / _UNIT)


@lru_cache(maxsize=1)
def attention_truth(length: int, size: int) -> Any:
    """Return what :func:`attended` must give of each head, in float64."""
    q, k, v, upstream = (part[None, None] for part in _head(length, size).double())
    results = forward_backward(_causal, (q, k, v), lambda shape: upstream)
    return torch.cat([results[name] for name in ("o", "d0", "d1", "d2")])


def attention_card(result: Any, truth: Any) -> dict[str, Any]:
    """Return the rest of a ``GpuCard``: heads must be the same, and right in every block of rows."""
    worst, block = 0.0, min(64, truth.shape[2])
    for heads, (exact,) in zip(result, truth):
        unit = exact.unflatten(0, (-1, block)).square().mean((-1, -2))
        for head in heads:
            error = (head.double() - exact).unflatten(0, (-1, block)).square().mean((-1, -2))
            worst = max(worst, float((error / unit).sqrt().nan_to_num(float("inf")).max() / _UNIT))
    odd = [number for number, head in enumerate(result[0]) if not torch.equal(head, result[0, 0])]
    words = f"head {odd[0]} of {result.shape[1]} equal ones comes out differently" if odd else ""
    return {"alike": digest(result[0]), "error": worst, "words": words}


def wait(places: list[Any]) -> None:
    """Wait until all that was begun on these devices is done."""
    for place in places if places[0].type == "cuda" else ():
        torch.cuda.synchronize(place)
