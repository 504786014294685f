"""Whether the serving engine or the trainer of the recipe has something of its own for the model's family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("recipe.framework", "model.family", "pkg.vllm", "pkg.sglang", "pkg.llamafactory", "pkg.unsloth")
OUTPUTS = ("model.known_to_framework",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.known_to_framework``; nothing where the framework, its release or the family is not known."""
    framework, family = value("recipe.framework"), value("model.family")
    if not isinstance(framework, str) or not isinstance(family, str) or f"pkg.{framework}" not in INPUTS:
        return {}
    installed = value(f"pkg.{framework}")
    if not isinstance(installed, str):
        return {}
    from envdoctor.knowledge.framework_models import knows

    return {OUTPUTS[0]: Derived(knows(matrix, framework, family, installed), "table framework-models")}
