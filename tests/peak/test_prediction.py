"""The prediction as a whole, from what is known without starting anything."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from observing import shipped
from traced_jobs import GIB, config

from envdoctor.facts import Fact, FactSet, Records, Unknown
from envdoctor.peak import Residual, Shipped, Trace, TraceSource, first_of, model_of, predict, rehearsed

MATRIX = shipped()
KNOWN = MATRIX.table("memory-frameworks")
RECIPE = {"method": "lora", "max_length": 2048, "batch_size": 8, "load_dtype": "bf16", "attn": "sdpa"}
TARGETS = {"chatglm": ("query_key_value",), "llama": ("all-linear",)}


class KeptTrace:
    """The trace of one job, as envdoctor's cache has it after a run that fitted."""

    def __init__(self, source: TraceSource) -> None:
        self.source = source
        self.first: Mapping[str, Any] | None = None

    def __call__(self, jobs: Sequence[Mapping[str, Any]]) -> list[Trace | str]:
        self.first = self.first or jobs[0]
        pairs = zip(jobs, self.source(jobs), strict=True)
        return [one._replace(release="") if job == self.first and isinstance(one, Trace) else "" for job, one in pairs]


@pytest.fixture
def facts_of() -> Callable[..., FactSet]:
    """A recipe on a GPU of so many GiB."""

    def do(gib: float, **recipe: Any) -> FactSet:
        facts = FactSet(Fact(f"recipe.{key}", value, "", "given") for key, value in {**RECIPE, **recipe}.items())
        facts.update([Fact("gpu", Records(({"name": "GPU", "memory_gib": gib},)), "test", "given")])
        return facts

    return do


@pytest.fixture
def section(facts_of: Any) -> Callable[..., Any]:
    """The section for a model of the fixtures, by shipped coefficients."""

    def do(name: str, gib: float, *, kept: bool = False, methods: Sequence[str] = (), **recipe: Any) -> Any:
        data = config(name)
        facts = facts_of(gib, lora_targets=TARGETS[data["model_type"]], optimizer="adamw_torch", **recipe)
        source: TraceSource = Shipped(MATRIX.table("memory-forms"), MATRIX.table("memory-terms"), "5.23.0", False).run
        model = model_of(data, MATRIX.rows("native-types"), methods)
        return predict(facts, model, first_of(KeptTrace(source), source) if kept else source, KNOWN)

    return do


def test_what_a_prediction_asks_for_is_known_before(facts_of: Any) -> None:
    data = config("llama-3-8b")
    facts = facts_of(24, lora_targets=("all-linear",), optimizer="adamw_torch")
    source = Shipped(MATRIX.table("memory-forms"), MATRIX.table("memory-terms"), "5.23.0", False).run
    jobs = rehearsed(source, lambda traced: predict(facts, model_of(data, ()), traced, KNOWN))
    asked = {(job["checkpointing"], length) for job in jobs if not job.get("untraced") for length in job["tokens"]}
    assert asked >= {(False, 2048), (False, 1024), (False, 512), (True, 2048)}


def offered(found: Any) -> dict[str, str]:
    """The verdict of each setting that is offered."""
    return {name: change["verdict"] for change in found["changes"] for name in change["set"]}


def test_a_kept_trace_of_one_length_is_offered_a_smaller_batch_too(section: Any) -> None:
    by_shipped, by_kept = (section("llama-3-8b", 80, kept=kept) for kept in (False, True))
    assert (by_shipped["level"], by_kept["level"]) == ("shipped", "trace")
    for changes in map(offered, (by_shipped, by_kept)):
        assert changes["recipe.train_batch_size"] == changes["recipe.max_length"] == "fits"


def test_a_full_run_that_does_not_fit_may_be_offered_lora(section: Any) -> None:
    assert offered(section("llama-3-8b", 80, method="full", batch_size=1))["recipe.method"] == "fits"


def test_code_that_ignores_checkpointing_is_predicted_without_it_and_not_offered_it(section: Any) -> None:
    reads = ["ChatGLMModel.forward(self)"]
    ignores = [*reads, "ChatGLMPreTrainedModel.gradient_checkpointing_enable(self)"]
    found = [
        section("chatglm3-6b", 24, methods=methods, gradient_checkpointing=asked)
        for methods, asked in ((reads, True), (ignores, True), ([], True), (reads, False))
    ]
    heeded, ignored, unread, without = (one["allocated_gib"] for one in found)
    assert heeded == unread < without == ignored
    assert ["recipe.gradient_checkpointing" in offered(one) for one in (found[1], found[3])] == [False, True]
    size = f"{ignored:.1f} GiB"
    assert [any(size in text for text in one["assumed"]) for one in found[:3]] == [False, False, True]
    assert any("ignores gradient checkpointing: this is without it" in text for text in found[1]["assumed"])


