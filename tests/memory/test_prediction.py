"""The prediction as a whole, from what is known without starting anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.knowledge import load_matrix
from envdoctor.memory import FirstOf, MemorySection, Shipped, Source, Trace, model_of, predict

FIXTURES = Path(__file__).parents[2] / "fixtures" / "memory"
MATRIX = load_matrix()
RECIPE = {"method": "lora", "max_length": 2048, "batch_size": 8, "load_dtype": "bf16", "attn": "sdpa"}
TARGETS = {"chatglm": ("query_key_value",), "llama": ("all-linear",)}


class KeptTrace:
    """The trace of one job, as envdoctor's cache has it after a run that fitted."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.first: Mapping[str, Any] | None = None

    def run(self, jobs: Sequence[Mapping[str, Any]]) -> list[Trace | str]:
        self.first = self.first or jobs[0]
        found = self.source.run(jobs)
        return [
            one._replace(release="") if job == self.first and isinstance(one, Trace) else ""
            for job, one in zip(jobs, found, strict=True)
        ]


def section(name: str, memory_gib: float, *, kept: bool = False, methods: Sequence[str] = (), **recipe: Any) -> Any:
    config = json.loads((FIXTURES / name / "config.json").read_bytes())
    given = {**RECIPE, "lora_targets": TARGETS[config["model_type"]], "optimizer": "adamw_torch", **recipe}
    facts = FactSet(Fact(f"recipe.{key}", value, "test", "given") for key, value in given.items())
    facts.update([Fact("gpu", Records(({"name": "GPU", "memory_gib": memory_gib},)), "test", "given")])
    source: Source = Shipped(MATRIX.table("memory-forms"), "5.23.0")
    found: MemorySection = predict(
        facts,
        model_of(config, MATRIX.rows("native-types"), methods),
        FirstOf(KeptTrace(source), source) if kept else source,
    )
    return found


def test_a_kept_trace_of_one_length_is_offered_a_smaller_batch_too() -> None:
    by_shipped, by_kept = (section("llama-3-8b", 80, kept=kept) for kept in (False, True))
    assert (by_shipped["level"], by_kept["level"]) == ("shipped", "trace")
    for found in (by_shipped, by_kept):
        offered = {name: change["verdict"] for change in found["changes"] for name in change["set"]}
        assert offered["recipe.train_batch_size"] == offered["recipe.max_length"] == "fits"


def test_code_that_ignores_checkpointing_is_predicted_without_it_and_not_offered_it() -> None:
    asked: Any = {"memory_gib": 24, "gradient_checkpointing": True}
    reads = ["ChatGLMModel.forward(self)"]
    heeded, ignored, unread = (
        section("chatglm3-6b", **asked, methods=methods)
        for methods in (reads, [*reads, "ChatGLMPreTrainedModel.gradient_checkpointing_enable(self)"], [])
    )
    without = section("chatglm3-6b", 24, methods=reads, gradient_checkpointing=False)
    assert heeded["allocated_gib"] == unread["allocated_gib"] < without["allocated_gib"] == ignored["allocated_gib"]
    settings = [[name for change in found["changes"] for name in change["set"]] for found in (ignored, without)]
    assert ["recipe.gradient_checkpointing" in names for names in settings] == [False, True]
    size = f"{ignored['allocated_gib']:.1f} GiB"
    assert [any(size in text for text in found["assumed"]) for found in (heeded, ignored, unread)] == [
        *(False, False),
        True,
    ]
    assert any("ignores gradient checkpointing: this is without it" in text for text in ignored["assumed"])
