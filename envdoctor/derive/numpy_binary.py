"""Installed packages whose compiled files are for NumPy 1 only, by the table numpy-2-builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.pep440 import NotASpecifier, satisfies

INPUTS = ("pkg.*", "dist")
OUTPUTS = ("numpy_binary",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``numpy_binary``; conda's packages are left out, which are built anew for NumPy 2 under the same version."""
    items: list[Mapping[str, Value]] = []
    incomplete: str | None = None
    for row in matrix.rows("numpy-2-builds", "package"):
        name, first = row["name"], row["first"]
        installed = value(f"pkg.{name}")
        if isinstance(installed, Absent):
            continue
        try:
            older = not isinstance(installed, Unknown) and satisfies(str(installed), f"<{first}")
        except NotASpecifier:
            installed, older = Unknown("it is no version"), False
        if isinstance(installed, Unknown):
            incomplete = incomplete or f"the version of {name} is not known"
        elif older and not _of_conda(name, value("dist")):
            items.append({"package": name, "version": installed, "first": first})
    return {"numpy_binary": Derived(Records(tuple(items), incomplete), "the table numpy-2-builds")}


def _of_conda(name: str, dists: Value) -> bool:
    return isinstance(dists, Records) and any(
        item.get("name") == name and "conda" in (item.get("kind"), item.get("installer")) for item in dists
    )
