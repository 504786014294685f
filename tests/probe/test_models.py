"""Probes of batches, the training loop and arithmetic on the real torch: right where it is, and every planted bug is
found, by its right name, with the rule that says what it means."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted import batch, few, jobs, seen
from trials import suite_jobs

from envdoctor.experiments import Job, Outcome

MODELS = Path(__file__).parents[2] / "fixtures" / "models"
#: What the quick suite asks of a CPU.
USUAL = suite_jobs()

#: fault -> what the gradients of a model tell, and the rule that says so where nothing is known of the kernel itself.
THROUGH_A_MODEL = {
    "dead-rows": ("mask-nan", "probe-padded-batch-nan"),
    "mask-constant": ("mask-differs", "probe-padded-batch-differs"),
    "wrong-side": ("mask-differs", "probe-padded-batch-differs"),
    # Norms of q and k make logits that matter even with random weights.
    "later-rows": ("batch-differs", "probe-batch-differs"),
}
#: fault -> probe, signature, rule.
LOOP = {
    "checkpoint": ("checkpointing", "checkpoint-differs", "probe-checkpointing-differs"),
    "leak": ("memory-cycles", "grows", "probe-memory-grows"),
    "ignored-labels": ("arithmetic", "inaccurate", "probe-operation-inaccurate"),
    "all-reduce": ("all-reduce", "wrong-sum", "probe-all-reduce-wrong"),
    "parameters": ("training-step", "nan-parameters", "probe-parameters-nan"),
    "clipping": ("grad-clip", "norm-overflows", "probe-gradient-clipping-wrong"),
    "linear": ("arithmetic", "inaccurate", "probe-operation-inaccurate"),
    "lost-activation": ("arithmetic", "nan-output", "probe-operation-nan"),
    "saturated-sum": ("arithmetic", "inaccurate", "probe-operation-inaccurate"),
    "short-products": ("tf32", "inaccurate", "probe-float32-inexact"),
    "noise": ("repeatable", "not-repeatable", "probe-not-repeatable"),
    "accumulation": ("grad-accumulation", "accumulation-scale", "probe-accumulation-differs"),
}
#: fault of one setting of training -> probe, rule, what its finding says; all else that the probe tries is right.
SETTINGS = {
    "unscaled": ("mixed-precision", "probe-mixed-precision-differs", "to fp16 with GradScaler): relative"),
    "bf16-setting": (
        "trainer-training",
        "probe-trainer-training-differs",
        "(bf16=True: 2 epochs of 5 samples by 2): relative",
    ),
    "resumed-optimizer": ("trainer-training", "probe-resume-differs", "not as saved: learning rate"),
    "resumed-random": ("trainer-training", "probe-resume-differs", "not as saved: random numbers"),
    "ddp-alone": ("parallel-training", "probe-parallel-training-differs", "in 2 of 4 ways (two steps by D"),
    "fsdp-sum": ("parallel-training", "probe-parallel-training-differs", "in 2 of 4 ways (two steps by F"),
}
_HALF = {"load_dtype": "float16"}
_EAGER = batch("qwen2", dtype="fp16", attention=["eager"], gains=["bias"])
WANTED = {
    # Nothing is wrong; recipes that some probes care about.
    "usual": (None, USUAL),
    "lora": (None, jobs("lora", "full")),
    "half": (None, [*jobs("training-step", recipe=_HALF), *jobs("grad-clip", recipe=_HALF)]),
    "bf16": (None, jobs("training-step", recipe={"load_dtype": "bfloat16", "learning_rate": 1e-5})),
    "eager": (None, [_EAGER]),
    "eager half": (None, [replace(_EAGER, recipe=_HALF)]),
    # Tiny models over kernels with a fault.
    "tile-nan": ("tile-nan", [batch("glm", "qwen2", lengths="long")]),
    "eager over tile-nan": ("tile-nan", [batch("glm", attention=["eager"], lengths="long")]),
    **{fault: (fault, [batch("qwen3", gains=[1])]) for fault in THROUGH_A_MODEL},
    # Each fault of the loop under the probe that is there for it.
    **{fault: (fault, jobs(probe)) for fault, (probe, _, _) in LOOP.items()},
    "half-norm": ("half-norm", jobs("rms-norm")),
    **{fault: (fault, few(probe)) for fault, (probe, _, _) in SETTINGS.items()},
    "stale-half": ("stale-half", [*few("mixed-precision"), *few("trainer-training")]),
    "parallel": (None, jobs("parallel-training", "full")),
}


pytestmark = pytest.mark.torch
Found = dict[str, list[Outcome]]


# --- nothing is wrong -------------------------------------------------------------------------------------------------


def test_the_quick_suite_runs_and_passes_on_a_healthy_torch(outcomes: Found) -> None:
    result = seen(outcomes["usual"])
    assert [group for group in result.groups if group.verdict != "pass"] == []
    assert {case.observation["probe"] for case in result.cases} == {job.probe for job in USUAL}
    assert len({job.probe for job in USUAL}) >= 25
    assert result.findings == ()


def test_lora_in_all_its_kinds_is_right(outcomes: Found) -> None:
    result = seen(outcomes["lora"])
    assert [case.observation["case"] for case in result.cases if case.verdict.wrong] == []
    assert result.told == []


def test_what_is_so_by_design_is_told_only_to_a_recipe_that_meets_it(outcomes: Found) -> None:
    assert seen(outcomes["half"]).roots == {"probe-fp16-weights-nan", "probe-fp16-gradient-norm-overflows"}
    assert seen(outcomes["bf16"]).roots == {"probe-weights-stand-still"}


def test_eager_in_fp16_is_told_only_to_a_recipe_that_loads_fp16(outcomes: Found) -> None:
    assert seen(outcomes["eager"]).wrong == []
    result = seen(outcomes["eager half"])
    assert {(group.signature, group.batch) for group in result.wrong} == {("mask-nan", "padded")}
    assert result.roots == {"probe-eager-fp16-padded-nan"}


@pytest.mark.slow
def test_every_tiny_model_is_right_in_every_form_of_a_batch(outcomes: Found) -> None:
    result = seen(outcomes["all tiny models"])
    assert result.wrong == []
    built = {case.param("model") for case in result.cases if case.verdict.verdict == "pass"}
    assert built == {
        *("chatglm-like", "glm", "glm4", "qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3", "phi3", "mixtral")
    }
    skipped = {case.title: case.verdict.why for case in result.cases if case.verdict.verdict == "skip"}
    assert {name for name in skipped if not name.endswith("flash_attention_2")} <= {"gemma2 sdpa"}
    assert all(len(why) > 20 for why in skipped.values())
    ratios = [case.verdict.ratio for case in result.cases if case.verdict.ratio is not None]
    assert len(ratios) >= 200
    assert max(ratios) < 4


# --- a kernel that is broken, seen through a model --------------------------------------------------------------------


def test_the_mask_bug_is_nan_in_padded_batches_only_and_the_mask_path_is_named(outcomes: Found) -> None:
    result = seen(outcomes["tile-nan"])
    wrong = {(group.signature, group.batch, group.model) for group in result.wrong}
    assert wrong == {("mask-nan", "padded", model) for model in ("glm", "qwen2")}
    assert {group.tensors for group in result.wrong} == {("gradients",)}
    broken = [case for case in result.cases if case.verdict.signature == "mask-nan"]
    # Only what moves the logits far down brings it out, as trained biases do.
    assert {case.param("gain") for case in broken} == {"bias"}
    assert {"right", "left"} <= {case.param("padding") for case in broken}
    assert "none" not in {case.param("padding") for case in broken}
    for case in broken:
        assert "finite one by one" in case.verdict.why
        assert "equal lengths, which needs no mask, is right" in case.verdict.why
    equal = [case for case in result.cases if case.param("padding") == "none"]
    assert {case.verdict.verdict for case in equal} == {"pass"}
    # One finding for both models: the first stands for the others, and names them.
    (finding,) = result.told
    assert (finding.id, finding.item["model"]) == ("probe-padded-batch-nan", "glm")
    assert "batch size 1 is fine, padded batches give NaN in gradients" in finding.message.en
    assert [fact.value for fact in finding.facts if fact.key == "probe"] == [
        "padded-batch cpu bf16 sdpa mask-nan qwen2"
    ]


@pytest.mark.parametrize("fault", THROUGH_A_MODEL)
def test_a_broken_kernel_shows_in_a_model(outcomes: Found, fault: str) -> None:
    signature, rule = THROUGH_A_MODEL[fault]
    result = seen(outcomes[fault])
    failed = [group for group in result.groups if group.verdict == "fail"]
    assert {group.signature for group in failed} == {signature}
    assert {group.batch for group in failed} == {"size" if signature.startswith("batch") else "padded"}
    assert rule in result.roots


def test_eager_attention_is_not_touched_by_a_broken_kernel(outcomes: Found) -> None:
    assert seen(outcomes["eager over tile-nan"]).wrong == []


# --- the training loop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", LOOP)
def test_a_planted_bug_is_found_and_named(outcomes: Found, fault: str) -> None:
    _, signature, rule = LOOP[fault]
    result = seen(outcomes[fault])
    assert {group.signature for group in result.wrong} >= {signature}
    assert [finding.id for finding in result.told] == [rule]
    if fault == "accumulation":
        times = {case.param("micro_batches"): case.observation["detail"] for case in result.cases}
        assert all(times[number].startswith(f"the step is {number} times as long") for number in ("2", "4"))


@pytest.mark.parametrize("fault", SETTINGS)
def test_a_planted_bug_of_one_setting_names_the_setting(outcomes: Found, fault: str) -> None:
    _, rule, says = SETTINGS[fault]
    result = seen(outcomes[fault])
    (finding,) = result.told
    assert finding.id == rule
    assert says in finding.message.en
    other = [case.verdict.verdict for case in result.cases if not case.verdict.wrong]
    assert other and set(other) == {"pass"}, "only that setting is wrong"


def test_weights_that_autocast_keeps_are_named_once(outcomes: Found) -> None:
    result = seen(outcomes["stale-half"])
    assert {case.observation["probe"] for case in result.cases if case.verdict.wrong} == {
        *("mixed-precision", "trainer-training")
    }
    assert result.roots == {"probe-mixed-precision-differs"}


def test_two_healthy_processes_train_as_one(outcomes: Found) -> None:
    result = seen(outcomes["parallel"])
    assert [case.verdict.verdict for case in result.cases] == ["pass"] * 4
    assert result.findings == ()


@pytest.mark.parametrize(
    ("fault", "packages", "roots"),
    [
        ("accumulation", {"transformers": "4.48.0"}, {"probe-accumulation-4-48-0"}),
        ("half-norm", {"torch": "2.5.1"}, {"probe-rms-norm-to-2-5-1"}),
        ("half-norm", {}, {"probe-rms-norm-epsilon", "probe-rms-norm-inaccurate"}),
    ],
)
def test_a_known_release_with_the_same_signature_is_the_only_finding(
    outcomes: Found, fault: str, packages: dict[str, str], roots: set[str]
) -> None:
    assert seen(outcomes[fault], packages).roots == roots


def test_a_norm_in_half_precision_is_found_in_range_and_epsilon(outcomes: Found) -> None:
    failed = [group for group in seen(outcomes["half-norm"]).wrong if group.verdict == "fail"]
    assert {(group.signature, group.dtype) for group in failed} == {
        ("inaccurate", "fp16"),
        ("wrong-scale", "bf16"),
        ("wrong-scale", "fp16"),
    }


# --- the user's own model ---------------------------------------------------------------------------------------------

#: As large as the published ones where a shrunk model could keep too much of it.
_EXPERTS = {
    **{"model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4},
    **{"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "norm_topk_prob": True,
}
OWN: dict[str, Any] = {
    "llama": {
        **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "vocab_size": 128256},
        **{"intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16},
        **{"head_dim": 64, "max_position_embeddings": 131072, "attention_dropout": 0.1, "torch_dtype": "bfloat16"},
        "rope_theta": 500000.0,
    },
    "glm": {
        **{"model_type": "glm", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 2},
        **{"head_dim": 128, "partial_rotary_factor": 0.5, "attention_bias": True, "num_hidden_layers": 40},
        "vocab_size": 151552,
    },
    "qwen2": json.loads((MODELS / "qwen2.5-7b-instruct.json").read_text(encoding="utf-8"))["config"],
    "experts": _EXPERTS,
    "groups of experts": {
        **{"model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "n_routed_experts": 256},
        **{"num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512},
        "moe_intermediate_size": 2048,
    },
    "no sdpa": {"model_type": "bloom", "hidden_size": 4096, "n_head": 32, "n_layer": 30},
}
#: A config.json that no model can be made of, and what is said of it.
UNUSABLE: dict[str, tuple[Any, str]] = {
    "remote code": (
        {"model_type": "chatglm", "auto_map": {"AutoModel": "modeling_chatglm.X"}},
        "in its repository, which is not",
    ),
    "unknown": ({"model_type": "no-such-model"}, "the code of no-such-model is not in this transformers"),
    "no type": ({"hidden_size": 64}, "config.json names no model_type"),
    "broken": ("{nothing", "config.json is not JSON: "),
    "list": ("[1]", "config.json is no object"),
    "text": ({"model_type": "llama", "num_attention_heads": "many"}, "config.json of llama: "),
    "huge": ({"model_type": "llama", "head_dim": 10**9}, "config.json of llama: heads of 1000000000 elements"),
    "missing": (None, "config.json cannot be read: "),
}


def wanted_by_slow(scratch: Path) -> dict[str, tuple[str | None, list[Job]]]:
    """The padded batch of all tiny models, and of models that somebody gives."""

    def about(name: str, config: Any, **options: Any) -> list[Job]:
        folder = scratch / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        if config is not None:
            text = config if isinstance(config, str) else json.dumps(config)
            (folder / "config.json").write_text(text, encoding="utf-8")
        return [replace(batch(), model=str(folder), options={"gains": [1], **options})]

    wanted: dict[str, tuple[str | None, list[Job]]] = {"all tiny models": (None, jobs("padded-batch", "full")[:1])}
    wanted |= {f"own {name}": (None, about(name, config)) for name, config in OWN.items()}
    one = {**_EXPERTS, "num_experts": 1}
    wanted["fails on its way"] = (None, about("fails on its way", one, gains=[1, 12]))
    wanted["both"] = (None, about("no sdpa", OWN["no sdpa"], attention=["sdpa", "eager"]))
    for name, (config, _) in UNUSABLE.items():
        wanted[name] = (None, about(name, config, models=["chatglm-like"]))
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_users_own_config_is_shrunk_and_runs(outcomes: Found, name: str) -> None:
    cases = seen(outcomes[f"own {name}"]).cases
    assert {case.param("model") for case in cases} == {f"own {OWN[name]['model_type']}"}
    backend = "eager" if name == "no sdpa" else "sdpa"
    assert [(case.verdict.verdict, case.observation["backend"]) for case in cases] == [("pass", backend)] * 5


@pytest.mark.slow
def test_a_model_without_sdpa_is_measured_as_it_was_asked_for(outcomes: Found) -> None:
    result = [(case.verdict.verdict, case.observation["backend"]) for case in seen(outcomes["both"]).cases]
    assert result == [("skip", "sdpa"), *[("pass", "eager")] * 5]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_model_that_cannot_be_built_is_skipped_in_one_sentence_and_others_run(outcomes: Found, name: str) -> None:
    cases = seen(outcomes[name]).cases
    (skipped,) = (case for case in cases if case.verdict.verdict == "skip")
    assert UNUSABLE[name][1] in skipped.verdict.why
    assert "\n" not in skipped.verdict.why
    assert {case.param("model") for case in cases if case.verdict.verdict == "pass"} == {"chatglm-like"}


@pytest.mark.slow
def test_a_model_that_fails_on_its_way_is_an_error_and_others_are_told(outcomes: Found) -> None:
    cases = seen(outcomes["fails on its way"]).cases
    assert [case.verdict.verdict for case in cases] == ["error", "error"], "one for each gain: none ended the rest"
    assert {case.param("model") for case in cases} == {"own qwen3_moe"}
