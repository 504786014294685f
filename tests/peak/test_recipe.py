"""What a recipe's facts make of the trace, and what is said instead of a guess."""

from typing import Any

import pytest
from tables import rows
from traced_jobs import GIB

from envdoctor.facts import ABSENT, Fact, FactSet, Records
from envdoctor.peak import MemoryProblem, engine_of, settings_of
from envdoctor.peak.sharing import with_layers


def test_what_was_not_given_is_said(predicted: Any) -> None:
    unknown = ("method", "batch_size", "optimizer", "gradient_checkpointing")
    taken = predicted(**dict.fromkeys(unknown, "unknown"))["assumed"]
    assert [text.partition(" was not given")[0] for text in taken] == [
        *("the method", "the batch size", "the dtype of the weights"),
        *("the attention", "the optimizer", "gradient checkpointing"),
    ]
    assert predicted(load_dtype="bf16", attn="sdpa")["assumed"] == []


def test_a_loop_of_ones_own_keeps_the_outputs_and_an_unknown_one_may(predicted: Any, trace_of: Any) -> None:
    (point,) = trace_of({"weights": 1.0}).points
    (segment,) = point["segments"].values()
    trace = trace_of({})._replace(points=({**point, "segments": {"backward/before": segment}},))
    kept = {"config": {"vocab_size": 1 << 18}, "load_dtype": "bf16", "attn": "sdpa"}
    names = ("accelerate", "transformers", "unknown")
    own, known, unknown = (predicted(trace, **kept, framework=name) for name in names)
    assert own["allocated_gib"] == known["allocated_gib"] + 2 and known["assumed"] == []
    assert "may keep the model's outputs: then its tensors take 3.0 GiB" in unknown["assumed"][0]
    assert unknown["interval"]["process"][2] > known["interval"]["process"][2] + 2


def test_no_guess_without_a_length(predicted: Any) -> None:
    with pytest.raises(MemoryProblem, match="the longest sample in tokens"):
        predicted(max_length="unknown")


def test_an_unknown_optimizer_needs_no_more_than_adamw(predicted: Any, trace_of: Any) -> None:
    found = predicted(trace_of({"weights": 4.0, "optimizer states": 2.0}), optimizer="galore_adafactor")
    assert found["job"]["optimizer"] == "AdamW"
    assert found["interval"]["allocated"] == [4.0, 5.0, pytest.approx(6.0 * 1.07)]
    assert "the optimizer galore_adafactor is unknown" in " ".join(found["assumed"])
    keys = {"lr_scheduler": "cosine", "use_mfsgd": ABSENT}
    fork = predicted(trace_of({"weights": 4.0, "optimizer states": 2.0}), keys=keys, optimizer="adamw_torch")
    assert (fork["interval"], "the optimizer use_mfsgd is unknown" in " ".join(fork["assumed"])) == (
        found["interval"],
        True,
    )


@pytest.mark.parametrize(("memory", "judged"), [(3.0, "does-not-fit"), (7.0, None), (16.0, "fits")])
def test_a_run_is_not_judged_where_what_an_unknown_optimizer_keeps_decides(
    predicted: Any, trace_of: Any, memory: float, judged: str | None
) -> None:
    gpus = Records(({"name": "A", "memory_gib": memory},))
    found = predicted(trace_of({"weights": 4.0, "optimizer states": 8.0}), gpus, method="full", optimizer="badam")
    assert (found["verdict"], found["settled_by"]) == (judged, "" if judged else "recipe.optimizer")
    for keys, method in (({"lisa_n_layers": "2"}, "full"), ({"freeze_extra_modules": "norm"}, "freeze")):
        found = predicted(trace_of({"weights": 4.0, "optimizer states": 8.0}), gpus, keys, method=method)
        assert (found["verdict"], found["settled_by"]) == (judged, "" if judged else "recipe.method")


def test_where_some_layers_are_trained_those_alone_have_gradients_and_are_float32(trace_of: Any) -> None:
    for float32, of_trained, most in ((True, 0.05, 4.4), (False, 0.025, 4.0)):
        (point,) = with_layers(trace_of({"weights": 4.0, "gradients": 4.0, "hidden states": 1.0}), 9, float32).points
        ((_, _, terms),) = point["segments"].values()
        held = {name: size / GIB for name, size in terms.items()}
        assert held == pytest.approx({"weights": most, "gradients": 4.0 * of_trained, "hidden states": 1.0})
        assert point["trained"] == pytest.approx(0.2 * GIB)


LORA = {"weights": 16.0, "logits and loss": 4.0, "hidden states": 1.0}
#: Weights, gradients and two states as large, and its hidden states.
VALUE_MODEL = 4 * 16.0 + 1.0


