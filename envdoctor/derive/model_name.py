"""What to call the model in a sentence: its repository, or its folder's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("model.repo", "model.path", "model.type")
OUTPUTS = ("model.name",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.name``; a model of which only the type is known is called by its type."""
    repo, path, kind = value("model.repo"), value("model.path"), value("model.type")
    if isinstance(repo, str):
        return {"model.name": Derived(repo, "model.repo")}
    if isinstance(path, str):
        return {"model.name": Derived(path.replace("\\", "/").rstrip("/").rpartition("/")[2], "model.path")}
    if isinstance(kind, str):
        return {"model.name": Derived(kind, "model.type")}
    return {}
