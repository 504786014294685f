"""What nobody told of a run: each setting as it may be too, and what instruments may show then."""

from typing import Any

import pytest
from observing import shipped
from traced_jobs import JOB, LORA, config

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.peak import Shipped, model_of, predict
from envdoctor.peak.changes import unstated_of

MATRIX = shipped()
KNOWN = MATRIX.table("memory-frameworks")
TOLD = {
    **{"train_batch_size": 1, "max_length": 1024, "gradient_checkpointing": True, "gradient_accumulation": 1},
    **{"optimizer": "adamw_torch", "load_dtype": "bf16", "dtype": "bf16", "attn": "sdpa", "framework": "transformers"},
    **{"lora_r": 8, "lora_targets": ("q_proj", "v_proj"), "lora_dropout": 0.05, "padding": "max"},
}


def shown(method: str = "lora", gpu: float | None = None, **recipe: Any) -> dict[str, Any]:
    """The interval of a run of Llama 3 8B by coefficients, and the verdict."""
    given = {"method": method, **{name: value for name, value in {**TOLD, **recipe}.items() if value != "unknown"}}
    facts = FactSet(Fact(f"recipe.{name}", value, "", "given") for name, value in given.items())
    facts.update([Fact("model.dtype", "bfloat16", "", "given")])
    if gpu is not None:
        facts.update([Fact("gpu", Records(({"name": "A", "memory_gib": gpu},)), "", "given")])
    source = Shipped(MATRIX.table("memory-forms"), MATRIX.table("memory-terms"), None, False).run
    section = predict(facts, model_of(config("llama-3-8b"), []), source, KNOWN)
    return {**section["interval"], "verdict": section["verdict"]}


def test_of_a_run_that_is_told_as_a_whole_nothing_is_added() -> None:
    found = shown()
    assert found["not_given"] == []
    for measure in ("allocated", "reserved"):
        assert found["shown"][measure] == [found[measure][0], found[measure][2]]


@pytest.mark.parametrize(
    ("name", "method", "lower", "higher"),
    [
        ("gradient_checkpointing", "lora", True, False),
        ("optimizer", "full", True, False),
        ("load_dtype", "full", False, True),
        ("lora_targets", "lora", False, True),
        ("lora_r", "lora", False, True),
        ("attn", "lora", False, True),
    ],
)
def test_what_nobody_told_widens_towards_what_it_may_be(name: str, method: str, lower: bool, higher: bool) -> None:
    again = {"gradient_checkpointing": False} if name in ("lora_targets", "lora_r", "attn") else {}
    found = shown(method, **{**again, name: "unknown"})
    (low, high), (least, _, most) = found["shown"]["allocated"], found["allocated"]
    assert (low < least - 0.05, high > most + 0.05) == (lower, higher)
    assert found["not_given"] == [f"recipe.{name}"]


def test_lengths_that_differ_leave_blocks_in_the_allocator_up_to_the_card_and_change_no_verdict() -> None:
    fixed, varied = (shown(padding=padding) for padding in ("max", "longest"))
    assert varied["shown"]["reserved"][1] > fixed["shown"]["reserved"][1] + 1
    assert varied["shown"]["allocated"][1] == fixed["shown"]["allocated"][1]
    assert varied["shown"]["allocated"][0] < fixed["shown"]["allocated"][0]
    small = shown(padding="longest", gpu=20.5)
    assert small["shown"]["process"][1] == max(20.5, small["process"][2])
    assert small["verdict"] == shown(gpu=20.5)["verdict"]


def test_a_framework_chooses_for_itself_and_a_release_tells_a_default() -> None:
    job = {**JOB, "lora": LORA}

    def names(framework: str, version: str | None) -> set[str]:
        return {name for name, _ in unstated_of({"framework": framework}, job, KNOWN["unstated"], version)}

    assert {"load_dtype", "attn", "dtype"} <= names("transformers", None)
    assert names("transformers", "5.23.0").isdisjoint({"load_dtype", "attn"})
    assert names("axolotl", None).isdisjoint({"load_dtype", "attn", "dtype"}) and "lora_r" in names("axolotl", None)


@pytest.mark.parametrize(("gib", "alone"), [(16.0, "does-not-fit"), (44.0, "fits")])
@pytest.mark.parametrize("keys", [{"deepspeed": "$FILE"}, {}])
def test_a_run_that_is_divided_in_an_unknown_way_is_not_judged_where_that_decides(
    predicted: Any, trace_of: Any, keys: dict[str, str], gib: float, alone: str
) -> None:
    """A DeepSpeed file that was not read may divide everything, or nothing and add states of 12 bytes a parameter."""
    trace = trace_of({"weights": 10.0, "gradients": 20.0, "attention": 3.0})
    gpus = Records(({"name": "A", "memory_gib": gib},))
    found = predicted(trace, gpus, keys, framework="transformers", zero_stage="unknown", fsdp=False)
    low, high = found["process_gib"]
    verdict = (None, "recipe.zero_stage") if keys else (alone, "")
    assert (found["verdict"], found["settled_by"], low < 4, high > 44) == (*verdict, bool(keys), bool(keys))
    assert any("is divided among processes" in text for text in found["assumed"]) == bool(keys)


def test_what_several_gpus_show_reaches_further_and_what_is_needed_does_not() -> None:
    told = {"padding": "max", "world_size": 2}
    found = shown(**told)
    for measure in ("allocated", "reserved"):
        (low, high), (least, _, most) = found["shown"][measure], found[measure]
        assert (least / low, high / most) == (pytest.approx(1.28, abs=0.001), pytest.approx(1.28, abs=0.001))
    assert shown(gpu=most + 0.1, **told)["shown"]["reserved"][1] == most + 0.1


def test_each_gpu_may_load_4_bit_weights_whole_before_fsdp_divides_them() -> None:
    told = {"padding": "max", "world_size": 8, "fsdp": True, "quantization": "bnb-4bit"}
    whole, found = (
        shown("qlora", **{**told, "framework": one})["shown"]["allocated"][1] for one in ("axolotl", "torchtune")
    )
    assert whole > 5.7 * 1.28 > found