@pytest.mark.parametrize(
    ("recipe", "keys", "job", "least", "most"),
    [
        ({"stage": "pt"}, {}, ("sft", "none"), 21.0, 21.0),
        ({"stage": "kto"}, {}, ("grpo", "adapter-off"), 21.0, 21.0),
        ({"stage": "kto", "method": "full"}, {}, ("grpo", "copy"), 21.0, 21.0),
        # With a loss of the chosen answers besides, and without.
        ({"stage": "orpo", "method": "full"}, {}, ("dpo", "none"), 23.0, 23.0),
        ({"stage": "cpo"}, {}, ("dpo", "none"), 23.0, 23.0),
        ({"stage": "cpo"}, {"cpo_alpha": "0"}, ("dpo", "none"), 21.0, 21.0),
        ({"stage": "embedding"}, {}, ("dpo", "none"), 17.0, 17.0),
        ({"stage": "rm"}, {}, ("dpo", "none"), 17.0, 17.0),
        ({"stage": "prm"}, {}, ("sft", "none"), 17.0, 17.0),
        # The head for the language stays beside that for the value.
        ({"stage": "rm", "framework": "llamafactory"}, {}, ("dpo", "none"), 17.0, 21.0),
        ({"stage": "ppo"}, {}, ("grpo", "adapter-off"), 21.0, 21.0 + VALUE_MODEL + 16.0),
        ({"stage": "ppo", "framework": "llamafactory"}, {}, ("grpo", "adapter-off"), 21.0, 21.0),
        (
            {"stage": "ppo", "framework": "llamafactory"},
            {"reward_model_type": "full"},
            ("grpo", "adapter-off"),
            *(21.0, 37.0),
        ),
        # On GPUs of their own, or not.
        ({"stage": "ppo", "framework": "openrlhf"}, {"critic_num_gpus_per_node": "2"}, ("grpo", "copy"), 21.0, 21.0),
    ],
)
def test_a_stage_is_the_step_that_it_is_like_and_what_stands_beside_it(
    predicted: Any, trace_of: Any, recipe: Any, keys: Any, job: tuple[str, str], least: float, most: float
) -> None:
    found = predicted(trace_of(LORA), keys=keys, **recipe)
    assert (found["job"]["stage"], found["job"]["reference"]) == job
    low, _, high = found["interval"]["allocated"]
    assert (low, high) == (least, pytest.approx(most * 1.07))
    assert found["allocated_gib"] == least
    told = " ".join(found["assumed"])
    assert (f"{recipe['stage'].upper()} is counted like {job[0].upper()}" in told) is (recipe["stage"] != "pt")
    assert ("other models may be on the same GPU" in told) is (most >= 37.0)


@rows("config weights")
def test_a_reward_model_has_no_head_for_the_language(
    predicted: Any, trace_of: Any, config: dict[str, Any], weights: float
) -> None:
    found = predicted(trace_of({"weights": 16.0, "logits and loss": 4.0}), stage="rm", config=config)
    assert found["terms"] == [{"name": "weights", "gib": weights}]


@pytest.mark.parametrize(
    ("recipe", "least", "own", "engine"),
    [
        ({"framework": "trl"}, 21.0 + 0.3 * 80, 21.0, 0.3 * 80),
        # It sleeps while the model trains: beside it are the weights alone, or the step is more.
        ({"framework": "trl", "sleep_mode": True}, 21.0, 16.0, 0.3 * 80),
        ({"framework": "trl", "sleep_mode": True, "gpu_memory_utilization": 0.05}, 21.0, 21.0, 0.0),
        ({"framework": "trl", "gpu_memory_utilization": 0.5}, 61.0, 21.0, 40.0),
        ({"framework": "openrlhf"}, 21.0 + 0.95 * 80, 21.0, 0.95 * 80),
        ({"framework": "another"}, 21.0, 21.0, 0.92 * 80),
    ],
)
def test_an_engine_beside_the_training_takes_its_share(
    predicted: Any, trace_of: Any, recipe: Any, least: float, own: float, engine: float
) -> None:
    gpu = Records(({"name": "GPU", "memory_gib": 80.0},))
    found = predicted(trace_of(LORA), gpu, stage="grpo", colocate=True, attn="sdpa", **recipe)
    low, _, high = found["interval"]["allocated"]
    assert (low, high) == (pytest.approx(least), pytest.approx(own * 1.07 + engine))  # a share is no more than itself
    assert "an engine that generates takes" in " ".join(found["assumed"])
    alone = predicted(trace_of(LORA), stage="grpo", colocate=True, attn="sdpa", **recipe)
    assert alone["interval"]["allocated"][0] == 21.0 and "is not counted, because no GPU" in " ".join(alone["assumed"])


@rows("recipe release savers")
def test_what_a_framework_saves_by_itself_is_named(
    predicted: Any, recipe: dict[str, Any], release: str | None, savers: list[str]
) -> None:
    assert predicted(release=release, **recipe)["savers"] == savers


@rows("framework release attention")
def test_the_attention_is_that_of_the_trainer_and_its_release(
    predicted: Any, framework: str, release: str | None, attention: str | None
) -> None:
    found = predicted(framework=framework, release=release)
    assert (found["job"]["attention"], found["job"]["padded"]) == (attention, attention != "sdpa")
    assert any("the attention was not given" in text for text in found["assumed"])


