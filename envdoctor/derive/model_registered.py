"""From which release on transformers has a class for the model's type, and whether the installed release has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("model.type", "pkg.transformers")
OUTPUTS = ("model.registered_since", "model.registered")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.registered_since``, and ``model.registered`` where the installed files do not tell; nothing about a type
    that the table does not list."""
    kind, installed = value("model.type"), value("pkg.transformers")
    if not isinstance(kind, str):
        return {}
    from envdoctor.knowledge.model_types import ModelTypes

    types, origin = ModelTypes(matrix), "table transformers-model-types"
    if types.is_never(kind):
        return {"model.registered_since": Derived(ABSENT, origin)}
    since = types.since(kind)
    if since is None:
        return {}
    found = {"model.registered_since": Derived(since, origin)}
    if isinstance(installed, str):
        found["model.registered"] = Derived(types.has(kind, installed), origin)
    return found
