"""Whose code runs the model."""

from __future__ import annotations

import pytest
from observing import shipped

from envdoctor.derive import derive
from envdoctor.facts import Fact, FactSet, Unknown, parse_value


@pytest.mark.parametrize(
    ("framework", "by"),
    [("vllm", "engine"), ("torchtune", "trainer"), ("mlx-lm", "trainer"), ("nemo", "trainer"), ("trl", "transformers")],
)
def test_whose_code_runs_the_model(framework, by):
    matrix = shipped()
    spec = matrix.registry.find("recipe.framework")
    facts = FactSet([Fact("recipe.framework", parse_value(spec, framework), "test", "given")])
    derive(facts, matrix)
    assert facts.value("model.run_by") == by


def test_nobody_knows_without_a_framework():
    facts = FactSet([])
    derive(facts, shipped())
    assert isinstance(facts.value("model.run_by"), Unknown)
