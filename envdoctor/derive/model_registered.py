"""From which release on transformers has a class for the model's type, and whether the installed release has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.pep440 import release_of

INPUTS = ("model.type", "pkg.transformers")
OUTPUTS = ("model.registered_since", "model.registered")

_TABLE = "transformers-model-types"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.registered_since`` and ``model.registered``; nothing about a type that the table does not list."""
    kind, installed = value("model.type"), value("pkg.transformers")
    if not isinstance(kind, str):
        return {}
    origin = "table transformers-model-types"
    if kind in matrix.part(_TABLE, "never").get("names", ()):
        return {"model.registered_since": Derived(ABSENT, origin)}
    since = _naming(kind, "since", matrix)
    if since is None:
        return {}
    found = {"model.registered_since": Derived(since, origin)}
    # A development version has what its release has.
    release, first = release_of(installed) if isinstance(installed, str) else None, release_of(since)
    if release is not None and first is not None:
        found["model.registered"] = Derived(_registered(release, first, _naming(kind, "until", matrix), matrix), origin)
    return found


def _naming(kind: str, part: str, matrix: Matrix) -> str | None:
    return next((str(release) for release, kinds in matrix.part(_TABLE, part).items() if kind in kinds), None)


def _registered(release: tuple[int, ...], first: tuple[int, ...], until: str | None, matrix: Matrix) -> Value:
    last = release_of(until) if until is not None else None
    if last is not None and release >= last:
        return False
    if release >= first:
        return True
    oldest = min(filter(None, map(release_of, matrix.part(_TABLE, "since"))))
    # The oldest release of the table stands for all before it too.
    return Unknown("the table begins with a later release") if first == oldest else False