@rows("recipe keys job")
def test_a_recipe_is_a_job(predicted: Any, recipe: dict[str, Any], keys: dict[str, str], job: dict[str, Any]) -> None:
    found = predicted(keys=keys, **recipe)
    assert {name: found["job"][name] for name in job} == job
    without_beta = recipe.get("stage") == "grpo" and not keys
    assert any("beta was not given" in text for text in found["assumed"]) is without_beta


@pytest.mark.parametrize(("given", "expected"), [({"batch_size": 1}, 1), ({"batch_size": 1, "train_batch_size": 2}, 2)])
def test_a_batch_size_that_was_given_comes_before_that_of_the_file(predicted: Any, given: Any, expected: int) -> None:
    assert predicted(train_batch_size=4, batch_size=8, given=given)["job"]["batch"] == expected


@pytest.mark.parametrize(("framework", "kept"), [("trl", {"adapter-off"}), ("openrlhf", {"copy"})])
def test_offered_lora_has_the_reference_model_that_the_framework_gives_it(
    predicted: Any, trace_of: Any, framework: str, kept: set[str]
) -> None:
    card = Records(({"name": "card", "memory_gib": 24.0},))
    found = predicted(trace_of({"weights": 40.0}), card, framework=framework, stage="dpo", method="full")
    assert {job["reference"] for job in found["jobs"] if job["lora"]} == kept


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


@rows("saver peak likely", tuples=True)
def test_logits_that_a_kernel_never_makes_are_not_likely(
    predicted: Any, trace_of: Any, saver: dict[str, Any], peak: float, likely: float
) -> None:
    found = predicted(trace_of({"weights": 4.0, "MLP": 2.0, "logits and loss": 2.0}), **saver)
    assert (found["allocated_gib"], found["interval"]["allocated"][1]) == (peak, likely)


@pytest.mark.parametrize(("framework", "logits"), [("trl", 0.5), ("verl", 1.0), ("openrlhf", 2.0)])
def test_grpo_makes_the_logits_of_the_answers_alone_in_trl_and_half_of_them_in_verl(
    predicted: Any, trace_of: Any, framework: str, logits: float
) -> None:
    trace = trace_of({"weights": 4.0, "logits and loss": 2.0})
    found = predicted(trace, framework=framework, stage="grpo", max_new_tokens=512)
    assert found["interval"]["allocated"][0] == 4.0 + logits


@pytest.mark.parametrize(
    ("facts", "tokens", "batch", "most"),
    [
        ({"dynamic_batch": True, "step_tokens": 4000}, 4000, 1, 5.0),
        ({"dynamic_batch": True, "step_tokens": 500}, 1000, 1, 5.0),  # a sample is never divided
        ({"dynamic_batch": True, "step_tokens": 4000, "scored_tokens": 12000}, 4000, 1, 7.0),
        ({"dynamic_batch": False, "step_tokens": 4000}, 1000, 2, 5.0),
    ],
)
def test_batches_that_are_made_by_tokens_are_one_row_of_so_many(
    predicted: Any, trace_of: Any, facts: dict[str, Any], tokens: int, batch: int, most: float
) -> None:
    trace = trace_of({"weights": 4.0, "logits and loss": 2.0})
    known = {"framework": "verl", "stage": "grpo", "max_length": 1000, "train_batch_size": 2, "batch_size": 2}
    found = predicted(trace, **known, **facts)
    assert (found["tokens"], found["job"]["batch"], found["allocated_gib"]) == (tokens, batch, most)


def test_an_optimizer_in_the_backward_pass_keeps_no_gradient(predicted: Any, trace_of: Any) -> None:
    terms = {"weights": 4.0, "gradients": 4.0, "temporary values of the optimizer": 4.0, "logits and loss": 2.0}
    fused, plain = (predicted(trace_of(terms), method="full", optimizer_in_backward=one) for one in (True, False))
    assert (fused["interval"]["allocated"][0], plain["interval"]["allocated"][0]) == (6.0, 14.0)
    assert "the optimizer steps in the backward pass, so that no gradient stays" in fused["assumed"]


def test_buckets_that_are_auto_are_those_of_the_hidden_size() -> None:
    keys = Records(({"key": "reduce_bucket_size", "value": "auto"},))
    facts = FactSet([Fact("recipe_key", keys, "ds.json", "recipe"), Fact("recipe.zero_stage", 3, "ds.json", "recipe")])
    assert settings_of(facts, 4096) == {"zero_stage": 3, "reduce_bucket": 4096**2}
    assert settings_of(facts) == {"zero_stage": 3}
    facts.update([Fact("recipe.reduce_bucket", 5e8, "--set", "given")])
    assert settings_of(facts, 4096)["reduce_bucket"] == 5e8


@rows("given engine")
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
