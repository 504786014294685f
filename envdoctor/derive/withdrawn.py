"""Installed releases that their makers withdrew, by the table withdrawn-releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("pkg.*",)
OUTPUTS = ("withdrawn",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``withdrawn``; the list is open while the version of a package of the table is not known."""
    table: dict[str, dict[str, Mapping[str, Value]]] = {}
    for row in matrix.rows("withdrawn-releases", "release"):
        table.setdefault(row["package"], {})[row["version"]] = row
    items: list[Mapping[str, Value]] = []
    incomplete: str | None = None
    for package, releases in table.items():
        installed = value(f"pkg.{package}")
        if isinstance(installed, Unknown):
            incomplete = incomplete or f"the version of {package} is not known"
        elif not isinstance(installed, Absent):
            gone = releases.get(str(installed).partition("+")[0])
            if gone is not None:
                told = {column: gone[column] for column in ("harm", "reason", "instead")}
                items.append({"package": package, "version": installed, **told})
    return {"withdrawn": Derived(Records(tuple(items), incomplete), "the table withdrawn-releases")}
