"""Whether the compiled packages of the environment are for its Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted

INPUTS = ("environment.packages_python", "python.version", "python.implementation")
OUTPUTS = ("environment.packages_python_ok",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``environment.packages_python_ok``; true when none is for one Python only."""
    packages, version, implementation = (value(key) for key in INPUTS)
    if isinstance(packages, Absent):
        return {OUTPUTS[0]: Derived(True, "no package is compiled for one Python")}
    for one in (packages, version, implementation):
        if isinstance(one, Unknown):
            return {OUTPUTS[0]: Derived(one, "")}
    mine, theirs = dotted(".".join(str(version).split(".")[:2])), dotted(str(packages))
    if implementation != "cpython" or mine is None or theirs is None:
        return {OUTPUTS[0]: Derived(Unknown("only releases of CPython are compared"), "")}
    return {OUTPUTS[0]: Derived(mine == theirs[:2], f"compiled packages for {packages}, Python {version}")}
