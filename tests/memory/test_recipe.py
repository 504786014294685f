"""What a recipe's facts make of the trace, and what is said instead of a guess."""

from __future__ import annotations

from typing import Any

import pytest

from envdoctor.facts import ABSENT, Fact, FactSet, Records
from envdoctor.memory import MemoryProblem, engine_of, settings_of


def test_what_was_not_given_is_said(predicted: Any) -> None:
    unknown = ("method", "batch_size", "optimizer", "gradient_checkpointing")
    taken = predicted(**dict.fromkeys(unknown, "unknown"))["assumed"]
    assert [text.partition(" was not given")[0] for text in taken] == [
        *("the method", "the batch size", "the dtype of the weights"),
        *("the attention", "the optimizer", "gradient checkpointing"),
    ]
    assert predicted(load_dtype="bf16", attn="sdpa")["assumed"] == []


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"max_length": "unknown"}, "the longest sample in tokens"),
        ({"stage": "ppo"}, "its value and reward models have sizes of their own"),
        ({"stage": "grpo", "colocate": True}, "an engine that generates on the same GPU"),
        ({"optimizer": "galore_adafactor"}, "optimizer galore_adafactor"),
    ],
)
def test_no_guess(predicted: Any, recipe: dict[str, Any], words: str) -> None:
    with pytest.raises(MemoryProblem, match=words):
        predicted(**recipe)


GALORE = {"method": "full", "optimizer": "galore"}


@pytest.mark.parametrize(
    ("recipe", "keys", "job"),
    [
        # Known to be unset, it is float32 before transformers 5.
        ({"load_dtype": ABSENT}, {}, {"load_dtype": "float32"}),
        ({}, {}, {"load_dtype": "bfloat16", "quantized": None, "reference": "none", "padded": True}),
        ({"dtype": "bf16"}, {}, {"amp": "bfloat16"}),
        ({"dtype": "fp32"}, {}, {"amp": None}),
        ({"dtype": "bf16", "framework": "openrlhf"}, {}, {"amp": None}),
        ({"dtype": "bf16", "zero_stage": 2, "world_size": 1}, {}, {"amp": None}),
        ({"batch_size": 1}, {}, {"padded": False}),
        ({"packing": True}, {}, {"padded": False}),
        # Flash attention keeps what the fused kernel keeps.
        ({"attn": "flash_attention_2"}, {}, {"padded": False, "attention": "sdpa"}),
        ({"attn": "eager"}, {}, {"attention": "eager"}),
        ({"quantization": "bnb-4bit"}, {}, {"quantized": {"double": False, "upcast": True}}),
        ({"method": "qlora", "framework": "llamafactory"}, {}, {"quantized": {"double": False, "upcast": False}}),
        ({"stage": "dpo"}, {}, {"reference": "adapter-off"}),
        ({"stage": "dpo", "method": "full"}, {}, {"reference": "copy"}),
        ({"stage": "dpo", "reference_model": "precomputed"}, {}, {"reference": "precomputed"}),
        ({"stage": "grpo"}, {}, {"stage": "grpo", "reference": "adapter-off", "padded": True}),
        ({"stage": "grpo"}, {"beta": "0"}, {"reference": "none"}),
        ({"stage": "grpo"}, {"beta": "0.0"}, {"reference": "none"}),
        ({"stage": "grpo"}, {"beta": "0.04"}, {"reference": "adapter-off"}),
        ({**GALORE, "framework": "llamafactory"}, {}, {"optimizer": "galore-16"}),
        ({**GALORE, "framework": "transformers"}, {}, {"optimizer": "galore-128"}),
        ({**GALORE, "framework": "llamafactory"}, {"galore_rank": "64"}, {"optimizer": "galore-64"}),
        (GALORE, {"optim_args": "rank=32, update_proj_gap=100"}, {"optimizer": "galore-32"}),
        (GALORE, {"galore_rank": "x"}, {"optimizer": "galore-128"}),
        ({"optimizer": "muon"}, {}, {"optimizer": "Muon"}),
        ({"train_batch_size": 4, "batch_size": 8}, {}, {"batch": 4}),
    ],
)
def test_a_recipe_is_a_job(predicted: Any, recipe: dict[str, Any], keys: dict[str, str], job: dict[str, Any]) -> None:
    found = predicted(keys=keys, **recipe)
    assert {name: found["job"][name] for name in job} == job
    without_beta = recipe.get("stage") == "grpo" and not keys
    assert any("beta was not given" in text for text in found["assumed"]) is without_beta


