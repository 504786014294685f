"""Will it fit: as a person asks, and reads the answer."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest
from jsonschema import validate

import envdoctor

FIXTURES = Path(__file__).parents[2] / "fixtures" / "memory"
TINY = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
RECIPE = {
    "method": "full",
    "batch_size": 4,
    "max_length": 2048,
    "load_dtype": "bf16",
    "gradient_checkpointing": "false",
}

Ask = Callable[..., Any]


@pytest.fixture
def python_alone(tmp_path: Path) -> str:
    """An interpreter that has nothing installed."""
    EnvBuilder(symlinks=os.name != "nt").create(tmp_path / "alone")
    return str(tmp_path / "alone" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


@pytest.fixture
def ask(run: Any, tmp_path: Path, traces: Path) -> Ask:
    (tmp_path / "config.json").write_text(json.dumps(TINY))

    def memory(*arguments: str, python: str = sys.executable, **recipe: object) -> Any:
        settings = [f"--set=recipe.{name}={value}" for name, value in {**RECIPE, **recipe}.items() if value]
        where = [] if "--model" in arguments else ["--model", str(tmp_path)]
        words = ["memory", "--no-config", "--no-gpu", *where, "--python", python, *settings, *arguments]
        return run(*words, env={"XDG_CACHE_HOME": str(traces), "COLUMNS": "200"}, timeout=300)

    return memory


@pytest.mark.torch
def test_it_does_not_fit_and_what_would(ask, torch_python):
    answer = ask("--gpu-memory", "3", "--format", "json", python=torch_python, optimizer="adamw_torch")
    report = answer.json
    schema = Path(envdoctor.__file__).parent / "report" / "schemas" / "report.schema.json"
    validate(report, json.loads(schema.read_bytes()))
    section = report["sections"]["memory"]
    assert (answer.code, section["verdict"], section["phase"]) == (1, "does-not-fit", "backward")
    assert [finding["id"] for finding in report["findings"]] == ["does-not-fit"]
    assert sum(term["gib"] for term in section["terms"]) == pytest.approx(section["allocated_gib"], rel=0.01)
    fitting = {name for change in section["changes"] if change["verdict"] == "fits" for name in change["set"]}
    assert {"recipe.train_batch_size", "recipe.max_length"} <= fitting


@pytest.mark.torch
def test_it_fits_and_the_bar_is_drawn(ask, torch_python):
    answer = ask("--gpu", "A6000", python=torch_python)
    assert answer.code == 0
    assert "47.5 of 47.5 GiB are free on RTX A6000: fits" in answer.out
    assert "free   |=" in answer.out and "the optimizer was not given: AdamW was taken" in answer.out
    assert "放得下" in ask("--gpu", "A6000", "--lang", "zh", python=torch_python).out


@pytest.mark.torch
def test_without_a_gpu_there_is_a_number_and_no_verdict(ask, torch_python):
    answer = ask(python=torch_python)
    assert answer.code == 0 and "does not fit" not in answer.out
    assert "no GPU is known, so whether it fits was not judged" in answer.out


def test_an_engine_asks_for_its_share_at_the_start(ask, python_alone):
    """By shipped coefficients; test_memory_stories.py asks the same with a trace."""
    engine = dict.fromkeys(RECIPE, "") | {"framework": "vllm", "gpu_memory_utilization": 0.95}
    free = ["--gpu", "A6000", "--set", "gpu.free_gib=43", "--format", "json"]
    answer = ask(*free, python=python_alone, **engine)
    section = answer.json["sections"]["memory"]
    assert (answer.code, section["verdict"], section["phase"]) == (1, "does-not-fit", "start")
    assert section["serving"]["asked_gib"] == pytest.approx(45.6)
    assert section["changes"][0]["set"] == {"recipe.gpu_memory_utilization": 0.83}
    alone = ask("--gpu", "A6000", python=python_alone, **engine)
    assert alone.code == 0 and "fits" in alone.out


@pytest.mark.parametrize(
    ("served", "weights"),
    [
        ("google/gemma-3-12b-it --tensor-parallel-size 2", 11.4),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", 29.4),
        ("google/gemma-3-12b-it --dtype float32", 45.5),
    ],
)
def test_an_engine_holds_16_bits_unless_it_is_told_otherwise(run, tmp_path, python_alone, served, weights):
    words = [f"vllm serve {served} --max-model-len 8192", "--gpu", "A100-80GB", "--no-gpu", "--python", python_alone]
    answer = run("memory", *words, "--format", "json", cwd=tmp_path)
    section = answer.json["sections"]["memory"]
    assert section["serving"]["weights_gib"] == pytest.approx(weights, abs=0.15)
    assert section["verdict"] in ("fits", "tight") and section["serving"]["cache_tokens"] > 8192


def test_no_number_for_a_length_is_exit_code_3_with_the_reason(ask, python_alone):
    answer = ask("--gpu", "A6000", python=python_alone, max_length="")
    assert answer.code == 3
    places = [
        answer.out.index(text) for text in ("x 2,048 tokens (", "Fits up to", "Peak", "Assumed", "warning: the length")
    ]
    assert places == sorted(places) and "so whether it fits was not judged" in answer.out
    assert "No findings" not in answer.out and "Incomplete" not in answer.out


TRAINS = "from transformers import Trainer, TrainingArguments\nTrainer(None, TrainingArguments('x')).train()\n"


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ({"stage": "kto"}, "KTO is counted like GRPO"),
        ({"stage": "ppo"}, "other models may be on the same GPU, each as large as this one at the most: value model"),
        (
            {"stage": "grpo", "framework": "trl", "colocate": "true"},
            "an engine that generates takes 30% of the same GPU",
        ),
        ({"method": "lora", "optimizer": "badam"}, "the optimizer badam is unknown"),
        ({"framework": "sglang"}, "mem_fraction_static was not given: 0.859"),
    ],
)
def test_what_is_not_known_exactly_gets_a_number_and_the_sentence(ask, python_alone, recipe, sentence):
    answer = ask("--gpu", "A6000", python=python_alone, **recipe)
    assert answer.code == 0
    assert "47.5 of 47.5 GiB are free on RTX A6000" in answer.out and sentence in answer.out


@pytest.mark.parametrize(("release", "forms"), [("4.44.2", "4.48"), ("4.57.6", "4.57"), ("5.23.0", "5.23")])
def test_a_lock_chooses_the_release_whose_steps_answer(run, tmp_path, release, forms):
    (tmp_path / "requirements.txt").write_text(f"torch==2.6.0\ntransformers=={release}\npeft==0.15.0\n")
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: lora\ncutoff_len: 2048\n"
        "per_device_train_batch_size: 1\nbf16: true\n"
    )
    machine = ("--recipe", "train.yaml", "--gpu", "A6000", "--no-config")
    answer = run("memory", "--lock", "requirements.txt", *machine)
    assert answer.code == 0 and answer.out.startswith("Lock file    requirements.txt\n")
    assert f"shipped coefficients of transformers {forms}\n" in answer.out and "RTX A6000: fits" in answer.out
    (tmp_path / "facts.json").write_text(
        json.dumps({"schema": "envdoctor.facts/1", "facts": {"pkg.transformers": release, "pkg.peft": "0.15.0"}})
    )
    assert f"transformers {forms}\n" in run("memory", "--facts", "facts.json", *machine).out
    (tmp_path / "loose.txt").write_text("transformers>=4.40\n")
    loose = run("memory", "loose.txt", "--target-python", "3.11", *machine)
    assert loose.code == 0 and "transformers 5." in loose.out.split("\n\n")[0]


@pytest.mark.parametrize(
    ("recipe", "division"),
    [
        ({}, "does not say how 2 GPUs share the run: each was taken to hold the whole model (data parallel)"),
        ({"world_size": 2}, "data parallel: each of 2 processes holds the whole model"),
        ({"zero_stage": 2}, "2 processes: ZeRO-2 divides optimizer states and gradients among them"),
        ({"fsdp": "true"}, "2 processes: FSDP divides optimizer states, gradients and weights among them"),
        ({"device_map": "auto"}, "device_map=auto spreads the layers of a process over 2 GPUs"),
        (
            {"method": "serve", "framework": "vllm", "tensor_parallel": 2, "max_model_len": 512},
            "divides each layer among 2 (tensor parallel)",
        ),
    ],
)
def test_how_several_cards_share_the_run_is_said_in_a_line(ask, python_alone, recipe, division):
    lines = ask("--gpu", "2x4090", "--model", "Qwen/Qwen2.5-1.5B", python=python_alone, **recipe).out.splitlines()
    assert len([line for line in lines if division in line]) == 1


def test_of_a_run_on_one_card_no_sharing_is_said(ask, python_alone):
    alone = ask("--gpu", "4090", "--model", "Qwen/Qwen2.5-1.5B", python=python_alone).out
    assert "fits" in alone and "data parallel" not in alone and "processes: " not in alone


@pytest.mark.parametrize(
    ("shown", "code"),
    # https://github.com/modelscope/ms-swift/blob/main/examples/models/qwen3_next/transformers.sh: 4 * 60GiB
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3", 0),
        ("CUDA_VISIBLE_DEVICES=0", 1),
        ("NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3", 1),
    ],
)
def test_the_gpus_that_a_command_sees_share_the_layers_of_a_model_in_ms_swift(tmp_path, run, python_alone, shown, code):
    (tmp_path / "train.sh").write_text(
        f"{shown} \\\nswift sft --model Qwen/Qwen3-Next-80B-A3B-Instruct --tuner_type lora --torch_dtype bfloat16 \\\n"
        "  --per_device_train_batch_size 1 --target_modules all-linear --max_length 2048\n"
    )
    options = ("--gpu", "A100-80GB", "--no-config", "--python", python_alone)
    answer = run("memory", "--recipe", str(tmp_path / "train.sh"), *options)
    assert answer.code == code, answer.out


@pytest.mark.parametrize(
    ("start", "gpu", "division"),
    [
        ("deepspeed", "1xA100-80GB", "one process was taken, because one GPU is known"),
        ("CUDA_VISIBLE_DEVICES=0 python", "8xA100-80GB", "Assumed      no file of the model is here"),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 deepspeed", "8xA100-80GB", "data parallel, 4 processes: ZeRO-3 divides"),
        ("deepspeed", "8xA100-80GB", "data parallel, 8 processes: ZeRO-3 divides"),
        (
            "CUDA_VISIBLE_DEVICES=0,1 swift sft",
            "8xA100-80GB",
            "device_map=auto spreads the layers of a process over 2 GPUs",
        ),
    ],
)
def test_each_gpu_that_a_run_sees_has_one_process(run, facts_file, tmp_path, start, gpu, division):
    words, zero = "--model_name_or_path Qwen/Qwen2.5-1.5B --bf16 True --model_max_length 512", ""
    if "swift" in start:
        words = "--model Qwen/Qwen2.5-1.5B --max_length 512"
    else:
        zero = " train.py --deepspeed ds.json"
        (tmp_path / "train.py").write_text(TRAINS)
        (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "run.sh").write_text(f"{start}{zero} {words}\n")
    asked = ("memory", "--facts", facts_file({}), "--recipe", "run.sh", "--gpu", gpu, "--no-config")
    answer = run(*asked, env={"COLUMNS": "200"})
    assert division in answer.out and "are free on A100-80GB" in answer.out


@pytest.mark.parametrize(("gpu", "code"), [("A100-80GB", 3), ("1xA100-80GB", 1), ("8xA100-80GB", 0)])
def test_one_gpu_that_nobody_counted_may_be_one_of_several(run, facts_file, tmp_path, gpu, code):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "train.py").write_text(TRAINS)
    words = "--model_name_or_path Qwen/Qwen2.5-7B --bf16 True --model_max_length 2048 --gradient_checkpointing True"
    (tmp_path / "run.sh").write_text(f"deepspeed train.py --deepspeed ds.json {words} --torch_dtype bfloat16\n")
    asked = ("memory", "--facts", facts_file({}), "--recipe", "run.sh", "--gpu", gpu, "--no-config")
    answer = run(*asked, env={"COLUMNS": "200"})
    assert answer.code == code and ("how many there are is not said" in answer.out) == (code == 3)


def test_an_unknown_model_and_an_unknown_gpu(ask):
    answer = ask("--model", "nobody/nothing")
    assert answer.code == 3 and "no config.json of nobody/nothing is on this machine" in answer.out
    answer = ask("--gpu", "A6001")
    assert answer.code == 2 and "no GPU of that name is known" in answer.err
    answer = ask("--gpu", "T4,A100-80GB")
    assert answer.code == 2 and "the memory is that of one machine: give one --gpu" in answer.err


def test_experts_are_packed_where_the_framework_is_told_to(run, facts_file):
    """18 GiB of weights (57 where bitsandbytes packs linear layers alone); an unknown release is tight."""
    asked = ("memory", "--facts", facts_file({}), "--format", "json", "--method", "qlora")
    asked += ("--set", "recipe.max_length=1024", "--model")

    def told(*more):
        memory = json.loads(run(*asked, *more).out)["sections"]["memory"]
        return memory["verdict"], next(term["gib"] for term in memory["terms"] if term["name"] == "weights")

    small = ("Qwen/Qwen3-30B-A3B", "--gpu", "4090")
    assert 50 < told(*small)[1] < 62 and 16 < told(*small, "--set", "recipe.quantize_experts=true")[1] < 20
    large = ("Qwen/Qwen3-Coder-Next-Base", "--gpu", "A100-80GB", "--set", "recipe.framework=unsloth")
    releases = {"2026.2.1": "does-not-fit", "2026.10.9": "fits"}
    assert told(*large)[0] == "tight"
    assert {one: told(*large, "--set", f"pkg.unsloth={one}")[0] for one in releases} == releases


@pytest.mark.parametrize(
    ("engine", "counted"),
    [("", False), ("use_vllm=False, ", False), ("use_vllm=True, ", True), ("use_vllm=len(__file__) > 9, ", True)],
)
def test_an_engine_is_beside_the_training_where_it_is_switched_on(run, tmp_path, engine, counted):
    """TRL 1.0 places it on the same GPU by default, and starts none by default."""
    (tmp_path / "list.txt").write_text("trl==1.7.1\ntransformers==5.13.0\n")
    (tmp_path / "t.py").write_text(
        f"""from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig("out", {engine}max_completion_length=256, per_device_train_batch_size=2, num_generations=2, bf16=True)
