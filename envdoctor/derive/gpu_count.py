"""The number of GPUs, from their list."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Records, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("gpu",)
OUTPUTS = ("gpu.count",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``gpu.count`` when the list is complete."""
    gpus = value("gpu")
    if isinstance(gpus, Absent):
        return {"gpu.count": Derived(0, "there is no GPU")}
    if not isinstance(gpus, Records) or gpus.incomplete is not None:
        return {}
    return {"gpu.count": Derived(len(gpus), "the list of GPUs")}
