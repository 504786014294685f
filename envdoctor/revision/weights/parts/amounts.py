"""Counting what a set of weights holds: tensors, parameters and bytes, by dtype and by part of the model."""

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.revision.weights.parts.layouts import Spec
from envdoctor.revision.weights.parts.name_patterns import module_of, pattern_of, size_of


class Amount(NamedTuple):
    """How many tensors, with how many parameters (elements) and bytes."""

    tensors: int
    parameters: int
    bytes: int


def amounts_of(tensors: Mapping[str, Spec]) -> dict[str, dict[str, Amount]]:
    """``dtype`` and ``module``: what the tensors of one snapshot amount to by dtype, and by module pattern
    (``model.layers.{i}.mlp``), the largest first."""
    counted: dict[str, dict[str, list[int]]] = {"dtype": {}, "module": {}}
    sizes: dict[Spec, tuple[int, int]] = {}
    for name, spec in tensors.items():
        size = sizes.get(spec)
        if size is None:
            size = sizes[spec] = size_of(spec)
        for by, key in (("dtype", spec.dtype), ("module", module_of(pattern_of(name)[0]))):
            amount = counted[by].setdefault(key, [0, 0, 0])
            amount[0] += 1
            amount[1] += size[0]
            amount[2] += size[1]
    return {
        by: {key: Amount(*amount) for key, amount in sorted(table.items(), key=lambda item: -item[1][2])}
        for by, table in counted.items()
    }


def parameters_in(amounts: Mapping[str, Mapping[str, Amount]]) -> int:
    """All parameters."""
    return sum(amount.parameters for amount in amounts["dtype"].values())


def gigabytes(size: int) -> str:
    """Bytes as people write them: ``12.5 GB``, ``4.2 MB`` (decimal, as the Hub shows sizes)."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
