"""``check`` says whether the run fits where that is known without starting anything, and what would tell where not."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MODELS = Path(__file__).parents[2] / "fixtures" / "memory"
RECIPE = """\
per_device_train_batch_size: 8
gradient_checkpointing: false
bf16: true
optim: adamw_torch
"""


@pytest.fixture
def check(run: Callable[..., Any], facts_file: Callable[..., str], tmp_path: Path) -> Callable[..., Any]:
    (tmp_path / "train.yaml").write_text(RECIPE)
    facts = {"pkg.torch": "2.13.0", "pkg.transformers": "5.23.0", "pkg.peft": "0.21.0", "python.version": "3.11.9"}
    path = facts_file(facts)

    def ask(*words: str, model: str = "llama-3-8b") -> Any:
        given = ["--facts", path, "--recipe", "train.yaml", "--model", str(MODELS / model)]
        given += ["--set", "recipe.max_length=2048", "--set", "recipe.method=lora", "--set", "recipe.load_dtype=bf16"]
        return run("check", "--no-config", *given, "--set", "recipe.lora_targets=all-linear", *words)

    return ask


def test_it_does_not_fit_by_shipped_coefficients_and_a_smaller_batch_does(check):
    answer = check("--set", "gpu.name=A6000", "--format", "json")
    report = answer.json
    section = report["sections"]["memory"]
    assert (answer.code, section["level"], section["verdict"]) == (1, "shipped", "does-not-fit")
    assert "does-not-fit" in {finding["id"] for finding in report["findings"]}
    assert any(change["verdict"] == "fits" for change in section["changes"])
    text = check("--set", "gpu.name=A6000").out
    assert "error[does-not-fit]" in text and "shipped coefficients of transformers 5." in text
    assert "gradient_checkpointing: true (" in text and " GiB of tensors, fits)" in text
    assert "per_device_train_batch_size: 1 (" in text
    shown = [check("--set", "gpu.name=A6000", *words).out.count("nvidia-smi may show") for words in ([], ["-v"])]
    assert shown == [0, 1]
    card = " ".join(text[text.index("error[does-not-fit]") :].split())
    assert re.search(r"needs more than [\d.]+ GiB, .* fix [a-z_]+: \w+.* [(][\d.]+ GiB of tensors, fits[)] why ", card)
    assert "four of five real runs needed at least this" in card
    assert "found  verdict on memory" not in text
    smaller = check("--set", "gpu.name=A6000", "--set", "recipe.batch_size=1").out
    assert "47.5 of 47.5 GiB are free on RTX A6000: fits" in smaller and "does-not-fit" not in smaller


def test_each_size_of_a_card_is_judged_and_where_they_differ_nobody_can_tell(check):
    differs = check("--target-gpu", "A100", "--set", "recipe.train_batch_size=2")
    sizes = "A100 is sold in several sizes: it does not fit 40 GB; it fits 80 GB"
    assert differs.code == 3 and sizes + "; name the one that is meant, such as A100-80GB" in differs.out
    assert "does-not-fit" not in differs.out
    small = check("--target-gpu", "V100", "--format", "json")
    assert small.code == 1 and "does-not-fit" in {finding["id"] for finding in small.json["findings"]}
    assert small.json["sections"]["memory"]["gpu"] == "V100 16GB"


def test_where_nothing_is_known_one_line_names_the_command(check, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "falcon", "hidden_size": 64}))
    answer = check("--set", "gpu.name=A6000", "--quiet", model=str(tmp_path))
    assert "envdoctor memory" not in answer.out
    text = " ".join(check("--set", "gpu.name=A6000", model=str(tmp_path)).out.split())
    said = text.partition("whether this run fits into memory was not judged (")[2]
    why, _, command = said.partition("): ")
    assert len(why.split()) > 3 and command.startswith("envdoctor memory --facts ") and "--model" in command, said
    assert "--recipe train.yaml --set recipe.max_length=2048" in text


def test_a_model_with_code_of_its_own_has_a_number_with_any_transformers(check):
    words = ("--set", "gpu.name=T4", "--set", "pkg.transformers=4.37.2", "--format", "json")
    section = check(*words, model="chatglm3-6b").json["sections"]["memory"]
    assert (section["level"], section["verdict"]) == ("shipped", "does-not-fit")


def test_a_model_whose_folder_is_elsewhere_is_judged_by_its_name(run, facts_file, tmp_path):
    def section(**model: str) -> Any:
        facts = {"pkg.torch": "2.13.0", "pkg.transformers": "5.23.0", "python.version": "3.11.9", "gpu.name": ["A6000"]}
        facts |= {"model.repo": "Qwen/Qwen2.5-7B-Instruct", "model.path": str(tmp_path / "elsewhere")}
        facts |= {"model.dtype": "bfloat16"} | {f"model.{name}": value for name, value in model.items()}
        words = [f"recipe.{one}" for one in ("max_length=2048", "method=lora", "batch_size=1", "load_dtype=bf16")]
        sets = [word for one in words for word in ("--set", one)]
        answer = run("check", "--no-config", "--facts", facts_file(facts), *sets, "--format", "json")
        return answer.json["sections"].get("memory")

    whole, packed = section(), section(quantization="gptq")
    assert whole["parameters"] == packed["parameters"] == 7_615_616_512
    assert 8.5 < whole["allocated_gib"] - packed["allocated_gib"] < 9.5 and section(repo="nobody/nothing") is None


@pytest.mark.parametrize(("gpu", "change"), [("A6000", False), ("4090", True)])
def test_without_a_length_a_recipe_is_told_the_longest_samples_that_fit(run, facts_file, tmp_path, gpu, change):
    text = "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --dataset a --per_device_train_batch_size 1"
    (tmp_path / "run.sh").write_text(text)
    facts = {"pkg.torch": "2.6.0", "pkg.transformers": "4.51.3", "python.version": "3.11.9", "gpu.name": [gpu]}
    answer = run("check", "--no-config", "--facts", facts_file(facts), "--recipe", "run.sh")
    assert answer.code == 0 and "Fits up to   batch 1 x " in answer.out and "batch 2 x " in answer.out
    assert "note: the length is not known, so whether it fits was not judged" in answer.out
    assert ("--quant_bits 4 (" in answer.out) == change and "max_length 1920" not in answer.out


@pytest.mark.parametrize(("gpu", "first"), [("A100-80G", ()), ("A100-40GB", ("recipe.train_batch_size",))])
def test_processes_that_each_hold_the_whole_model_may_divide_it(run, facts_file, tmp_path, gpu, first):
    arguments = (
        "--bf16 --gradient_checkpointing --per_device_train_batch_size 4 --max_length 4096 --torch_dtype bfloat16"
    )
    (tmp_path / "run.sh").write_text(
        f"torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct {arguments}\n"
    )
    (tmp_path / "sft.py").write_text("from trl import SFTTrainer\nSFTTrainer(None).train()\n")
    facts = {"pkg.torch": "2.6.0", "pkg.transformers": "4.51.3", "python.version": "3.11.9", "gpu.name": [gpu]}
    answer = run("check", "--no-config", "--facts", facts_file(facts), "--recipe", "run.sh", "--format", "json")
    changes = answer.json["sections"]["memory"]["changes"]
    assert answer.code == 1 and changes[0]["verdict"] == "fits"
    assert changes[0]["set"].keys() == {"recipe.zero_stage", *first}
    assert changes[0]["keys"]["recipe.zero_stage"] == 'deepspeed: "zero_optimization.stage": 3'
    # What a smaller change does already is not offered with more.
    assert any("recipe.offload_optimizer" in change["set"] for change in changes) == bool(first)


def test_a_framework_whose_file_names_that_of_deepspeed_is_told_so(run, facts_file, tmp_path):
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: Qwen/Qwen3-14B\nstage: sft\nfinetuning_type: full\ntemplate: qwen\ncutoff_len: 4096\n"
        "bf16: true\nper_device_train_batch_size: 2\n"
    )
    words = ("--recipe", "train.yaml", "--gpu", "8xA800-80GB", "--format", "json", "--no-config")
    answer = run("memory", "--facts", facts_file({"pkg.transformers": "4.51.3"}), *words)
    told = {change["keys"].get("recipe.zero_stage") for change in answer.json["sections"]["memory"]["changes"]}
    assert 'deepspeed: FILE ("zero_optimization.stage": 3)' in told


def test_a_batch_that_is_halved_until_it_fits_is_no_error(check):
    words = ("--set", "gpu.name=A6000", "--set", "recipe.auto_find_batch_size=true")
    assert (answer := check(*words)).code == 0 and "auto_find_batch_size halves the batch until it fits" in answer.out
    assert check(*words, "--set", "recipe.max_length=65536").code == 1


@pytest.mark.parametrize(("test", "code"), [("True", 0), ("False", 1), ("len(os.listdir()) > 3", 3)])
def test_weights_that_an_undecided_test_quantises_are_no_error(run, facts_file, tmp_path, test, code):
    text = f"""import os
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
four = None
if {test}:
    four = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B", quantization_config=four)
