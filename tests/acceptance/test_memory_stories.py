"""The memory of the stories' own recipes: the number, the cause, and that the mended recipe fits."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from update_memory_table import BLOCK, ROOT, answer, asked, table, ways

STORIES = Path(__file__).parents[2] / "fixtures" / "stories"
MODELS = Path(__file__).parents[2] / "fixtures" / "memory"
ALONE = ["--set", "recipe.zero_stage=absent", "--set", "recipe.world_size=1"]
SWIFT = "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --max_length 2048 --torch_dtype bfloat16"
GRPO = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=1024
data.max_response_length=3072 actor_rollout_ref.model.path=Qwen/Qwen3-0.6B data.train_batch_size=16
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 actor_rollout_ref.rollout.name=vllm
actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
actor_rollout_ref.rollout.gpu_memory_utilization=0.9 trainer.n_gpus_per_node=1
"""

Predict = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def predict(run: Any, torch_python: str, traces: Path) -> Predict:
    environ = {"XDG_CACHE_HOME": str(traces), "PATH": "", "HOME": "/"}

    def ask(recipe: Path, model: str, *words: str) -> tuple[int, dict[str, Any]]:
        command = ["memory", "--no-config", "--no-gpu", "--python", torch_python, "--recipe", str(recipe)]
        done = run(*command, "--model", str(MODELS / model), "--format", "json", *words, env=environ, timeout=500)
        assert done.code in (0, 1), done.err + done.out
        section: dict[str, Any] = done.json["sections"]["memory"]
        return done.code, section

    return ask


def with_setting(recipe: Path, folder: Path, old: str, new: str) -> Path:
    text = recipe.read_text()
    assert old in text
    (folder / recipe.name).write_text(text.replace(old, new))
    return folder / recipe.name


def offered(section: dict[str, Any], *names: str) -> float:
    (size,) = [change["gib"] for change in section["changes"] if set(change["set"]) == set(names)]
    return float(size)


@pytest.mark.slow
@pytest.mark.torch
def test_the_first_story_and_what_it_is_offered(predict, tmp_path):
    story = STORIES / "1" / "configs" / "lora.yaml"
    words = ["--gpu", "A100-80GB", *ALONE, "--set", "recipe.attn=eager"]
    code, section = predict(story, "glm-4-9b-chat", *words)
    assert (code, section["verdict"], section["level"]) == (1, "does-not-fit", "nearest")
    assert section["allocated_gib"] == pytest.approx(338, rel=0.02)
    activations = section["allocated_gib"] - 17.5
    assert section["process_gib"][1] > (17.5 + 1.3 * activations) * 1.07 + 1.3
    switch = "training_args:\n  gradient_checkpointing: true"
    mended = with_setting(story, tmp_path, "training_args:", switch)
    code, after = predict(mended, "glm-4-9b-chat", *words)
    assert (code, after["verdict"]) == (0, "fits")
    assert after["allocated_gib"] == pytest.approx(offered(section, "recipe.gradient_checkpointing"), rel=1e-3)
    code, both = predict(mended, "glm-4-9b-chat", *words[:-1], "recipe.attn=sdpa")
    assert both["allocated_gib"] == pytest.approx(29.7, rel=0.02)
    alone = {"recipe.gradient_checkpointing"}
    assert not any(alone < set(change["set"]) for change in section["changes"]), "checkpointing alone fits"


@pytest.mark.slow
@pytest.mark.torch
def test_the_fifth_story_needs_what_others_hold(predict, tmp_path):
    story = STORIES / "5" / "settings.jsonc"
    words = ["--gpu", "A6000", "--set", "gpu.free_gib=44"]
    code, section = predict(story, "qwen2.5-7b-instruct", *words)
    assert (code, section["verdict"], section["phase"]) == (1, "does-not-fit", "start")
    assert section["serving"]["asked_gib"] == pytest.approx(0.95 * 48)
    code, after = predict(with_setting(story, tmp_path, "0.95", "0.8"), "qwen2.5-7b-instruct", *words)
    assert (code, after["verdict"]) == (0, "fits")
    most = section["changes"][0]["set"]["recipe.gpu_memory_utilization"]
    assert 0.8 < most < 0.95
    code, after = predict(with_setting(story, tmp_path, "0.95", str(most)), "qwen2.5-7b-instruct", *words)
    assert (code, after["verdict"]) == (0, "fits")


