"""Probes of batches, the training loop and arithmetic on the real torch: right where it is, and every planted bug is
found, by its right name, with the rule that says what it means."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from envdoctor.app.probe import about_probes
from envdoctor.facts.factset import FactSet
from envdoctor.judge.finding import Finding
from envdoctor.judge.judging import judge
from envdoctor.judge.policy import Policy
from envdoctor.knowledge.matrix import load_matrix
from envdoctor.probe.catalogue import Job, find_probes
from envdoctor.probe.grouping import Case, Group, cases_of
from envdoctor.probe.results import probe_facts, results_of
from envdoctor.probe.running import Outcome, Place, run_jobs
from envdoctor.probe.session import session_of

HERE = Path(__file__).parent
KERNEL, LOOP = HERE / "inside", HERE / "inside_loop"
MODELS = HERE.parents[1] / "fixtures" / "models"
PROBES = find_probes()
#: Everything but the attention probes, which have tests of their own, and compile, which takes a compiler and minutes.
PLAIN = (
    "arithmetic",
    "checkpointing",
    "grad-accumulation",
    "grad-clip",
    "label-mask",
    "memory-cycles",
    "padded-batch",
    "repeatable",
    "rms-norm",
    "tf32",
    "training-step",
    "all-reduce",
)

pytestmark = pytest.mark.torch


class Seen(NamedTuple):
    outcomes: Sequence[Outcome]
    groups: Sequence[Group]
    findings: Sequence[Finding]

    @property
    def cases(self) -> list[Case]:
        return cases_of(self.outcomes)

    @property
    def wrong(self) -> list[Group]:
        return [group for group in self.groups if group.verdict not in ("pass", "skip")]

    @property
    def roots(self) -> set[str]:
        """Rules whose findings are folded into no other."""
        return {finding.id for finding in self.findings if finding.superseded_by is None}


Observe = Callable[..., Seen]


@pytest.fixture
def observe(torch_python: str, tmp_path: Path) -> Observe:
    """Run jobs as ``envdoctor probe`` does, on the CPU, and judge them as where training uses the CPU."""

    def run(*jobs: Job, fault: str | None = None, inside: Path = LOOP, packages: dict[str, str] | None = None) -> Seen:
        planted = {"PYTHONPATH": str(inside), "ENVDOCTOR_TEST_FAULT": fault} if fault else {}
        place = Place(torch_python, {**os.environ, **planted}, str(tmp_path), str(tmp_path), "")
        outcomes = run_jobs(jobs, place, workers=1)
        session = session_of(outcomes)
        groups = results_of(session)
        facts = FactSet()
        facts.update(probe_facts(session, groups, PROBES, suite="quick", asked=(), using=True))
        matrix = load_matrix()
        for name, version in (packages or {}).items():
            from envdoctor.facts.registry import parse_value
            from envdoctor.facts.values import Fact

            spec = matrix.registry.find(f"pkg.{name}")
            assert spec is not None
            facts.add(Fact(f"pkg.{name}", parse_value(spec, version), "test", "given"))
        judgement = judge(facts, matrix.only(about_probes), Policy())
        return Seen(outcomes, groups, judgement.findings)

    return run


def jobs(name: str, suite: str = "quick", **more: Any) -> list[Job]:
    return PROBES[name].jobs(suite, "cpu", asked=True, **more)


def batch(*models: str, dtype: str = "bf16", **options: Any) -> Job:
    return Job("padded-batch", "cpu", "quick", dtype, options={"models": list(models), **options}, seconds=240)


def test_every_plain_probe_runs_and_passes_on_a_healthy_torch(observe: Observe) -> None:
    seen = observe(*(job for name in PLAIN for job in jobs(name)))
    assert {outcome.ending for outcome in seen.outcomes} == {"ok"}, [outcome.detail for outcome in seen.outcomes]
    assert [group for group in seen.groups if group.verdict != "pass"] == []
    assert {case.observation["probe"] for case in seen.cases} == set(PLAIN)
    assert seen.findings == ()


def test_every_tiny_model_is_right_in_every_form_of_a_batch(observe: Observe) -> None:
    (first, *_) = jobs("padded-batch", "full")
    seen = observe(first)
    assert seen.outcomes[0].ending == "ok", seen.outcomes[0].detail
    assert seen.wrong == []
    built = {case.param("model") for case in seen.cases if case.verdict.verdict == "pass"}
    assert built == {
        "chatglm-like",
        "glm",
        "glm4",
        "qwen2",
        "qwen3",
        "llama",
        "mistral",
        "gemma2",
        "gemma3",
        "phi3",
        "mixtral",
    }
    skipped = {case.observation["case"]: case.verdict.why for case in seen.cases if case.verdict.verdict == "skip"}
    assert {name for name in skipped if not name.endswith("flash_attention_2")} <= {"gemma2 sdpa"}
    assert all(len(why) > 20 for why in skipped.values())
    ratios = [case.verdict.ratio for case in seen.cases if case.verdict.ratio is not None]
    assert len(ratios) >= 200
    assert max(ratios) < 4


# --- a kernel that is broken, seen through a model --------------------------------------------------------------------


def test_the_mask_bug_is_nan_in_padded_batches_only_and_the_mask_path_is_named(observe: Observe) -> None:
    seen = observe(batch("glm", "qwen2", lengths="long"), fault="tile-nan", inside=KERNEL)
    assert {(group.signature, group.batch, group.model) for group in seen.wrong} == {
        ("mask-nan", "padded", "glm"),
        ("mask-nan", "padded", "qwen2"),
    }
    for group in seen.wrong:
        # Only what moves the logits far down brings it out, as trained biases do.
        assert group.values("gain") == ("bias",)
        assert "none" not in group.values("padding")
        assert {"right", "left"} <= set(group.values("padding"))
        assert group.tensors == ("gradients",)
        for case in group.cases:
            assert "finite one by one" in case.verdict.why
            assert "equal lengths, which needs no mask, is right" in case.verdict.why
    equal = [case for case in seen.cases if case.param("padding") == "none"]
    assert {case.verdict.verdict for case in equal} == {"pass"}
    assert seen.roots == {"probe-padded-batch-nan"}
    first = next(finding for finding in seen.findings if finding.id == "probe-padded-batch-nan")
    assert "batch size 1 is fine, padded batches give NaN in gradients" in first.message.en


@pytest.mark.parametrize(
    ("fault", "signature", "rule"),
    [
        ("dead-rows", "mask-nan", "probe-padded-batch-nan"),
        ("mask-constant", "mask-differs", "probe-padded-batch-differs"),
        ("wrong-side", "mask-differs", "probe-padded-batch-differs"),
        # Norms of q and k make logits that matter even with random weights.
        ("later-rows", "batch-differs", "probe-batch-differs"),
    ],
)
def test_a_broken_kernel_shows_in_a_model(observe: Observe, fault: str, signature: str, rule: str) -> None:
    seen = observe(batch("qwen3", gains=[1]), fault=fault, inside=KERNEL)
    failed = [group for group in seen.groups if group.verdict == "fail"]
    assert {group.signature for group in failed} == {signature}
    assert {group.batch for group in failed} == {"size" if signature.startswith("batch") else "padded"}
    assert rule in seen.roots


def test_eager_attention_is_not_touched_by_a_broken_kernel(observe: Observe) -> None:
    seen = observe(batch("glm", attention=["eager"], lengths="long"), fault="tile-nan", inside=KERNEL)
    assert seen.wrong == []


def test_eager_in_fp16_is_told_only_to_a_recipe_that_loads_fp16(observe: Observe) -> None:
    job = batch("qwen2", dtype="fp16", attention=["eager"], gains=["bias"])
    assert observe(job).wrong == []
    seen = observe(replace(job, recipe={"load_dtype": "float16"}))
    assert {(group.signature, group.batch) for group in seen.wrong} == {("mask-nan", "padded")}
    assert seen.roots == {"probe-eager-fp16-padded-nan"}


# --- the training loop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "probe", "signature", "rule"),
    [
        ("checkpoint", "checkpointing", "checkpoint-differs", "probe-checkpointing-differs"),
        ("leak", "memory-cycles", "grows", "probe-memory-grows"),
        ("ignored-labels", "label-mask", "label-mask", "probe-label-mask-differs"),
        ("all-reduce", "all-reduce", "wrong-sum", "probe-all-reduce-wrong"),
        ("parameters", "training-step", "nan-parameters", "probe-parameters-nan"),
        ("clipping", "grad-clip", "norm-overflows", "probe-gradient-clipping-wrong"),
        ("linear", "arithmetic", "inaccurate", "probe-operation-inaccurate"),
        ("lost-activation", "arithmetic", "nan-output", "probe-operation-nan"),
        ("saturated-sum", "arithmetic", "wrong-sum", "probe-sum-wrong"),
        ("short-products", "tf32", "inaccurate", "probe-float32-inexact"),
        ("noise", "repeatable", "not-repeatable", "probe-not-repeatable"),
    ],
)
def test_a_planted_bug_is_found_and_named(observe: Observe, fault: str, probe: str, signature: str, rule: str) -> None:
    seen = observe(*jobs(probe), fault=fault)
    assert {outcome.ending for outcome in seen.outcomes} == {"ok"}
    assert {group.signature for group in seen.wrong} == {signature}
    assert seen.roots == {rule}


def test_an_accumulation_that_does_not_divide_is_found(observe: Observe) -> None:
    seen = observe(*jobs("grad-accumulation"), fault="accumulation")
    assert {group.signature for group in seen.wrong} == {"accumulation-scale"}
    assert seen.roots == {"probe-accumulation-differs"}
    times = {case.param("micro_batches"): case.observation["detail"] for case in seen.cases}
    assert times["4"].startswith("the step is 4 times as long")
    assert times["2"].startswith("the step is 2 times as long")


def test_a_known_release_with_the_same_signature_is_the_only_finding(observe: Observe) -> None:
    seen = observe(*jobs("grad-accumulation"), fault="accumulation", packages={"transformers": "4.48.0"})
    assert seen.roots == {"probe-accumulation-4-48-0"}


def test_a_norm_in_half_precision_is_found_in_range_and_epsilon(observe: Observe) -> None:
    seen = observe(*jobs("rms-norm"), fault="half-norm")
    assert {(group.signature, group.dtype) for group in seen.wrong if group.verdict == "fail"} == {
        ("inaccurate", "fp16"),
        ("wrong-scale", "bf16"),
        ("wrong-scale", "fp16"),
    }
    assert seen.roots == {"probe-rms-norm-inaccurate", "probe-rms-norm-epsilon"}
    known = observe(*jobs("rms-norm"), fault="half-norm", packages={"torch": "2.5.1"})
    assert known.roots == {"probe-rms-norm-to-2-5-1"}


def test_what_is_so_by_design_is_told_only_to_a_recipe_that_meets_it(observe: Observe) -> None:
    quiet = observe(*jobs("training-step"), *jobs("grad-clip"))
    assert quiet.wrong == []
    half = {"load_dtype": "float16"}
    seen = observe(*jobs("training-step", recipe=half), *jobs("grad-clip", recipe=half))
    assert seen.roots == {"probe-fp16-weights-nan", "probe-fp16-gradient-norm-overflows"}
    bf16 = observe(*jobs("training-step", recipe={"load_dtype": "bfloat16", "learning_rate": 1e-5}))
    assert bf16.roots == {"probe-weights-stand-still"}


# --- the user's own model ---------------------------------------------------------------------------------------------

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "attention_dropout": 0.1,
    "torch_dtype": "bfloat16",
    "rope_theta": 500000.0,
}
GLM = {
    "model_type": "glm",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "num_hidden_layers": 40,
    "vocab_size": 151552,
}


def folder_of(config: object, folder: Path) -> str:
    folder.mkdir()
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("config", [LLAMA, GLM, "qwen2.5-7b-instruct"], ids=["llama", "glm", "qwen2"])
def test_the_users_own_config_is_shrunk_and_runs(observe: Observe, tmp_path: Path, config: Any) -> None:
    if isinstance(config, str):
        config = json.loads((MODELS / f"{config}.json").read_text(encoding="utf-8"))["config"]
    model = folder_of(config, tmp_path / "model")
    job = Job("padded-batch", "cpu", "quick", "bf16", model=model, options={"gains": [1]}, seconds=240)
    seen = observe(job)
    assert {case.param("model") for case in seen.cases} == {f"own {config['model_type']}"}
    assert {case.verdict.verdict for case in seen.cases} == {"pass"}
    assert len(seen.cases) == 5


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "chatglm", "auto_map": {"AutoModel": "modeling_chatglm.X"}}, "in its repository, which is not"),
        ({"model_type": "no-such-model"}, "the code of no-such-model is not in this transformers"),
        ({"hidden_size": 64}, "config.json names no model_type"),
        ("{nothing", "config.json is not JSON: "),
        ("[1]", "config.json is no object"),
        ({"model_type": "llama", "num_attention_heads": "many"}, "config.json of llama: "),
        ({"model_type": "llama", "head_dim": 10**9}, "config.json of llama: heads of 1000000000 elements"),
        (None, "config.json cannot be read: No such file or directory"),
    ],
    ids=["remote code", "unknown", "no type", "broken", "list", "text", "huge", "missing"],
)
def test_a_model_that_cannot_be_built_is_skipped_in_one_sentence_and_others_run(
    observe: Observe, tmp_path: Path, config: Any, why: str
) -> None:
    model = str(tmp_path) if config is None else folder_of(config, tmp_path / "model")
    options = {"gains": [1], "models": ["chatglm-like"]}
    seen = observe(Job("padded-batch", "cpu", "quick", "bf16", model=model, options=options, seconds=240))
    assert seen.outcomes[0].ending == "ok", seen.outcomes[0].detail
    (skipped,) = (case for case in seen.cases if case.verdict.verdict == "skip")
    assert why in skipped.verdict.why
    assert "\n" not in skipped.verdict.why
    assert {case.param("model") for case in seen.cases if case.verdict.verdict == "pass"} == {"chatglm-like"}


#: As large as the published ones where a shrunk model could keep too much of it.
EXPERTS = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
}
GROUPED = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
}
WITHOUT_SDPA = {"model_type": "bloom", "hidden_size": 4096, "n_head": 32, "n_layer": 30}


@pytest.mark.parametrize(
    ("config", "backend"),
    [(EXPERTS, "sdpa"), (GROUPED, "sdpa"), (WITHOUT_SDPA, "eager")],
    ids=["experts", "groups of experts", "no sdpa"],
)
def test_models_of_experts_and_those_without_sdpa_are_measured(
    observe: Observe, tmp_path: Path, config: dict[str, Any], backend: str
) -> None:
    model = folder_of(config, tmp_path / "model")
    seen = observe(Job("padded-batch", "cpu", "quick", "bf16", model=model, options={"gains": [1]}, seconds=240))
    assert seen.outcomes[0].ending == "ok", seen.outcomes[0].detail
    assert [(case.verdict.verdict, case.observation["backend"]) for case in seen.cases] == [("pass", backend)] * 5
    (attempt,) = observe(
        Job("padded-batch", "cpu", "quick", "bf16", model=model, options={"attention": ["sdpa", "eager"], "gains": [1]})
    ).groups[:1]
    assert attempt.verdict == "pass"


def test_a_model_that_fails_on_its_way_is_an_error_and_others_are_told(observe: Observe, tmp_path: Path) -> None:
    model = folder_of({**EXPERTS, "num_experts": 1}, tmp_path / "model")
    seen = observe(Job("padded-batch", "cpu", "quick", "bf16", model=model, options={"gains": [1, 12]}, seconds=240))
    assert seen.outcomes[0].ending == "ok", seen.outcomes[0].detail
    assert [case.verdict.verdict for case in seen.cases] == ["error", "error"], "one for each gain: none ended the rest"
    assert {case.param("model") for case in seen.cases} == {"own qwen3_moe"}


def test_the_trainer_needs_accelerate() -> None:
    assert "accelerate" in PROBES["grad-accumulation"].needs