GRPOTrainer(model="Qwen/Qwen2.5-1.5B-Instruct", args=args).train()
"""
    )
    asked = ("--lock", "list.txt", "--recipe", "t.py", "--gpu", "A100-80G", "--set=recipe.max_length=512")
    result = run("memory", *asked, cwd=tmp_path)
    assert ("engine that generates takes" in result.out) == counted and "Memory " in result.out


def test_a_step_of_grpo_may_have_shorter_answers(run, facts_file):
    known = "max_length=8192 stage=grpo batch_size=16 world_size=8 fsdp=true framework=verl gradient_checkpointing=true"
    sets = [word for one in known.split() for word in ("--set", f"recipe.{one}")]
    asked = ("memory", "--facts", facts_file({}), "--model", "Qwen/Qwen2.5-3B-Instruct", "--method", "full")
    result = run(*asked, "--gpu", "H100", *sets)
    assert "a step with a short one takes as little as" in result.out
    assert result.code == 0 and "are free on H100 80GB: tight" in result.out


@pytest.mark.parametrize(
    ("release", "assumed", "change"),
    [
        ({}, "gradient checkpointing was not given: it was taken to be on, as the newest verl has it", "lora_rank=8"),
        ({"pkg.verl": "0.1"}, None, "enable_gradient_checkpointing=true"),
        ({"pkg.verl": "0.6.0"}, None, "lora_rank=8"),
    ],
)
def test_verl_checkpoints_unless_it_is_an_old_release_and_changes_are_hydras(
    run, facts_file, tmp_path, release, assumed, change
):
    options = {"model.path": "Qwen/Qwen2.5-7B", "actor.ppo_micro_batch_size_per_gpu": "48"}
    words = " ".join(f"actor_rollout_ref.{key}={value}" for key, value in options.items())
    (tmp_path / "run.sh").write_text(f"python -m verl.trainer.main_ppo {words} trainer.n_gpus_per_node=8\n")
    asked = ("--facts", facts_file(release), "--recipe", "run.sh", "--gpu", "8xA100-80G")
    out = run("memory", *asked, "--set", "recipe.stage=grpo", cwd=tmp_path).out
    assert f"actor_rollout_ref.model.{change}" in out and "--actor" not in out
    assert "optim.optimizer" not in out  # takes names of classes, which adamw_8bit is none of
    assert (assumed in out) if assumed else ("checkpointing was not given" not in out)


def test_how_several_gpus_share_a_run_that_one_does_not_hold_is_asked_for(run, facts_file):
    """Layers over all of them, ZeRO-3 and FSDP stand in no file of many recipes: no verdict is false."""
    asked = ("memory", "--facts", facts_file({}), "--set", "recipe.max_length=512")
    asked += ("--model", "meta-llama/Meta-Llama-3-70B", "--method", "full")
    result = run(*asked, "--gpu", "8xH100")
    assert result.code == 3 and "how 8 share it is not known: give --set recipe.zero_stage=3" in result.out
    assert run(*asked, "--gpu", "H100").code == run(*asked, "--gpu", "8xH100", "--set", "recipe.world_size=8").code == 1


LOADER = "class Mine(Trainer):\n    def get_train_dataloader(self):\n        return self.batches\n"
TEACHER = """teacher = AutoModelForCausalLM.from_pretrained('a/b')
for weight in teacher.parameters():
    weight.requires_grad = False
