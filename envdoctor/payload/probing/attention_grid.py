"""The cases of the attention probe: what is varied, in an order that never changes, for a case's number is its seed.

A block is appended, never inserted, so that recordings of older releases stay comparable case by case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

_DEFAULTS = {
    "B": 2,
    "H": 2,
    "Hk": 2,
    "L": 192,
    "S": 192,
    "D": 64,
    "mask": "none",
    "layout": "bhsd",
    "dout": "hf",
    "stress": "unit",
    "gqa": "",
}

_MASKS = ("none", "causal", "alltrue", "bool_left", "inf_left", "min_left", "bool_right", "bool_key", "bool_left_dead")


def cases(suite: str) -> list[dict[str, Any]]:
    """All cases of the suite ``quick`` or ``full``, with their ``number``."""
    full = suite != "quick"
    blocks = (_published, _broadcast, _small, _heads, _batches)
    return numbered(_DEFAULTS, [case for block in blocks for case in block(full)])


def numbered(usual: dict[str, Any], varied: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is ``usual`` with what is varied, numbered in this order; as many keys as rows unless said otherwise."""
    return [{**usual, "S": case.get("L", usual["L"]), **case, "number": number} for number, case in enumerate(varied)]


def vary(**axes: Any) -> Iterator[dict[str, Any]]:
    """Every combination of the values of the axes, which vary from the last to the first; what is no tuple stays."""
    values = (axis if isinstance(axis, tuple) else (axis,) for axis in axes.values())
    for chosen in product(*values):
        yield dict(zip(axes, chosen))


def _published(full: bool) -> Iterator[dict[str, Any]]:
    """134 (314) cases: length × mask, size of values, memory, head dimension, float32 mask, GQA, rectangular."""
    shifts, padded = ("unit", "shift-"), ("causal", "bool_left")
    lengths = (33, 64, 65, 128, 192, 261, 640, 704) if full else (64, 192)
    yield from vary(L=lengths, mask=_MASKS, stress=(*shifts, "shift+") if full else shifts)
    yield from vary(mask=("none", *padded), stress=("x3", "outlier"))
    yield from vary(mask=padded, layout=("bhsd", "bshd", "packed", "offset"), dout=("hf", "strided", "expand", "plain"))
    yield from vary(D=(32, 80, 96, 128, 256), mask=(*padded, "bool_band"), stress=shifts)
    yield from vary(L=(64, 261), mask=("f32_left", "f32_right", "bool_band"), stress=shifts)
    yield from vary(H=8, Hk=2, layout="bshd", mask=padded, gqa=("repeat", "flag"), stress=shifts)
    for rows, keys in ((1, 128), (1, 97), (17, 129), (3, 1), (200, 3)):
        yield from vary(L=rows, S=keys, mask=("none", "bool_right"))


def _broadcast(full: bool) -> Iterator[dict[str, Any]]:
    """k and v as one head, or sample, seen as all, where S % 32 = 1 (pytorch#191937)."""
    sizes = ((97, 64), (65, 256), (192, 64), (33, 512), (129, 512)) if full else ((97, 64), (65, 256))
    for length, depth in sizes:
        yield from vary(L=length, D=depth, layout=("expanded", "expanded_batch"), mask=("causal", "bool_left"))


def _small(full: bool) -> Iterator[dict[str, Any]]:
    """One query row with an offset (cudnn-frontend#1072), two rows (#160), and one key head shared by all."""
    for rows, keys in ((1, 128), (2, 2), (1, 192)) if full else ((1, 128), (2, 2)):
        # Many heads, because the offset cancels in dq but for its rounding along one direction: the ratio of two
        # such errors over four rows alone reached 3.7 on healthy kernels.
        yield from vary(B=4, H=16, Hk=16, L=rows, S=keys, mask=("none", "bool_right"), stress="shift-")
    for gqa in ("repeat", "flag"):
        yield from vary(H=4, Hk=1, L=97, layout="bshd", mask="bool_left", gqa=gqa, stress="shift-")
        if full:
            yield from vary(H=8, Hk=2, L=1, S=261, layout="bshd", mask="none", gqa=gqa)
            yield from vary(H=8, Hk=2, D=512, L=65, mask="causal", gqa=gqa)


def _heads(full: bool) -> Iterator[dict[str, Any]]:
    """More head dimensions, and 256 with packed memory and two samples (TransformerEngine#3216)."""
    yield from vary(D=256, layout="packed", mask=("causal", "bool_left"), stress="shift-")
    if full:
        depths = (16, 40, 72, 112, 160, 192, 512)
        yield from vary(D=depths, mask=("causal", "bool_left"), stress=("unit", "shift-"))
        layouts = ("offset", "bshd", "packed")
        yield from vary(L=(65, 97, 261), D=128, layout=layouts, mask="bool_left", stress="outlier")


def _batches(full: bool) -> Iterator[dict[str, Any]]:
    """As many samples and heads as training has, and more keys than a tile or a block of them."""
    yield from vary(B=8, H=4, Hk=4, L=64, mask=("causal", "bool_left") if full else "bool_left", layout="bshd")
    yield from vary(B=9, H=8, Hk=2, L=65, mask="bool_left", layout="bshd", gqa="flag")
    yield from vary(B=1, L=1100, mask=("causal", "bool_band") if full else "causal")
    yield from vary(B=1, L=16, S=2100, mask=("none", "bool_key") if full else "none")