@pytest.mark.parametrize(("given", "expected"), [({"batch_size": 1}, 1), ({"batch_size": 1, "train_batch_size": 2}, 2)])
def test_a_batch_size_that_was_given_comes_before_that_of_the_file(predicted: Any, given: Any, expected: int) -> None:
    assert predicted(train_batch_size=4, batch_size=8, given=given)["job"]["batch"] == expected


def test_another_method_is_taken_as_lora_and_says_so(predicted: Any) -> None:
    found = predicted(method="oft")
    assert found["job"]["lora"]["r"] == 8 and "the method oft is taken to need" in found["assumed"][0]


def test_what_the_trace_does_not_follow_is_named_and_its_terms_are_spared(predicted: Any, trace_of: Any) -> None:
    trace = trace_of({"weights": 4.0, "MLP": 2.0, "logits and loss": 2.0})
    chunked = predicted(trace, chunked_loss=True)
    both, plain = predicted(trace, kernels=("liger",), chunked_loss=True), predicted(trace)
    assert both["savers"] == ["kernels that replace parts of the model", "the loss in chunks"]
    assert [found["reserved_gib"][0] for found in (chunked, both, plain)] == [6.0, 4.0, 8.0]
    assert all(found["reserved_gib"][1] == pytest.approx(8.0 * 1.07) for found in (chunked, both, plain))


@pytest.mark.parametrize(
    ("saver", "peak", "likely"),
    [
        ({"kernels": ("cut-cross-entropy",)}, 6.0, 5.0),  # without the logits, and half of the MLP
        ({"chunked_loss": True}, 6.0, 6.0),
        ({"torch_compile": True}, 8.0, 7.0),  # what it recomputes is its own choice: half of the MLP
        ({"activation_offload": True}, 8.0, 7.0),
    ],
)
def test_logits_that_a_kernel_never_makes_are_not_likely(
    predicted: Any, trace_of: Any, saver: dict[str, Any], peak: float, likely: float
) -> None:
    found = predicted(trace_of({"weights": 4.0, "MLP": 2.0, "logits and loss": 2.0}), **saver)
    assert (found["allocated_gib"], found["interval"]["allocated"][1]) == (peak, likely)


def test_buckets_that_are_auto_are_those_of_the_hidden_size() -> None:
    keys = Records(({"key": "reduce_bucket_size", "value": "auto"},))
    facts = FactSet([Fact("recipe_key", keys, "ds.json", "recipe"), Fact("recipe.zero_stage", 3, "ds.json", "recipe")])
    assert settings_of(facts, 4096) == {"zero_stage": 3, "reduce_bucket": 4096**2}
    assert settings_of(facts) == {"zero_stage": 3}
    facts.update([Fact("recipe.reduce_bucket", 5e8, "--set", "given")])
    assert settings_of(facts, 4096)["reduce_bucket"] == 5e8


@pytest.mark.parametrize(
    ("given", "engine"),
    [
        ({"framework": "vllm"}, "alone"),
        ({"framework": "weclone", "method": "lora", "gpu_memory_utilization": 0.95}, "beside"),
        ({"framework": "weclone", "method": "lora", "gpu_memory_utilization": None}, None),
        ({"framework": "trl", "gpu_memory_utilization": 0.3}, None),
    ],
)
def test_what_is_an_engine(given: dict[str, Any], engine: str | None) -> None:
    assert engine_of(given) == engine


@pytest.mark.parametrize(
    ("value", "least"), [("8", 1.0), ("1", 8.0), *((bad, 1.0) for bad in ("auto", "²", "00", "9" * 5000))]
)
def test_what_divides_a_sample_among_gpus_lowers_the_least_and_is_named(
    predicted: Any, trace_of: Any, value: str, least: float
) -> None:
    found = predicted(trace_of({"attention": 8.0}), keys={"sequence_parallel_size": value})
    assert found["reserved_gib"] == pytest.approx([least, 8.0 * 1.07]) and len(found["savers"]) == (value != "1")
