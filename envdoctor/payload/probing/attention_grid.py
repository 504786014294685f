"""The cases of the attention probe: what is varied, in an order that never changes, for a case's number is its seed.

A block is appended, never inserted, so that recordings of older releases stay comparable case by case.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    made = [{**_DEFAULTS, **varied} for varied in [*_published(full), *_broadcast(full), *_small(full), *_heads(full)]]
    for number, case in enumerate(made):
        case["number"] = number
    return made


def _published(full: bool) -> Iterator[dict[str, Any]]:
    """134 (314) cases: length × mask, size of values, memory, head dimension, float32 mask, GQA, rectangular."""
    for length in (33, 64, 65, 128, 192, 261, 640, 704) if full else (64, 192):
        for mask in _MASKS:
            for stress in ("unit", "shift-", "shift+") if full else ("unit", "shift-"):
                yield {"L": length, "S": length, "mask": mask, "stress": stress}
    for mask in ("none", "causal", "bool_left"):
        for stress in ("x3", "outlier"):
            yield {"mask": mask, "stress": stress}
    for mask in ("causal", "bool_left"):
        for layout in ("bhsd", "bshd", "packed", "offset"):
            for dout in ("hf", "strided", "expand", "plain"):
                yield {"mask": mask, "layout": layout, "dout": dout}
    for depth in (32, 80, 96, 128, 256):
        for mask in ("causal", "bool_left", "bool_band"):
            for stress in ("unit", "shift-"):
                yield {"D": depth, "mask": mask, "stress": stress}
    for length in (64, 261):
        for mask in ("f32_left", "f32_right", "bool_band"):
            for stress in ("unit", "shift-"):
                yield {"L": length, "S": length, "mask": mask, "stress": stress}
    for mask in ("causal", "bool_left"):
        for gqa in ("repeat", "flag"):
            for stress in ("unit", "shift-"):
                yield {"H": 8, "Hk": 2, "layout": "bshd", "mask": mask, "gqa": gqa, "stress": stress}
    for rows, keys in ((1, 128), (1, 97), (17, 129), (3, 1), (200, 3)):
        for mask in ("none", "bool_right"):
            yield {"L": rows, "S": keys, "mask": mask}


def _broadcast(full: bool) -> Iterator[dict[str, Any]]:
    """k and v as one head, or sample, seen as all, where S % 32 = 1 (pytorch#191937)."""
    sizes = ((97, 64), (65, 256), (192, 64), (33, 512), (129, 512)) if full else ((97, 64), (65, 256))
    for length, depth in sizes:
        for layout in ("expanded", "expanded_batch"):
            for mask in ("causal", "bool_left"):
                yield {"L": length, "S": length, "D": depth, "layout": layout, "mask": mask}


def _small(full: bool) -> Iterator[dict[str, Any]]:
    """One query row with an offset (cudnn-frontend#1072), two rows (#160), and one key head shared by all."""
    for rows, keys in ((1, 128), (2, 2), (1, 192)) if full else ((1, 128), (2, 2)):
        for mask in ("none", "bool_right"):
            # Many heads, because the offset cancels in dq but for its rounding along one direction: the ratio of two
            # such errors over four rows alone reached 3.7 on healthy kernels.
            yield {"B": 4, "H": 16, "Hk": 16, "L": rows, "S": keys, "mask": mask, "stress": "shift-"}
    for gqa in ("repeat", "flag"):
        yield {"H": 4, "Hk": 1, "L": 97, "S": 97, "layout": "bshd", "mask": "bool_left", "gqa": gqa, "stress": "shift-"}
        if full:
            yield {"H": 8, "Hk": 2, "L": 1, "S": 261, "layout": "bshd", "mask": "none", "gqa": gqa}
            yield {"H": 8, "Hk": 2, "D": 512, "L": 65, "S": 65, "mask": "causal", "gqa": gqa}


def _heads(full: bool) -> Iterator[dict[str, Any]]:
    """More head dimensions, and 256 with packed memory and two samples (TransformerEngine#3216)."""
    for mask in ("causal", "bool_left"):
        yield {"D": 256, "layout": "packed", "mask": mask, "stress": "shift-"}
    if full:
        for depth in (16, 40, 72, 112, 160, 192, 512):
            for mask in ("causal", "bool_left"):
                for stress in ("unit", "shift-"):
                    yield {"D": depth, "mask": mask, "stress": stress}
        for length in (65, 97, 261):
            for layout in ("offset", "bshd", "packed"):
                yield {"L": length, "S": length, "D": 128, "layout": layout, "mask": "bool_left", "stress": "outlier"}