@pytest.fixture
def without_files(run: Any, facts_file: Any, tmp_path: Path) -> Predict:
    """``envdoctor memory`` where neither torch nor a file of any model is."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": ""}
    empty = facts_file({})

    def ask(*words: str) -> Any:
        done = run("memory", "--no-config", "--no-gpu", "--facts", empty, "--format", "json", *words, env=environ)
        return done.code, (done.json.get("sections") or {}).get("memory"), " ".join(done.out.split())

    return ask


CHECKPOINTING, GLM = ["--set", "recipe.gradient_checkpointing=true"], "THUDM/glm-4-9b-chat"
LONG = ["--set", "recipe.max_length=8192"]
FLASH, LOWER = ["--set", "recipe.attn=flash_attention_2"], ["--set", "recipe.gpu_memory_utilization=0.8"]
LORA, EAGER, DEAF = (
    ["--set", "recipe.method=lora"],
    ["--set", "recipe.attn=eager"],
    ["--set", "recipe.gradient_checkpointing=false"],
)


@pytest.mark.parametrize(
    ("story", "words", "code", "verdict", "said"),
    [
        ("1/run.sh", ["--gpu", "A100-80GB", *ALONE], 1, "does-not-fit", "79.2 GiB are free"),
        ("1/configs/lora.yaml", ["--gpu", "H100-80GB", *ALONE, *EAGER, "--model", GLM], 1, "does-not-fit", "338"),
        ("1/run.sh", ["--gpu", "A100-80GB", *ALONE, *CHECKPOINTING], 0, "fits", ""),
        # ZeRO-3 over eight: nobody told how that ended.
        ("1/run.sh", ["--gpu", "A100-80GB"], 0, "tight", "79.2 GiB are free"),
        ("2/run.sh", ["--gpu", "T4"], 1, "does-not-fit", "the model's own code ignores gradient checkpointing"),
        ("2/run.sh", ["--gpu", "4090"], 0, "fits", ""),
        ("3/train_dpo.sh", ["--gpu", "A100-80GB"], 0, "tight", "take eager attention: then its tensors take 122"),
        ("3/train_dpo.sh", ["--gpu", "A100-80GB", *EAGER, *DEAF], 1, "does-not-fit", ""),
        ("3/train_dpo.sh", ["--gpu", "H200", *FLASH], 0, "fits", "some revisions ignore gradient checkpointing"),
        ("4/train.yaml", ["--gpu", "A100-80GB", "--set", "recipe.max_length=1024", *LORA], 0, "fits", ""),
        ("5/settings.jsonc", ["--gpu", "A6000"], 0, "tight", "to 49.2 GiB, and 47.5 GiB are free"),
        ("5/settings.jsonc", ["--gpu", "A6000", *LOWER], 0, "fits", ""),
    ],
)  # fmt: skip
def test_a_story_by_name_alone(without_files, story, words, code, verdict, said):
    found, section, out = without_files("--recipe", str(STORIES / story), *words)
    assert section is not None, out[-3000:]
    assert (found, section["verdict"]) == (code, verdict) and said in out
    assert any("by its name it has the shape of" in text for text in section["assumed"])


def test_a_run_that_may_have_eager_attention_is_offered_another(without_files):
    """No release of OpenRLHF is known, and older ones take eager attention for models without code of their own too."""
    recipe = STORIES / "3" / "train_dpo.sh"
    _, section, out = without_files("--recipe", str(recipe), "--model", f"{GLM}-hf", "--gpu", "A100-80GB", *LONG)
    assert section["verdict"] == "tight" and "some releases take eager attention" in out
    change = section["changes"][0]
    assert (change["set"], change["verdict"]) == ({"recipe.attn": "flash_attention_2"}, "fits")
    assert "--flash_attn (openrlhf<0.8.10); --attn_implementation flash_attention_2 (openrlhf>=0.8.10)" in out


@pytest.mark.parametrize(
    ("story", "model"),
    [("1/run.sh", "glm-4-9b-chat"), ("3/train_dpo.sh", "glm-4-9b-chat"), ("5/settings.jsonc", "qwen2.5-7b-instruct")],
)
def test_a_name_has_the_number_of_its_folder(without_files, story, model):
    given = ["--recipe", str(STORIES / story), "--gpu", "A100-80GB"]
    sections = [without_files(*given, *words)[1] for words in ([], ["--model", str(MODELS / model)])]
    for section in sections:
        section.pop("assumed")
    assert sections[0] == sections[1]


@pytest.mark.parametrize(
    ("model", "words", "code", "said"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", [], 1, "no file of the model is here: by its name it has the shape"),
        ("qwen2.5-7b-instruct", [], 1, "by its name it has the shape of Qwen/Qwen2.5-7B-Instruct"),
        ("me/Qwen2.5-7B-Instruct-odd", [], 1, "5% less or more, because words of the name are not known: odd"),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", ["--set", "recipe.dtype=bf16"], 1, '"name": "weights", "gib": 7.4'),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", [], 1, '"name": "weights", "gib": 5.1'),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", ["--set", "recipe.method=infer"], 0, '"name": "weights", "gib": 5.1'),
        ("me/Qwen2.5-7B-Instruct-AWQ", [], 1, "not told how: 4 bits a weight were taken, 5% less or more"),
        ("me/Qwen2.5-7B-Instruct-W8A8", [], 1, "not told how: 8 bits a weight were taken, 5% less or more"),
        ("me/Qwen2.5-7B-Instruct-GGUF", [], 0, "not told how: 8 bits a weight were taken, 50% less or more"),
        ("7B", [], 1, "the shape of Qwen/Qwen2.5-7B is assumed, 20% less or more, vocabulary up to 256,000"),
        ("Qwen/Qwen2.5-VL-32B-Instruct", [], 1, "Qwen2.5-32B is assumed, 50% less or more, vocabulary up to 262,144"),
        ("nobody/legal-7b-qwen", [], 1, "the shape of Qwen/Qwen2.5-7B is assumed, 20% less or more,"),
        ("nobody/legal-7b-awq", [], 0, '"name": "weights", "gib": 5.1'),
        ("allenai/OLMoE-1B-7B-0924", [], 0, '"name": "weights", "gib": 12.8'),
        ("Qwen/Qwen2.5-Odd-Omni-3B", [], 3, "no config.json of Qwen/Qwen2.5-Odd-Omni-3B is on this machine"),
    ],
)  # fmt: skip
def test_a_number_by_name(without_files, model, words, code, said):
    settings = "method=lora max_length=2048 batch_size=1 lora_targets=all-linear gradient_checkpointing=false"
    sets = [word for one in settings.split() for word in ("--set", f"recipe.{one}")]
    found, section, out = without_files("--model", model, "--gpu", "4090", *sets, *words)
    assert found == code and (section is None) == (code == 3)
    assert said in out


@pytest.mark.parametrize(
    ("gpu", "code", "verdict", "said"),
    [
        ("A100", 0, "fits", "A100 is sold in several sizes: it fits 40 GB; it fits 80 GB"),
        ("V100", 3, None, "it does not fit 16 GB; it is tight on 32 GB; name the one that is meant, such as V100-32GB"),
        ("4060 Ti", 1, "does-not-fit", "sold in several sizes: it does not fit 8 GB; it does not fit 16 GB"),
        ("V100-32GB", 0, "tight", "and 31.7 GiB are free for it on V100-32GB"),
        ("RTX A3000", 3, None, "how much memory RTX A3000 has is not known, so whether it fits was not judged"),
    ],
)
def test_a_card_of_several_sizes_is_judged_in_each(without_files, gpu, code, verdict, said):
    settings = ["--set", "recipe.method=lora", "--set", "recipe.max_length=2048"]
    found, section, out = without_files("--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", gpu, *settings)
    assert (found, section["verdict"]) == (code, verdict)
    assert said in out


def test_a_cache_that_is_emptied_may_hold_no_more_than_the_tensors(without_files, tmp_path):
    least = []
    for more in ("", " --torch_empty_cache_steps 10"):
        recipe = tmp_path / "train.sh"
        words = "python run_sft.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct --max_length 2048 --bf16 true"
        recipe.write_text(f"{words}{more}\n")
        interval = without_files("--recipe", str(recipe), "--gpu", "H200")[1]["interval"]
        least.append(interval["reserved"][0] - interval["allocated"][0])
    assert least[0] > 1 and least[1] == pytest.approx(0)


def test_a_classifier_has_no_head_for_the_language(without_files, tmp_path):
    held = {}
    for task in ("causal_lm", "seq_cls"):
        recipe = tmp_path / f"{task}.sh"
        recipe.write_text(f"{SWIFT} --task_type {task}\n")
        section = without_files("--recipe", str(recipe), "--gpu", "A6000")[1]
        held[task] = {term["name"]: term["gib"] for term in section["terms"]}
    assert held["causal_lm"]["logits and loss"] > 1 and "logits and loss" not in held["seq_cls"]
    assert held["causal_lm"]["weights"] - held["seq_cls"]["weights"] == pytest.approx(1.01, abs=0.02)


@pytest.mark.parametrize(
    ("words", "option", "named"),
    [
        (SWIFT, "--context_parallel_size 8", "context_parallel_size=8"),
        (SWIFT, "--sequence_parallel_size 8", "sequence_parallel_size=8"),
        (GRPO, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4", "ulysses_sequence_parallel_size=4"),
        (GRPO, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=$PARTS", "ulysses_sequence_parallel_size"),
    ],
)
def test_what_divides_a_sample_among_gpus_is_read_and_named(without_files, tmp_path, words, option, named):
    (recipe := tmp_path / "train.sh").write_text(f"{' '.join(words.split())} {option}\n")
    section = without_files("--recipe", str(recipe), "--gpu", "A6000")[1]
    assert section["savers"] == [f"{named}, which divides a sample or the model among GPUs"]


def test_where_how_processes_share_a_run_decides_the_key_is_asked_for(without_files, tmp_path):
    (recipe := tmp_path / "run.sh").write_text(
        "deepspeed --num_gpus 2 train.py --model_name_or_path Qwen/Qwen2.5-14B-Instruct --deepspeed $FILE "
        "--per_device_train_batch_size 1 --gradient_checkpointing True --output_dir x --bf16 True\n"
    )
    (tmp_path / "train.py").write_text(
        "from transformers import HfArgumentParser, TrainingArguments, Trainer\n"
        "Trainer(None, HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]).train()\n"
    )
    known = ("--recipe", str(recipe), "--gpu", "2xA100-40GB", "--set", "recipe.max_length=512")
    code, section, out = without_files(*known)
    assert (code, section["verdict"]) == (3, None) and "give --set recipe.zero_stage=3, =2 or =0" in out
    assert without_files(*known, "--set", "recipe.zero_stage=0")[0] == 1


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [("galore_layerwise: true\nuse_galore", 0), ("apollo_layerwise: true\nuse_apollo", 0), ("use_badam", 3)],
)
def test_an_optimizer_with_few_states_is_no_error_of_memory(without_files, tmp_path, optimizer, code):
    (recipe := tmp_path / "full.yaml").write_text(
        f"model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nfinetuning_type: full\n{optimizer}: true\n"
        "cutoff_len: 2048\nper_device_train_batch_size: 1\npure_bf16: true\n"
    )
    found, section, out = without_files("--recipe", str(recipe), "--gpu", "A100-40GB")
    assert found == code and section["process_gib"][0] < 27
    assert (section["settled_by"] == "recipe.optimizer") == ("what the optimizer keeps" in out) == (code == 3)


@pytest.mark.parametrize("story", ["1/run.sh", "3/train_dpo.sh", "5/settings.jsonc"])
def test_a_model_that_nobody_knows_is_one_sentence(without_files, story):
    code, _, out = without_files("--gpu", "A100-80GB", "--recipe", str(STORIES / story), "--model", "nobody/nothing")
    assert code == 3 and "is on this machine: give its folder, --model DIR" in out


@pytest.mark.parametrize(
    ("model", "gpu", "code", "verdict"),
    [
        ("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4", "4090", 3, None),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "L40S", 1, "does-not-fit"),
    ],
)
def test_an_engine_whose_longest_sequence_nobody_tells_has_a_number(without_files, model, gpu, code, verdict):
    found, section, out = without_files("--model", model, "--gpu", gpu, "--method", "serve")
    assert (found, section["verdict"]) == (code, verdict)
    assert section["serving"]["weights_gib"] > 9 and "8,192 tokens were taken" in " ".join(section["assumed"])
    assert ("give --set recipe.max_model_len=8192" in out) == (verdict is None)


@pytest.mark.parametrize(
    ("length", "verdict", "said"),
    [
        (31_000, "tight", "to 71.4 GiB, and 71.3 GiB are free for it"),
        (33_500, "does-not-fit", "needs more than 71.8 GiB, and 71.3 GiB are free for it"),
    ],
)
def test_a_cache_that_is_a_little_short_is_tight_and_an_engine_has_what_it_takes(without_files, length, verdict, said):
    settings = f"framework=vllm method=serve tensor_parallel=2 max_model_len={length}"
    sets = [word for one in settings.split() for word in ("--set", f"recipe.{one}")]
    found, section, out = without_files("--model", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "A100-80GB", *sets)
    assert (found, section["verdict"]) == (verdict == "does-not-fit", verdict) and said in out


PPO = """deepspeed --module openrlhf.cli.train_ppo --pretrain OpenRLHF/Llama-3-8b-sft-mixture --zero_stage 2 --bf16
--micro_train_batch_size 2 --prompt_max_len 1024 --generate_max_len 1024 --flash_attn --gradient_checkpointing
"""


def test_a_change_is_measured_as_the_run_and_is_smaller(without_files, tmp_path):
    recipe = tmp_path / "ppo.sh"
    recipe.write_text(" ".join(PPO.splitlines()))
    _, section, out = without_files("--recipe", str(recipe), "--gpu", "A100-80GB", "--set", "recipe.world_size=8")
    assert section["changes"] and "PPO is counted like GRPO" in out
    assert all(change["gib"] < section["interval"]["allocated"][1] for change in section["changes"])


def test_the_optimizer_without_a_copy_is_offered_before_one_that_computes_otherwise(without_files):
    words = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "A100-80GB", "--method", "full"]
    words += ["--set", "recipe.max_length=2048", "--set", "recipe.gradient_checkpointing=true"]
    first, second, *_ = without_files(*words)[1]["changes"]
    assert (first["set"], first["verdict"]) == ({"recipe.optimizer": "adamw_torch_fused"}, "fits")
    assert second["set"] == {"recipe.optimizer": "adamw_8bit"}
    fused = without_files(*words, "--set", "recipe.optimizer=adamw_torch_fused")[1]
    assert (fused["verdict"], fused["interval"]["allocated"][1]) == ("fits", pytest.approx(first["gib"], abs=0.01))


def test_no_part_of_a_model_known_by_its_size_is_larger_than_the_whole(without_files):
    words = ["--gpu", "A100-80GB", "--method", "infer", "--set", "recipe.max_length=512"]
    section = without_files("--model", "01-ai/Yi-34B-Chat", *words)[1]
    assert sum(term["gib"] for term in section["terms"]) < section["interval"]["allocated"][1] * 1.01


# A run took 97 % of a 4090: examples/archived/yi-34B-chat/README.md of axolotl-ai-cloud/axolotl.
@pytest.mark.parametrize(("told", "verdict"), [("", "tight"), ("framework=transformers", "does-not-fit")])
def test_a_4_bit_model_may_be_packed_tightest_where_nobody_tells_how(without_files, told, verdict):
    sets = f"max_length=1024 gradient_checkpointing=true {told}"
    words = [word for one in sets.split() for word in ("--set", f"recipe.{one}")]
    section = without_files("--model", "01-ai/Yi-34B-Chat", "--gpu", "4090", "--method", "qlora", *words)[1]
    assert section["verdict"] == verdict


@pytest.mark.parametrize(("fixed", "said"), [([], True), (["--set", "recipe.padding=max"], False)])
def test_a_length_that_may_only_cut_is_told_with_the_samples_that_fit(without_files, fixed, said):
    sets = "method=lora max_length=769 batch_size=4 framework=transformers"
    words = [word for one in sets.split() for word in ("--set", f"recipe.{one}")]
    code, section, out = without_files("--model", "THUDM/chatglm3-6b", "--gpu", "4090", *words, *fixed)
    (shorter,) = (change["set"] for change in section["changes"] if "recipe.max_length" in change["set"])
    text = f"769 tokens: up to {shorter['recipe.max_length']} it fits; --data FILE counts them"
    assert (code, text in out) == (1, said)


@pytest.mark.parametrize(("model", "sdpa"), [("openai/gpt-oss-20b", False), ("Qwen/Qwen2.5-14B", True)])
def test_sdpa_is_offered_where_a_class_takes_it(without_files, model, sdpa):
    words = ["--method", "infer", "--set", "recipe.attn=eager", "--set", "recipe.max_length=16384"]
    section = without_files("--model", model, "--gpu", "4080", *words)[1]
    assert section["verdict"] == "does-not-fit"
    assert ({"recipe.attn": "sdpa"} in [change["set"] for change in section["changes"]]) == sdpa


def test_without_a_length_the_longest_samples_are_told_by_the_batch(without_files):
    words = ["--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--method", "qlora"]
    code, section, out = without_files(*words, "--set", "recipe.gradient_checkpointing=true")
    assert code == 3 and section["verdict"] is None and "the length is not known" in out
    tokens = [one["tokens"] for one in section["reach"]]
    assert [one["batch"] for one in section["reach"]] == [1, 2, 4, 8] and tokens == sorted(tokens, reverse=True)
    reach = ["--set", f"recipe.max_length={tokens[0]}", "--set", "recipe.gradient_checkpointing=true"]
    more = ["--set", f"recipe.max_length={tokens[0] + 256}", "--set", "recipe.gradient_checkpointing=true"]
    verdicts = [without_files(*words, *given)[1]["verdict"] for given in (reach, more)]
    assert verdicts == ["fits", "tight"]
    with_a_switch = without_files(*words)[1]["changes"]
    assert {"recipe.gradient_checkpointing": True} in [change["set"] for change in with_a_switch]


@pytest.mark.parametrize(("model", "code"), [("Qwen2.5-7B-Instruct", 1), ("Qwen2.5-0.5B-Instruct", 3)])
def test_what_fits_at_no_length_does_not_fit_and_changes_that_would_are_offered(without_files, model, code):
    words = ["--model", f"Qwen/{model}", "--gpu", "4090"]
    found, section, out = without_files(*words, "--method", "full")
    assert found == code and ("it does not fit even at 16 tokens" in out) == (code == 1)
    assert bool(section["reach"]) == (code == 3)
    first = section["changes"][0]["set"] if code == 1 else {"recipe.method": "full"}
    typed = [word for name, value in first.items() for word in ("--set", f"{name}={str(value).lower()}")]
    assert without_files(*words, *typed, "--set", "recipe.max_length=1024")[1]["verdict"] == "fits"


@pytest.mark.parametrize(("method", "names"), [("full", {"method", "lora_r"}), ("lora", {"method"})])
def test_the_smallest_combination_of_changes_that_fits_stands_first(without_files, method, names):
    words = ["--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--set", "recipe.max_length=2048"]
    code, section, _ = without_files(*words, "--method", method, "--set", "recipe.train_batch_size=4")
    first, *others = section["changes"]
    assert code == 1 and first["verdict"] == "fits" and "fits" not in {change["verdict"] for change in others}
    assert set(first["set"]) == {f"recipe.{name}" for name in ("gradient_checkpointing", "train_batch_size", *names)}
    typed = [word for name, value in first["set"].items() for word in ("--set", f"{name}={str(value).lower()}")]
    assert without_files(*words, *typed)[1]["verdict"] == "fits"


@pytest.mark.parametrize(("page", "lang"), [("docs/memory.md", "en"), ("docs/zh/memory.md", "zh")])
def test_the_table_of_the_stories_is_what_check_says(page, lang):
    block = BLOCK.search((ROOT / page).read_text(encoding="utf-8"))
    assert block is not None and block[0] == table(lang), "python tools/update_memory_table.py"


@pytest.mark.parametrize(("story", "way"), list(ways()))
def test_a_story_has_one_number_whatever_it_is_written_in(story, way):
    least = answer(story, "command", folder=True).memory
    for folder in (False, True):
        one = answer(story, way, folder=folder)
        assert one.causes or one.memory["verdict"] == "fits"
        assert one.memory["allocated_gib"] == least["allocated_gib"]
        assert one.memory["process_gib"][0] == least["process_gib"][0]
        assert one.code == 1 if one.memory["verdict"] == "does-not-fit" else one.code in (0, 1)
        alone = asked("memory", story, way, folder=folder)
        assert alone.memory is not None and alone.memory["process_gib"] == one.memory["process_gib"]
        assert alone.exit_code == (1 if one.memory["verdict"] == "does-not-fit" else 0)
        cure = one.cure
        assert (cure is None) == (one.memory["verdict"] == "fits")
        if cure is not None:
            after = asked("memory", story, way, folder=folder, settings=cure["set"]).memory
            assert after is not None and after["verdict"] == "fits"


@pytest.mark.parametrize(("gpu", "code"), [("4090", 3), ("A100-80GB", 0), ("3060", 1)])
def test_checkpointing_that_nobody_told_of_decides_only_where_it_does(without_files, gpu, code):
    words = ["--method", "qlora", "--set", "recipe.max_length=2048", "--set", "recipe.dtype=bf16"]
    found, section, out = without_files("--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", gpu, *words)
    assert found == code and ("give --set recipe.gradient_checkpointing=true or =false" in out) == (code == 3)
    assert (section["verdict"] is None) == (code == 3)


@pytest.mark.parametrize(
    ("options", "model", "gpu", "code", "verdict"),
    [
        ("--pre_seq_len 128 --quantization_bit 4", "THUDM/chatglm2-6b", "T4", 0, "fits"),
        ("--lora_dim 128", "facebook/opt-6.7b", "A100-40GB", 0, "fits"),
        ("--use_llm_lora 16 --grad_checkpoint True", "facebook/opt-6.7b", "A100-40GB", 0, "fits"),
        ("--lora_dim 0", "facebook/opt-6.7b", "A100-40GB", 1, "does-not-fit"),
        ("--bits 4", "facebook/opt-6.7b", "T4", 0, "fits"),
        ("--our_adapter small", "facebook/opt-6.7b", "A100-40GB", 3, None),
        ("--our_adapter small", "facebook/opt-30b", "A100-40GB", 1, "does-not-fit"),
        ("--our_adapter small", "facebook/opt-6.7b", "H200", 0, "fits"),
        ("--our_adapter False", "facebook/opt-6.7b", "A100-40GB", 3, None),  # main.py is not here
        ("--seed 1", "Qwen/Qwen2.5-7B-Instruct", "T4", 3, None),
    ],
)
def test_an_option_that_may_say_what_is_trained_ends_in_no_false_error(
    without_files, tmp_path, options, model, gpu, code, verdict
):
    """The options of ChatGLM2's train.sh, DeepSpeed-Chat, InternVL, qlora.py, and of somebody's own."""
    recipe = tmp_path / "train.sh"
    lengths = "--max_source_length 64 --max_target_length 128 --per_device_train_batch_size 1 --fp16"
    recipe.write_text(f"python main.py --model_name_or_path {model} {lengths} {options}\n")
    found, section, out = without_files("--recipe", str(recipe), "--gpu", f"1x{gpu}")
    assert (found, section["verdict"], section["tokens"]) == (code, verdict, 192)
    both = "our_adapter, an option of the script's own, may say it): full up to"
    assert (both in out) is ("small" in options)


@pytest.mark.parametrize(("method", "free"), [("lora", "22"), ("qlora", "14"), ("full", "80")])
def test_a_tight_fit_has_the_ends_of_the_block(run, facts_file, method, free):
    words = ["--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu-memory", free, "--method", method, *CHECKPOINTING]
    words += ["--set", "recipe.max_length=2048", "--no-config", "--facts", facts_file({})]
    out = run("memory", *words, env={"PATH": ""}).out
    ends = re.findall(r"(?:the run needs |on the GPU \()([\d.]+) to ([\d.]+)", out)
    assert len(ends) == 2 and len({tuple(map(float, pair)) for pair in ends}) == 1


@pytest.mark.parametrize(
    ("model", "method", "said"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "serve", "weights that are not quantised is"),
        ("01-ai/Yi-34B-Chat", "qlora", "weights that are not quantised is"),
        ("01-ai/Yi-34B-Chat", "lora", "the weights is"),
    ],
)
def test_the_dtype_of_quantised_weights_is_not_assumed(without_files, model, method, said):
    words = ["--gpu", "4090", "--method", method, "--set", "recipe.max_length=2048"]
    _, section, _ = without_files("--model", model, *words)
    assert any(f"dtype of {said} not known" in text for text in section["assumed"])


@pytest.mark.parametrize(("gpu", "found"), [("H200", False), ("L40S", True)])
def test_answers_whose_length_decides_are_named_with_the_key(without_files, tmp_path, gpu, found):
    (recipe := tmp_path / "grpo.sh").write_text(" ".join(GRPO.splitlines()))
    known = ["--set", "recipe.attn=flash_attention_2", "--set", "pkg.verl=0.5.0"]
    code, section, out = without_files("--recipe", str(recipe), "--gpu", f"1x{gpu}", *known)
    assert (code, section["verdict"] == "tight") == (0, found) and ("with the longest answers" in out) is found
    assert found is any(
        "ppo_micro_batch" in str(change) and change["verdict"] == "fits" for change in section["changes"]
    )