model = get_peft_model(model, LoraConfig(r=8))
arguments = TrainingArguments("o", bf16=True, per_device_train_batch_size=1, gradient_checkpointing=True)
Trainer(model=model, args=arguments).train()
"""
    (tmp_path / "t.py").write_text(text)
    facts = {"pkg.torch": "2.6.0", "pkg.transformers": "4.51.3", "python.version": "3.11.9", "gpu.name": ["RTX A4000"]}
    words = ("--set", "recipe.max_length=512", "--target-gpu", "RTX A4000")
    answer = run("check", "--no-config", "--facts", facts_file(facts), "--recipe", "t.py", *words)
    assert answer.code == code
    assert ("give --set recipe.quantization=bnb-4bit" in answer.out) is (code == 3)


TUNER = """from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
def load(args):
    four = BitsAndBytesConfig(load_in_4bit=True)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, quantization_config=four)
    return get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(r=8))
"""
OWN_OPTIONS = """from dataclasses import dataclass
from transformers import HfArgumentParser, Trainer, TrainingArguments
from tuner.mod import load
@dataclass
class Options:
    model_name_or_path: str = "meta-llama/Meta-Llama-3-8B-Instruct"
    model_max_length: int = 2048
    bf16: bool = True
options = HfArgumentParser([Options]).parse_args_into_dataclasses()[0]
arguments = TrainingArguments("o", bf16=options.bf16, per_device_train_batch_size=1)
Trainer(model=load(options), args=arguments).train()
"""


@pytest.mark.parametrize(
    ("package", "gpu", "code", "verdict"),
    [
        ("src/tuner", "RTX 4090", 0, "fits"),
        ("ex/tuner", "RTX 4090", 0, "fits"),
        ("gone/tuner", "RTX 4090", 3, None),  # the package that makes the model is not here
        ("gone/tuner", "H200", 0, "fits"),
    ],
)
def test_a_model_that_a_module_makes_is_made_as_the_module_says(run, facts_file, tmp_path, package, gpu, code, verdict):
    (tmp_path / package).mkdir(parents=True)
    (tmp_path / package / "mod.py").write_text(TUNER)
    (tmp_path / "ex").mkdir(exist_ok=True)
    (tmp_path / "ex" / "sft.py").write_text(OWN_OPTIONS)
    (tmp_path / "run.sh").write_text("accelerate launch ex/sft.py --model_max_length 2048 --bf16 True\n")
    facts = {"pkg.torch": "2.6.0", "pkg.transformers": "4.51.3", "python.version": "3.11.9", "gpu.name": [gpu]}
    words = ("--facts", facts_file(facts), "--recipe", "run.sh", "--target-gpu", gpu, "--format", "json")
    answer = run("check", "--no-config", *words)
    assert (answer.code, answer.json["sections"]["memory"]["verdict"]) == (code, verdict)
    assert [one["id"] for one in answer.json["findings"] if one["severity"] == "error"] == []


def test_what_a_script_hands_to_its_arguments_is_changed_in_the_script(run, facts_file, tmp_path):
    """Its parser has neither --gradient_checkpointing nor --optim."""
    loaded = "AutoModelForCausalLM.from_pretrained(options.model_name_or_path)"
    script = OWN_OPTIONS.replace("load(options)", loaded).replace(
        "from tuner.mod import load", "from transformers import *"
    )
    (tmp_path / "sft.py").write_text(script)
    (tmp_path / "run.sh").write_text("accelerate launch sft.py --model_max_length 2048 --bf16 True\n")
    facts = {"pkg.torch": "2.6.0", "pkg.transformers": "4.51.3", "python.version": "3.11.9", "gpu.name": ["RTX 4090"]}
    answer = run("check", "--no-config", "--facts", facts_file(facts), "--recipe", "run.sh", "--target-gpu", "RTX 4090")
    assert answer.code == 1 and "gradient_checkpointing=True" in answer.out and 'optim="adamw_8bit"' in answer.out
    assert "--gradient_checkpointing" not in answer.out and "--optim" not in answer.out


GENERATES = """\
from transformers import AutoModelForCausalLM, AutoTokenizer
name = "meta-llama/Llama-2-13b-hf"
model = AutoModelForCausalLM.from_pretrained(name, torch_dtype="float16", device_map="auto")
ids = AutoTokenizer.from_pretrained(name)("hello", max_length=2048, truncation=True, return_tensors="pt")
"""


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        ("model.generate(**ids)\n", "about 27.7 GiB on the GPU"),
        ("from elsewhere import work\nwork(model)\n", "nothing is known to train in use.py: give --set recipe.method="),
    ],
)
def test_a_script_in_which_nothing_trains_needs_no_memory_for_an_optimizer(run, facts_file, tmp_path, uses, said):
    (tmp_path / "use.py").write_text(GENERATES + uses)
    path = facts_file({"pkg.torch": "2.1.2", "pkg.transformers": "4.38.2", "python.version": "3.11.9"})
    answer = run("check", "--no-config", "--facts", path, "--recipe", "use.py", "--target-gpu", "A100-80G")
    assert answer.code == 0 and said in " ".join(answer.out.split())


@pytest.mark.parametrize(("trainer", "said"), [("trl.RewardTrainer", "RM is counted like DPO"), ("Trainer", "fits")])
def test_a_reward_model_is_trained_in_pairs_by_the_trainer_that_makes_them(run, facts_file, tmp_path, trainer, said):
    script = "import trl\nfrom transformers import HfArgumentParser, Trainer\n"
    script += "args, model = HfArgumentParser((trl.RewardConfig, trl.ModelConfig)).parse_args_into_dataclasses()\n"
    (tmp_path / "rm.py").write_text(f"{script}{trainer}(model=model.model_name_or_path, args=args).train()\n")
    path = facts_file({"pkg.trl": "0.13.0", "pkg.transformers": "4.48.0", "python.version": "3.11.9"})
    words = "python rm.py --model_name_or_path mistralai/Mistral-7B-v0.1 --use_peft --lora_task_type SEQ_CLS --bf16"
    words += " --load_in_4bit --max_length 1024 --per_device_train_batch_size 32 --gradient_checkpointing"
    answer = run("check", "--no-config", "--facts", path, "--recipe", words, "--target-gpu", "A100-80G")
    text = " ".join(answer.out.split())
    assert said in text and ("counted like" in text) == (trainer != "Trainer")
    assert "the model has a few outputs of its own" in text


@pytest.mark.parametrize(
    ("release", "offered"),
    [
        (None, "--flash_attn (openrlhf<0.8.10); --attn_implementation flash_attention_2 (openrlhf>=0.8.10)"),
        ("0.8.9", "--flash_attn,"),
    ],
)
def test_an_option_that_depends_on_a_release_is_offered_with_it_where_the_release_is_not_known(
    run, facts_file, tmp_path, release, offered
):
    options = "--pretrain meta-llama/Llama-3.1-8B --dataset x --max_len 8192 --micro_train_batch_size 4 --zero_stage 1"
    (tmp_path / "run.sh").write_text(f"deepspeed --module openrlhf.cli.train_sft {options} --bf16\n")
    facts = {"pkg.torch": "2.5.1", "pkg.transformers": "4.46.1", "python.version": "3.11.9"}
    facts |= {"pkg.openrlhf": release} if release else {}
    answer = run(
        "memory", "--no-config", "--facts", facts_file(facts), "--recipe", "run.sh", "--target-gpu", "8xA100-80G"
    )
    assert offered in answer.out and (release is None or "openrlhf<" not in answer.out)
