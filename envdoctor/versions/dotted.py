"""Dotted integers: versions of CUDA, drivers, C libraries and compute capabilities (12.10 is more than 12.9)."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

_COMPARISONS = {"==": eq, "!=": ne, ">=": ge, "<=": le, ">": gt, "<": lt}
_DOTTED = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}\Z")


@lru_cache(maxsize=4096)  # the same few versions and bounds are compared thousands of times
def dotted(text: str) -> tuple[int, ...] | None:
    """``"12.4"`` as integers, or None when it is not dotted integers. Trailing zeros do not count (12.0 is 12)."""
    if not _DOTTED.match(text):
        return None
    parts = [int(part) for part in text.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def rank(text: str) -> tuple[int, ...]:
    """The numbers, to be compared; none for what is not dotted integers."""
    return dotted(text) or ()


def compare(left: Any, operator: str, right: Any) -> bool:
    """``left operator right`` for one of the operators ``== != >= <= > <``."""
    return bool(_COMPARISONS[operator](left, right))


def same_start(one: str, other: str, parts: int) -> bool:
    """Whether the first ``parts`` numbers of two versions are the same; a missing one is 0, a local tag is left out."""

    def start(text: str) -> list[str]:
        return (text.partition("+")[0].split(".") + ["0"] * parts)[:parts]

    return start(one) == start(other)
