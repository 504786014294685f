"""Whose code runs the model: transformers', a serving engine's, or that of a trainer that brings its own models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.vocabulary import ENGINES, OWN_MODELS

INPUTS = ("recipe.framework",)
OUTPUTS = ("model.run_by",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.run_by``, where the framework is known."""
    framework = value("recipe.framework")
    if not isinstance(framework, str):
        return {}
    by = "engine" if framework in ENGINES else "trainer" if framework in OWN_MODELS else "transformers"
    return {"model.run_by": Derived(by, "recipe.framework")}
