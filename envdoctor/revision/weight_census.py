"""Counting what a set of weights holds: tensors, parameters and bytes, by dtype and by part of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.revision.tensor_groups import module_of, pattern_of, size_of
from envdoctor.revision.weight_layouts import Spec

__all__ = ["Amount", "Census", "gigabytes", "take_census"]


class Amount(NamedTuple):
    """How many tensors, with how many parameters (elements) and bytes."""

    tensors: int
    parameters: int
    bytes: int


class Census(NamedTuple):
    """Amounts in total, by dtype, and by module pattern (``model.layers.{i}.mlp``), the largest first."""

    total: Amount
    by_dtype: tuple[tuple[str, Amount], ...]
    by_module: tuple[tuple[str, Amount], ...]


def take_census(tensors: Mapping[str, Spec]) -> Census:
    """Count the tensors of one snapshot."""
    dtypes: dict[str, list[int]] = {}
    modules: dict[str, list[int]] = {}
    sizes: dict[Spec, tuple[int, int]] = {}
    for name, spec in tensors.items():
        size = sizes.get(spec)
        if size is None:
            size = sizes[spec] = size_of(spec)
        for table, key in ((dtypes, spec.dtype), (modules, module_of(pattern_of(name)[0]))):
            amount = table.setdefault(key, [0, 0, 0])
            amount[0] += 1
            amount[1] += size[0]
            amount[2] += size[1]
    total = [sum(column) for column in zip(*dtypes.values(), strict=False)] or [0, 0, 0]
    return Census(Amount(*total), _ranked(dtypes), _ranked(modules))


def _ranked(table: Mapping[str, list[int]]) -> tuple[tuple[str, Amount], ...]:
    return tuple(sorted(((key, Amount(*amount)) for key, amount in table.items()), key=lambda item: -item[1].bytes))


def gigabytes(size: int) -> str:
    """Bytes as people write them: ``12.5 GB``, ``4.2 MB`` (decimal, as the Hub shows sizes)."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
