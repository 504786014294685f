"""Predictions by a trace that is made up: what a recipe asks to be traced, and what is made of the bytes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from observing import shipped
from traced_jobs import GIB, MadeUp

from envdoctor.facts import ABSENT, Fact, FactSet, Records, Value
from envdoctor.peak import Trace, model_of, predict

BASE = {"method": "lora", "max_length": 2048, "batch_size": 2, "optimizer": "adamw_torch"}
KNOWN = shipped().table("memory-frameworks")
MODEL = model_of({"model_type": "llama", "hidden_size": 4096}, [])


@pytest.fixture
def trace_of() -> Callable[..., Trace]:
    """A trace of one point: GiB by what they hold, and what else there is of the point."""

    def make(terms: Mapping[str, float], trained: float = 8.0, residuals: Any = None, **point: Any) -> Trace:
        size = sum(terms.values()) * GIB
        segment = [size, "op", {name: gib * GIB for name, gib in terms.items()}]
        whole = {"layers": 1, "tokens": 2048, "trained": trained * GIB, "held_bytes": size, **point}
        sizes = {"depth": 1, "parameters": 8 * GIB, "weight_bytes": 16 * GIB, "layer_parameters": 0.2 * GIB}
        return Trace(sizes, ({**whole, "segments": {"forward/last": segment}},), residuals=residuals or {})

    return make


@pytest.fixture
def predicted(trace_of: Callable[..., Trace]) -> Callable[..., dict[str, Any]]:
    """The section for a recipe's facts ("unknown": not that one), with the ``jobs`` that were traced, and the first as
    ``job``. ``keys`` are those of the recipe's file, ``given`` what was typed, ``release`` that of the framework,
    ``config`` more of the model's config.json."""

    def do(
        trace: Trace | None = None,
        gpu: Value | None = None,
        keys: Any = None,
        given: Any = None,
        release: str | None = None,
        config: Any = None,
        **recipe: Any,
    ) -> dict[str, Any]:
        source = MadeUp(trace or trace_of({"weights": 1.0}))
        values = {**BASE, "gradient_checkpointing": True, **recipe}
        facts = FactSet(Fact(f"recipe.{name}", value, "", "recipe") for name, value in values.items())
        facts = FactSet(fact for fact in facts if fact.value != "unknown")
        facts.update(Fact(f"recipe.{name}", value, "--set", "given") for name, value in (given or {}).items())
        states = {True: "own", False: "unused"}  # the value of a key that its framework does not have is not shown
        listed = Records(
            tuple({"key": key, "value": word, "state": states[word is ABSENT]} for key, word in (keys or {}).items())
        )
        others = {"recipe_key": listed, "model.dtype": "bfloat16", "pkg.transformers": "4.57.6"}
        if release is not None:
            others[f"pkg.{recipe['framework']}"] = release
        if gpu is not None:
            others["gpu"] = gpu
        facts.update(Fact(key, value, "", "given") for key, value in others.items())
        return {
            **predict(facts, MODEL._replace(config={**MODEL.config, **(config or {})}), source, KNOWN),
            "job": source.jobs[0],
            "jobs": source.jobs,
        }

    return do
