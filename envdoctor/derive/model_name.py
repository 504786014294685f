"""What to call the model in a sentence: its repository, or its folder's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("model.repo", "model.path", "model.type", "model.family")
OUTPUTS = ("model.name",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.name``; a model of which only the type or the family is known is called by that."""
    repo, path = value("model.repo"), value("model.path")
    if isinstance(repo, str):
        return {"model.name": Derived(repo, "model.repo")}
    if isinstance(path, str):
        return {"model.name": Derived(path.replace("\\", "/").rstrip("/").rpartition("/")[2], "model.path")}
    for key in ("model.type", "model.family"):
        called = value(key)
        if isinstance(called, str):
            return {"model.name": Derived(called, key)}
    return {}