# --- the verdict on an interval, and the GPU that decides -------------------------------------------------------------

A, B = ({"name": name, "memory_gib": 48.0, "free_gib": free} for name, free in (("A", 40.0), ("B", 20.0)))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        *((size, "fits") for size in (43.0, 43.6)),
        *((size, "tight") for size in (43.7, 47.6)),
        (47.8, "does-not-fit"),
    ],
)
def test_tight_is_between(predicted: Any, trace_of: Any, size: float, expected: str) -> None:
    gpu = Records(({"name": "A6000", "memory_gib": 48},))  # one that is only named is free
    found = predicted(trace_of({"weights": size}), gpu)
    assert (found["verdict"], found["gpu"], found["total_gib"], found["free_gib"]) == (expected, "A6000", 48, 48)


def test_what_the_allocator_holds_only_raises_the_upper_end(predicted: Any, trace_of: Any) -> None:
    usual, held = (predicted(trace_of({"attention": 40.0}, **more)) for more in ({}, {"held_bytes": 44 << 30}))
    assert held["process_gib"][0] == usual["process_gib"][0]
    assert held["reserved_gib"][1] == pytest.approx(1.1 * usual["reserved_gib"][1])


RESIDUALS = {
    name: Residual((0.9, GIB / 2), (1.0, GIB), (1.1, GIB), (1.5, 2 * GIB))
    for name in ("allocated", "reserved", "process")
}


def test_what_was_not_traced_here_lies_between_the_residuals_of_published_readings(
    predicted: Any, trace_of: Any
) -> None:
    found = predicted(trace_of({"attention": 10.0}, residuals=RESIDUALS))
    assert found["process_gib"] == [9.5, 17.0] and found["interval"]["process"] == [9.5, 12.0, 17.0]


@pytest.mark.parametrize(
    ("free", "expected"), [(17.0, "fits"), (16.9, "tight"), (11.0, "tight"), (10.9, "does-not-fit")]
)
def test_it_does_not_fit_where_four_of_five_such_readings_are_larger(
    predicted: Any, trace_of: Any, free: float, expected: str
) -> None:
    gpu = Records(({"name": "A", "memory_gib": free},))
    found = predicted(trace_of({"attention": 10.0}, residuals=RESIDUALS), gpu)
    assert (found["verdict"], found["interval"]["mostly"]) == (expected, 11.0)


def test_what_may_be_absent_lowers_the_least_alone(predicted: Any, trace_of: Any) -> None:
    trace = trace_of({"weights": 10.0}, residuals=RESIDUALS)
    found = predicted(trace._replace(absent=2 * GIB))
    assert found["interval"]["process"] == [7.7, 12.0, 17.0] and found["allocated_gib"] == 10.0


@pytest.mark.parametrize(
    ("gpus", "processes", "free"),
    [
        (Records((A, B)), 1, 40),  # one process takes the first
        (Records((A, B)), 2, 20),  # several wait for the fullest
        *((gpus, 1, None) for gpus in (Records(()), Unknown("no driver"), Records(({"name": "A"},)))),
    ],
)
def test_the_gpu_that_decides_and_no_verdict_without_one(predicted: Any, gpus: Any, processes: int, free: Any) -> None:
    found = predicted(gpu=gpus, world_size=processes)
    assert found["free_gib"] == free and (found["verdict"] is None) is (free is None)


@pytest.mark.parametrize("longest", [10**30, -1])
def test_a_longest_context_that_no_model_has_ends_nothing(facts_of: Any, longest: int) -> None:
    source = Shipped(MATRIX.table("memory-forms"), MATRIX.table("memory-terms"), "5.23.0", False).run
    model = model_of({**config("llama-3-8b"), "max_position_embeddings": longest}, [])
    reach = predict(facts_of(80.0), model, source, KNOWN)["reach"]
    assert bool(reach) is (longest > 0) and all(one["tokens"] <= 1 << 24 for one in reach)
