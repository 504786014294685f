"""Which installer the environment's commands are written for: conda, uv or pip."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Records, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("dist",)
OUTPUTS = ("environment.installer",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """The INSTALLER that most distributions name."""
    dists = value("dist")
    if not isinstance(dists, Records):
        return {}
    counts: dict[str, int] = {}
    for item in dists:
        installer = item.get("installer")
        if isinstance(installer, str) and installer:
            counts[installer] = counts.get(installer, 0) + 1
    if not counts:
        return {}
    most = max(sorted(counts), key=lambda name: counts[name])
    return {"environment.installer": Derived(most, f"INSTALLER of {counts[most]} of {len(dists)} distributions")}
