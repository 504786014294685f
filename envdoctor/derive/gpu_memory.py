"""The memory of GPUs that are known by name only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Records, Unknown, Value
from envdoctor.knowledge.gpu_names import gpu_named
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("gpu",)
OUTPUTS = ("gpu",)

_UNKNOWN = Unknown("not known of this GPU")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``gpu`` with ``memory_gib`` by the advertised size, where nothing better is known. A driver keeps some of it to
    itself: up to a tenth."""
    gpus = value("gpu")
    if not isinstance(gpus, Records) or all(_is_known(gpu.get("memory_gib", _UNKNOWN)) for gpu in gpus):
        return {}
    items: list[Mapping[str, Value]] = []
    for gpu in gpus:
        name = gpu.get("name", _UNKNOWN)
        known = gpu_named(name, matrix) if isinstance(name, str) else None
        if known is not None and known.memory is not None and not _is_known(gpu.get("memory_gib", _UNKNOWN)):
            gpu = {**gpu, "memory_gib": known.memory}
        items.append(gpu)
    return {"gpu": Derived(Records(tuple(items), gpus.incomplete), "the GPUs that were found, table gpus")}


def _is_known(cell: Value) -> bool:
    return not isinstance(cell, Unknown)
