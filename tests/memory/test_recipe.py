"""What a recipe's facts make of the trace, and what is said instead of a guess."""

from __future__ import annotations

from typing import Any

import pytest

from envdoctor.facts import ABSENT, Fact, FactSet, Records
from envdoctor.memory import MemoryProblem, engine_of, settings_of
from envdoctor.memory.recipe import Plan, plan_of

BASE = {"recipe.method": "lora", "recipe.max_length": 2048, "recipe.batch_size": 2, "recipe.optimizer": "adamw_torch"}


def plan(**recipe: Any) -> Plan:
    given = {**BASE, **{f"recipe.{name}": value for name, value in recipe.items()}}
    given.setdefault("recipe.gradient_checkpointing", True)
    given.update({"model.dtype": "bfloat16", "pkg.transformers": "4.57.6"})
    return plan_of(FactSet(Fact(key, value, "test", "given") for key, value in given.items() if value != "unknown"))


def test_what_was_not_given_is_said() -> None:
    taken = plan(method="unknown", batch_size="unknown", optimizer="unknown", gradient_checkpointing="unknown")
    assert [text.partition(" was not given")[0] for text in taken.assumed] == [
        "the method",
        "the batch size",
        "the dtype of the weights",
        "the attention",
        "the optimizer",
        "gradient checkpointing",
    ]
    assert plan(load_dtype="bf16", attn="sdpa").assumed == ()


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"max_length": "unknown"}, "the longest sample in tokens"),
        ({"stage": "ppo"}, "its value and reward models have sizes of their own"),
        ({"stage": "grpo", "colocate": True}, "an engine that generates on the same GPU"),
        ({"method": "oft"}, "method oft"),
        ({"optimizer": "galore_adafactor"}, "optimizer galore_adafactor"),
        ({"quantization": "gptq"}, "weights in gptq"),
        ({"method": "full", "quantization": "bnb-4bit"}, "only of bnb-4bit with LoRA"),
    ],
)
def test_no_guess(recipe: dict[str, Any], words: str) -> None:
    with pytest.raises(MemoryProblem, match=words):
        plan(**recipe)


def test_load_dtype_that_is_known_to_be_unset_is_float32_before_transformers_5() -> None:
    assert plan(load_dtype=ABSENT).job["load_dtype"] == "float32"
    assert plan().job["load_dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({"dtype": "bf16"}, "bfloat16"),
        ({"dtype": "fp32"}, None),
        ({"dtype": "bf16", "framework": "openrlhf"}, None),
        ({"dtype": "bf16", "zero_stage": 2}, None),
    ],
)
def test_autocast(recipe: dict[str, Any], expected: str | None) -> None:
    assert plan(**recipe).job["amp"] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 4), ({"recipe.batch_size": 1}, 1), ({"recipe.batch_size": 1, "recipe.train_batch_size": 2}, 2)],
)
def test_a_batch_size_that_was_given_comes_before_that_of_the_file(given: dict[str, Any], expected: int) -> None:
    known = {**BASE, "recipe.train_batch_size": 4, "recipe.batch_size": 8, "model.dtype": "bfloat16"}
    facts = FactSet(Fact(key, value, "train.yaml:1", "recipe") for key, value in known.items())
    facts.update(Fact(key, value, "--set", "given") for key, value in given.items())
    assert plan_of(facts).job["batch"] == expected


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [({}, True), ({"batch_size": 1}, False), ({"packing": True}, False), ({"attn": "flash_attention_2"}, False)],
)
def test_a_batch_of_several_samples_is_padded(recipe: dict[str, Any], expected: bool) -> None:
    assert plan(**recipe).job["padded"] is expected


def test_flash_attention_keeps_what_the_fused_kernel_keeps() -> None:
    assert plan(attn="flash_attention_2").job["attention"] == "sdpa"
    assert plan(attn="eager").job["attention"] == "eager"


def test_quantised_lora_is_qlora() -> None:
    assert plan(quantization="bnb-4bit").job["quantized"] == {"double": False, "upcast": True}
    assert plan(method="qlora", framework="llamafactory").job["quantized"]["upcast"] is False
    assert plan().job["quantized"] is None


def test_the_reference_model_of_dpo() -> None:
    assert plan(stage="dpo").job["reference"] == "adapter-off"
    assert plan(stage="dpo", method="full").job["reference"] == "copy"
    assert plan(stage="dpo", reference_model="precomputed").job["reference"] == "precomputed"
    assert plan().job["reference"] == "none"


def keyed(**keys: str) -> Records:
    return Records([{"key": key, "value": value} for key, value in keys.items()])


def test_the_reference_model_of_grpo_is_there_unless_beta_is_0() -> None:
    job = plan(stage="grpo").job
    assert (job["stage"], job["reference"], job["padded"]) == ("grpo", "adapter-off", True)
    assert "beta was not given" in plan(stage="grpo").assumed[-1]
    for beta, expected in (("0", "none"), ("0.0", "none"), ("0.04", "adapter-off")):
        facts = FactSet(
            Fact(f"recipe.{key}", value, "a:1", "recipe")
            for key, value in {"method": "lora", "max_length": 64, "stage": "grpo"}.items()
        )
        facts.add(Fact("recipe_key", keyed(beta=beta), "a", "recipe"))
        assert plan_of(facts).job["reference"] == expected
        assert not any("beta" in text for text in plan_of(facts).assumed)


@pytest.mark.parametrize(
    ("framework", "keys", "rank"),
    [
        ("llamafactory", {}, 16),
        ("transformers", {}, 128),
        ("llamafactory", {"galore_rank": "64"}, 64),
        ("transformers", {"optim_args": "rank=32, update_proj_gap=100"}, 32),
        ("transformers", {"galore_rank": "x"}, 128),
    ],
)
def test_the_rank_of_galore(framework: str, keys: dict[str, str], rank: int) -> None:
    given = {"method": "full", "max_length": 64, "optimizer": "galore", "framework": framework}
    facts = FactSet(Fact(f"recipe.{key}", value, "a:1", "recipe") for key, value in given.items())
    facts.add(Fact("recipe_key", keyed(**keys), "a", "recipe"))
    assert plan_of(facts).job["optimizer"] == f"galore-{rank}"


def test_muon_is_an_optimizer_that_is_traced() -> None:
    assert plan(optimizer="muon").job["optimizer"] == "Muon"


def test_what_the_trace_does_not_follow_is_named() -> None:
    assert plan(kernels=("liger",), chunked_loss=True).savers == (
        "kernels that replace parts of the model",
        "the loss in chunks",
    )
    assert plan(chunked_loss=True).spared == "logits and loss"
    assert plan(kernels=("liger",), chunked_loss=True).spared == plan().spared == ""


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