"""


def script(model, lines):
    return f"""from transformers import AutoModelFor{model}, Trainer, TrainingArguments
{lines}model = AutoModelFor{model}.from_pretrained("Qwen/Qwen2.5-0.5B")
arguments = TrainingArguments("out", per_device_train_batch_size={"size" if "size =" in lines else 1})
{"Mine" if "Mine" in lines else "Trainer"}(model, arguments).train()
"""


@pytest.mark.parametrize(
    ("model", "lines", "typed", "fact"),
    [
        ("CausalLM", LOADER, "recipe.world_size=1", "recipe.batch_size"),
        ("CausalLM", LOADER, "recipe.batch_size=4", ""),
        ("CausalLM", "size = int(open('n').read())\n", "recipe.world_size=1", "recipe.batch_size"),
        ("CausalLM", "", "recipe.other_models=a/b", "recipe.reference_model"),
        ("CausalLM", TEACHER, "recipe.world_size=1", "recipe.reference_model"),
        ("CausalLM", TEACHER, "recipe.reference_model=copy", "recipe.reference_model"),
        ("CausalLM", TEACHER, "recipe.reference_model=none", ""),
        ("MaskedLM", "", "recipe.stage=sft", "model.architectures"),
    ],
)
def test_a_run_with_more_than_is_counted_fits_where_that_is_given(run, tmp_path, model, lines, typed, fact):
    (tmp_path / "t.py").write_text(script(model, lines))
    (tmp_path / "list.txt").write_text("transformers==4.57.6\n")
    asked = ("--lock", "list.txt", "--recipe", "t.py", "--gpu", "A100-80G", "--set=recipe.max_length=256")
    section = run("memory", *asked, f"--set={typed}", "--format", "json", cwd=tmp_path).json["sections"]["memory"]
    assert (section["verdict"], section["settled_by"]) == ("fits" if not fact else None, fact)


@pytest.mark.parametrize(
    ("model", "asked", "gib", "verdict"),
    [
        # is_trainable of transformers' quantizers is False for both.
        ("openai/gpt-oss-20b", "method=lora", 38.9, "does-not-fit"),
        ("openai/gpt-oss-20b", "method=qlora", 38.9, "does-not-fit"),
        ("nvidia/Qwen3-30B-A3B-NVFP4", "method=lora", 56.8, "does-not-fit"),
        ("openai/gpt-oss-20b", "method=infer", 11.9, "fits"),
        ("openai/gpt-oss-20b", "method=infer recipe.dequantize=true", 38.9, "does-not-fit"),
        # Unsloth packs them with bitsandbytes, or keeps them packed in some releases alone; its attention is its own.
        ("openai/gpt-oss-20b", "method=qlora recipe.framework=unsloth recipe.max_length=8192", 11.9, "tight"),
        ("openai/gpt-oss-20b", "method=lora recipe.framework=unsloth", 11.9, "tight"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "method=lora", 8.6, "tight"),
        # Experts in one tensor are no linear layers.
        ("Qwen/Qwen3-30B-A3B", "method=lora recipe.quantization=bnb-8bit", 56.0, "does-not-fit"),
        # One long sample beside short ones, which are not padded; keys and values of a shape that is not known.
        ("Qwen/Qwen3-4B", "method=lora recipe.batch_size=16 recipe.padding_free=true", 7.5, "tight"),
        ("acme/Other-7B-AWQ", "method=serve recipe.max_model_len=262144", 5.2, "tight"),
    ],
)
def test_weights_are_counted_as_a_training_has_them(run, python_alone, model, asked, gib, verdict):
    words = ("max_length=1024", "gradient_checkpointing=true", *asked.replace("recipe.", "").split())
    settings = [part for word in words for part in ("--set", f"recipe.{word}")]
    options = ("--model", model, "--gpu", "3090", "--no-config", "--python", python_alone, "--format", "json")
    section = run("memory", *options, *settings).json["sections"]["memory"]
    weights = next(term["gib"] for term in section["terms"] if term["name"] == "weights")
    assert (section["verdict"], weights) == (verdict, pytest.approx(gib, abs=0.1))


def test_a_facts_file_settles_nothing_that_its_script_leaves_open(run, tmp_path):
    (tmp_path / "t.py").write_text(script("CausalLM", TEACHER))
    (tmp_path / "f.json").write_text(run("facts", "--recipe", "t.py", "--format", "json", cwd=tmp_path).out)
    asked = ("--facts", "f.json", "--gpu", "A100-80G", "--set=recipe.max_length=256")
    assert run("memory", *asked, cwd=tmp_path).code == 3
