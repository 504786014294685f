"""The memory of GPUs that are known by name only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Range, Records, Unknown, Value
from envdoctor.knowledge.gpu_names import gpu_named
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("gpu",)
OUTPUTS = ("gpu",)

_UNKNOWN = Unknown("not known of this GPU")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``gpu`` with ``memory_gib`` by the advertised size, where nothing better is known. A driver keeps some of it to
    itself: up to a tenth. A product that is sold in several sizes has a range of them."""
    gpus = value("gpu")
    if not isinstance(gpus, Records) or all(_is_known(gpu.get("memory_gib", _UNKNOWN)) for gpu in gpus):
        return {}
    items: list[Mapping[str, Value]] = []
    for gpu in gpus:
        name = gpu.get("name", _UNKNOWN)
        known = gpu_named(name, matrix) if isinstance(name, str) else None
        if known is not None and not _is_known(gpu.get("memory_gib", _UNKNOWN)):
            sizes = (known.memory,) if known.memory is not None else tuple(known.row.get("memory_gb", ()))
            if sizes:
                several = Range(" or ".join(map(str, sizes)), sizes)
                gpu = {**gpu, "memory_gib": sizes[0] if len(sizes) == 1 else several}
        items.append(gpu)
    return {"gpu": Derived(Records(tuple(items), gpus.incomplete), "the GPUs that were found, table gpus")}


def _is_known(cell: Value) -> bool:
    return not isinstance(cell, Unknown)
