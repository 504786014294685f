"""The bytes of live tensors as sums of products of a model's sizes: what a trace of one shape says of every shape.

Each size of the traced model is a prime of its own, so that the number of elements of a tensor tells which sizes it is
the product of. At which operation a segment is at its most depends on the sizes; it is looked for at several real
shapes at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from tracing.live import Live  # of the payload, which trace_forms.py puts on the path

__all__ = ["PRIMES", "STATIC", "Unreadable", "product", "symbols"]

#: Batch B, tokens S, half of the hidden size for each head H, intermediate size I, vocabulary V, key-value heads K,
#: heads for each of them G, a quarter of a head's width D, rank of LoRA R. Q is G + 2 (query, key and value in one), T
#: half of S - 1 (labels without the first), U a twelfth of S + 1 (masks of older releases). P positions in a table, W
#: positions of sound and M its bands.
PRIMES = {"B": 17, "S": 347, "H": 61, "I": 71, "V": 1009, "K": 5, "G": 11, "D": 7, "R": 19, "Q": 13, "T": 173, "U": 29}
PRIMES.update({"P": 353, "W": 359, "M": 79})
_BY_PRIME = {value: name for name, value in PRIMES.items()}
#: What is counted elsewhere: it does not depend on what a step computes.
STATIC = ("weights", "adapters", "reference model", "optimizer states", "temporary values of the optimizer")


class Unreadable(Exception):
    """A tensor whose number of elements is no product of the sizes."""


@functools.cache
def product(count: int) -> tuple[float, str]:
    """Return the number as a coefficient and the sorted names of its factors: 2 * 17 * 107 is (2.0, "BS")."""
    if count == 0:
        return 0.0, ""
    names = ""
    rest = count
    for prime, name in _BY_PRIME.items():
        while rest % prime == 0:
            rest //= prime
            names += name
    if rest > 64 and count > 4096:
        raise Unreadable(f"{count} elements: {rest} times {names}")
    factor = rest / 2.0 ** names.count("T") / 12.0 ** names.count("U")
    return factor, "".join(sorted(names.replace("T", "S").replace("U", "S")))


def symbols(shapes: Sequence[Mapping[str, float]]) -> type:
    """Return a stand-in for the trace's ``Live`` that looks for the most at each of these shapes."""

    @functools.cache
    def values(names: str) -> list[float]:
        return [math.prod(shape[name] for name in names) for shape in shapes]

    class Symbols(Live):
        def __init__(self) -> None:
            super().__init__()
            self._live: dict[tuple[str, str], float] = {}
            self._totals = [0.0] * len(shapes)
            self._most: dict[tuple[str, int], tuple[float, str, dict[tuple[str, str], float]]] = {}

        def _note(self, func: Any) -> None:
            copied = None
            for place, total in enumerate(self._totals):
                key = (self.segment, place)
                if total > self._most.get(key, (-1.0,))[0]:
                    copied = copied or dict(self._live)
                    self._most[key] = (total, str(func), copied)

        def _size(self, tensor: torch.Tensor, held: int, label: str) -> tuple[float, str]:
            factor, names = (0.0, "") if label in STATIC else product(held // tensor.element_size())
            return factor * tensor.element_size(), names

        def _count(self, size: tuple[float, str], label: str, sign: int) -> None:
            held, names = sign * size[0], size[1]
            self._live[label, names] = self._live.get((label, names), 0.0) + held
            self._totals = [total + held * one for total, one in zip(self._totals, values(names), strict=True)]

        def clear(self) -> None:
            """Forget the most, not what is live."""
            self._most = {}

        def measured(self) -> Iterator[tuple[str, list[Any]]]:
            """Yield ``segment|shape``, and the operation with the live bytes by label and product."""
            for (segment, place), (_, operation, live) in self._most.items():
                told = {f"{label}|{names}": size for (label, names), size in live.items() if size}
                yield f"{segment}|{place}", [operation, told]

    return Symbols
