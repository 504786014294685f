"""``check --recipe``: the five stories' own files, and what a user sees of a recipe."""

import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"pkg.torch": "2.5.0", "pkg.transformers": "4.48.0"}
STORIES = ROOT / "fixtures" / "stories"
TRAIN = """model_name_or_path: THUDM/glm-4-9b-chat-hf
output_dir: out
per_device_train_batch_size: 2
bf16: true
gradient_acumulation_steps: 4
"""


def fact(run, facts_file, key, *words):
    """What `facts` says of one key."""
    return run("facts", "--facts", facts_file(ENVIRONMENT), *words, "--format", "json").json["facts"].get(key)


@pytest.fixture
def check(run, facts_file, tmp_path, monkeypatch):
    """Runs check in a folder with train.yaml."""
    (tmp_path / "train.yaml").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)

    return lambda *words: run("check", "--facts", facts_file(ENVIRONMENT), *words)


def stories():
    """Return of each story its command, that with the fix, and its row of the README's table."""
    told, table = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/stories.md", "README.md"))
    commands = re.findall(r"^envdoctor (check --facts fixtures/environments/stories.*)  # (.)$", told, re.MULTILINE)
    rows = [re.findall(r"[^|]+", line)[:5] for line in re.findall(r"^\| (\d[:,] .*)\|$", table, re.MULTILINE)]
    return list(zip(commands[::2], commands[1::2], rows, strict=True))


def test_the_readme_has_all_five_stories():
    assert sorted({row[0][0] for _, _, row in stories()}) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(("command", "mended", "row"), stories(), ids=[row[0] for _, _, row in stories()])
def test_one_command_says_the_cause_and_the_number_of_a_story_and_passes_when_it_is_mended(run, command, mended, row):
    _, cause, number, _, after = row
    rule = cause.strip(" `")
    for (words, code), cell in ((command, number), (mended, after)):
        answer = run(*words.split(), "--no-config", cwd=ROOT)
        assert answer.code == int(code), words
        assert (f"[{rule}]" in answer.out) is ((words, code) == command)
        missing = [size for size in re.findall(r"(?<![\d.])\d+\.\d(?![\d.])", cell) if size not in answer.out]
        assert not missing, words


@pytest.mark.parametrize(
    ("story", "file", "old", "new"),
    [
        ("1/run.sh", "configs/lora.yaml", "training_args:", "training_args:\n  gradient_checkpointing: true"),
        ("3/train_dpo.sh", "train_dpo.sh", "--gradient_checkpointing", "--gradient_checkpointing --flash_attn"),
        ("5/settings.jsonc", "settings.jsonc", "0.95", "0.8"),
    ],
)
def test_the_fix_of_a_story_in_its_own_recipe_is_the_one_that_is_typed(run, tmp_path, story, file, old, new):
    number = story.partition("/")[0]
    shutil.copytree(STORIES / number, tmp_path / number)
    changed = tmp_path / number / file
    assert old in changed.read_text()
    changed.write_text(changed.read_text().replace(old, new, 1))
    typed = next(words for _, (words, _), _ in reversed(stories()) if f"fixtures/stories/{story}" in words)
    words = typed.partition(" --set ")[0].split()
    edited = [str(tmp_path / story) if word.endswith(story) else word for word in words]
    by_file, by_set = (run(*ask, "--no-config", "--format", "json", cwd=ROOT) for ask in (edited, typed.split()))
    assert by_file.code == by_set.code == 0
    sizes = [answer.json["sections"]["memory"]["process_gib"] for answer in (by_file, by_set)]
    assert sizes[0] == sizes[1]


def test_a_report_says_what_the_recipe_says_and_where(check):
    out = check("--recipe", "train.yaml").out
    assert "Recipe       train.yaml (transformers, bf16, batch size 2" in out
    assert "with more of the recipe" in out and "with --recipe" not in out
    assert "train.yaml:3" in out
    assert out.count("train.yaml:5: gradient_acumulation_steps is not known; did you mean") == 1
    out = check("--recipe", "train.yaml", "--lang", "zh").out
    assert "训练配置" in out and "未知的参数 gradient_acumulation_steps" in out


@pytest.mark.parametrize(
    ("key", "words", "value"),
    [
        ("model.repo", (), "THUDM/glm-4-9b-chat-hf"),
        ("model.repo", ("--model", "Qwen/Qwen2.5-7B"), "Qwen/Qwen2.5-7B"),
        ("recipe.batch_size", (), 2),
        ("recipe.batch_size", ("--set", "recipe.batch_size=1"), 1),
    ],
)
def test_what_is_typed_wins_over_the_recipe(run, facts_file, key, words, value):
    assert fact(run, facts_file, key, "--recipe", STORIES / "4" / "train.yaml", *words) == value


AWAY = "names the model {}, which is not on this machine: judged as {}, by its name"


@pytest.mark.parametrize(
    ("written", "judged", "told"),
    [
        ("/no/such/model", None, "train.yaml:1 names the model /no/such/model, which is not on this machine"),
        ("/m/ZhipuAI/glm-4-9b-chat-hf", "ZhipuAI/glm-4-9b-chat-hf", AWAY),
        ("/data/glm-4-9b-chat-hf/", "glm-4-9b-chat-hf", AWAY),
        ("/c/models--THUDM--glm-4-9b-chat-hf/snapshots/0", "THUDM/glm-4-9b-chat-hf", AWAY),
        ("THUDM/glm-4-9b-chat-hff", None, "is known as THUDM/glm-4-9b-chat-hff; did you mean THUDM/glm-4-9b-chat-hf?"),
        ("REQUIRED", None, None),  # a word in the place of a model
    ],
)
def test_what_is_said_of_a_model_that_is_not_here(check, tmp_path, written, judged, told):
    (tmp_path / "train.yaml").write_text(TRAIN.replace("THUDM/glm-4-9b-chat-hf", written))
    out = " ".join(check("--recipe", "train.yaml").out.split())
    assert told.format(written, judged) in out if told else written not in out
    assert not judged or "(family glm4)" in out


RAY = "ray_num_workers: 1\nresources_per_worker:\n  GPU: 1\n"


def test_a_key_that_llamafactory_does_not_have_stops_the_run(check, tmp_path):
    (tmp_path / "lf.yaml").write_text(TRAIN + "stage: sft\nfinetuning_type: lora\nlora_rnak: 8\ndpo_beta: 0.1\n" + RAY)
    result = check("--recipe", "lf.yaml")
    assert result.code == 1 and "error[llamafactory-refuses-unknown-keys] x 2\n" in result.out
    assert "LLaMA-Factory has no key lora_rnak, and stops before it loads anything\n  --> lf.yaml:8\n" in result.out
    assert "did you mean lora_rank?" in result.out and "has no key dpo_beta" not in result.out
    assert "llamafactory-refuses" not in check("--recipe", "train.yaml").out


def test_a_word_of_code_makes_no_key_of_a_program_known(check, tmp_path):
    (tmp_path / "train.yaml").write_text("model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\nshuffle_all: 1\n")
    (tmp_path / "a.py").write_text("shuffle_all = 1\n")
    assert "shuffle_all is not known" in check("--recipe", "train.yaml", "--code", "a.py").out


def test_the_configuration_may_name_the_recipe(run, facts_file, tmp_path, monkeypatch):
    (tmp_path / "train.yaml").write_text(TRAIN)
    (tmp_path / "envdoctor.toml").write_text('recipe = "train.yaml"\n')
    monkeypatch.chdir(tmp_path)
    assert fact(run, facts_file, "recipe.train_batch_size", "--config", "envdoctor.toml") == 2


@pytest.mark.parametrize("content", ["", "a: [1", "hello: world", "\0"])
def test_a_file_that_is_no_recipe_is_one_sentence_and_exit_2(check, tmp_path, content):
    (tmp_path / "train.yaml").write_text(content)
    result = check("--recipe", "train.yaml")
    assert result.code == 2 and result.err.startswith("envdoctor: --recipe train.yaml: ")


def test_the_facts_of_a_recipe_have_their_lines(run, facts_file):
    result = run("facts", "--facts", facts_file({"pkg.torch": "2.5.0"}), "--recipe", STORIES / "1" / "run.sh")
    line = next(line for line in result.out.splitlines() if line.startswith("recipe.max_length"))
    assert "6001" in line and line.endswith("configs/lora.yaml:9")


def test_a_fix_of_a_notebook_is_told_as_its_calls_are_written(check, tmp_path):
    call = 'args = AutoModel.from_pretrained("x/y", attn_implementation="flash_attention_2")'
    cells = [{"cell_type": "code", "source": f"from transformers import AutoModel\n{call}\n"}]
    call = "Trainer(args=TrainingArguments(output_dir='out'))"
    cells.append({"cell_type": "code", "source": f"from transformers import Trainer, TrainingArguments\n{call}\n"})
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}))
    found = check("--recipe", "train.ipynb", "--set", "pkg.flash-attn=absent", "--format", "json").json["findings"]
    (finding,) = [one for one in found if one["id"] == "flash-attn-2-asked-but-not-installed"]
    assert {"recipe.attn": 'attn_implementation="sdpa"'} in [fix["keys"] for fix in finding["fixes"]]
    assert {"path": "train.ipynb", "line": 2, "cell": 1} in finding["locations"]


COMPOSE = """services:
  llm:
    image: vllm/vllm-openai:{}
    command: --model Qwen/Qwen3-8B --max-model-len 8192 --gpu-memory-utilization 0.80
"""


@pytest.mark.parametrize(
    ("tag", "code", "found"), [("v0.8.5", 0, []), ("v0.6.3", 1, ["engine-does-not-know-the-model"]), ("nightly", 3, [])]
)
def test_a_container_is_judged_by_its_image(run, tmp_path, tag, code, found):
    (tmp_path / "compose.yml").write_text(COMPOSE.format(tag))
    result = run("check", tmp_path / "compose.yml", "--gpu", "4090", "--no-config", "--format", "json")
    assert [finding["id"] for finding in result.json["findings"]] == found
    assert result.code == code


@pytest.mark.parametrize(
    ("layer", "policy", "code"),
    [
        ("LlamaDecoderLayer", "TRANSFORMER_BASED_WRAP", 1),
        ("Qwen2DecoderLayer", "TRANSFORMER_BASED_WRAP", 0),
        ("MyOwnBlock", "TRANSFORMER_BASED_WRAP", 0),
        ("LlamaDecoderLayer", "NO_WRAP", 0),
    ],
)
def test_fsdp_wraps_layers_that_the_model_has(check, tmp_path, layer, policy, code):
    lines = ["distributed_type: FSDP", "fsdp_config:", f"  fsdp_auto_wrap_policy: {policy}"]
    lines += [f"  fsdp_transformer_layer_cls_to_wrap: {layer}", "num_processes: 2", ""]
    (tmp_path / "fsdp.yaml").write_text("\n".join(lines))
    result = check("--recipe", "fsdp.yaml", "--model", "Qwen/Qwen2.5-7B-Instruct")
    assert ("fsdp-wraps-a-layer-of-another-model" in result.out) is (code == 1)
    assert result.code == code


def test_what_deepspeed_and_the_arguments_say_otherwise_is_named_by_its_section(check, tmp_path):
    config = '{"bf16": {"enabled": true},\n "zero_optimization": {"stage": 2},\n "optimizer": {"params": {"lr": %s}}}\n'
    arguments = 'TrainingArguments("out", deepspeed="ds.json", learning_rate=1e-5, %s=True)\n'
    (tmp_path / "ds.json").write_text(config % "5e-5")
    (tmp_path / "train.py").write_text("from transformers import TrainingArguments\n" + arguments % "fp16")
    out = check("--recipe", "train.py").out
    said = "the DeepSpeed configuration contradicts the training arguments: "
    assert said + "bf16.enabled" in out and said + "optimizer.params.lr" in out
    (tmp_path / "ds.json").write_text(config % "1e-5")
    (tmp_path / "train.py").write_text("from transformers import TrainingArguments\n" + arguments % "bf16")
    assert said not in check("--recipe", "train.py").out


SCRIPT = """\
from dataclasses import dataclass, field
import transformers

@dataclass
class DataArguments:
    data_path: str = field(default=None)

parser = transformers.HfArgumentParser((DataArguments, transformers.TrainingArguments))
data, args = parser.parse_args_into_dataclasses()
transformers.Trainer(args=args).train()
"""


def test_an_option_that_the_script_declares_is_known_and_stands_in_the_command(check, tmp_path):
    command = "torchrun train.py --model_name_or_path Qwen/Qwen2-7B --data_path x.json \\\n --bf16 True \\\n --zzz 1\n"
    (tmp_path / "run.sh").write_text(command)
    (tmp_path / "train.py").write_text(SCRIPT)
    result = check("--recipe", "run.sh", "--set", "gpu.cc=7.0", "--set", "gpu.name=V100", "--format", "json")
    places = {fact["origin"] for one in result.json["findings"] for fact in one["facts"] if "dtype" in fact["key"]}
    assert places == {"run.sh:2"}
    out = check("--recipe", "run.sh").out
    assert "data_path is not known" not in out
    assert "run.sh:3: zzz is not known" in out and out.count("zzz is not known") == 1
    (tmp_path / "train.py").write_text(SCRIPT.replace("(DataArguments, ", "(").replace("data, args", "(args,)"))
    assert "run.sh:1: data_path is not known" in check("--recipe", "run.sh").out


def test_each_training_command_of_a_script_can_be_judged(check, tmp_path):
    first, second = ("torchrun train.py --max_steps 1 --fp16 True", "torchrun train.py --max_steps 1 --bf16 True > log")
    (tmp_path / "run.sh").write_text(f"{first}\n{second}\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    said = "run.sh:{} is the run that is judged; run.sh has others in line {}: --recipe run.sh:{} judges one"
    for recipe, dtype, lines in (("run.sh", "bf16", (2, 1, 1)), ("run.sh:1", "fp16", (1, 2, 2))):
        out = " ".join(check("--recipe", recipe).out.split())
        assert said.format(*lines) in out and f"(transformers, {dtype}" in out.replace("full, ", "")


CONTINUED = """# of two
torchrun \\
 train.py --max_steps 1 \\
 --fp16 True
echo done
python train.py --max_steps 1 --bf16 True
"""


@pytest.mark.parametrize(
    ("recipes", "sentence"),
    [
        (["run.sh:999"], "run.sh: line 999 has no command that starts a program; lines with one: 3, 6"),
        (["run.sh:0"], "run.sh: line 0 has no command that starts a program; lines with one: 3, 6"),
        (["run.sh:1"], "run.sh: line 1 has no command that starts a program; lines with one: 3, 6"),
        (["run.sh:5"], "run.sh: line 5 has no command that starts a program; lines with one: 3, 6"),
        (["run.yaml:7"], "run.yaml: it has no commands; leave out :7"),
        (["train.py:2"], "train.py: it has no commands; leave out :2"),
        (["run.sh:3", "run.sh:6"], "run.sh:6: one run is judged at a time; name one line of run.sh"),
        (["run.sh", "run.sh:6"], "run.sh:6: one run is judged at a time; name one line of run.sh"),
    ],
)
def test_a_line_without_a_command_is_refused(check, tmp_path, recipes, sentence):
    (tmp_path / "run.sh").write_text(CONTINUED)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.yaml").write_text("stage: sft\nmodel_name_or_path: a/b\n")
    result = check(*(word for recipe in recipes for word in ("--recipe", recipe)))
    assert (result.code, result.err.strip()) == (2, f"envdoctor: --recipe {sentence}")


@pytest.mark.parametrize("line", [2, 3, 4])
def test_each_line_of_a_command_that_goes_on_below_names_it(check, tmp_path, line):
    (tmp_path / "run.sh").write_text(CONTINUED)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert "run.sh:3 is the run that is judged" in " ".join(check("--recipe", f"run.sh:{line}").out.split())


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve Qwen/Qwen2.5-7B-Instruct \\\n  --gpu-memory-utilization 0.95 --host 0.0.0.0:8000",
        "CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml",
        "accelerate launch train.py",
        "uv run python train.py learning_rate=1",
        "bash run.sh",
    ],
)
def test_a_command_may_stand_in_the_place_of_a_file(check, tmp_path, command):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text("python train.py --max_steps 1")
    (tmp_path / "given.sh").write_text(command)
    given, told = (check(word).out.partition("\nnote: ")[0] for word in ("given.sh", command))
    assert "Recipe" in given and given.replace("given.sh", "command") == told


def test_a_script_is_followed_for_the_model_that_the_recipe_names(check, tmp_path):
    """Qwen's finetune.py saves the embeddings of base models only, and asks for `chat` in the name."""
    code = "from transformers import AutoModelForCausalLM, TrainingArguments\nTrainingArguments('x')\n"
    (tmp_path / "train.py").write_text(f"{code}AutoModelForCausalLM.from_pretrained('a/base')\n")
    (tmp_path / "run.sh").write_text("python train.py\n")
    sentence = "the script was followed for a/base, which the recipe names; what it does for a/chat is not known"
    assert sentence in " ".join(check("--recipe", "run.sh", "--model", "a/chat").out.split())
    assert "was followed for" not in check("--recipe", "run.sh", "--model", "/models/base").out


def test_a_dtype_is_written_as_the_parser_takes_it(run, facts_file, tmp_path, monkeypatch):
    """TRL's --dtype has the choices auto, bfloat16, float16 and float32."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text("trl sft --model_name_or_path a/b --dataset_name c --use_peft\n")
    facts = facts_file({**ENVIRONMENT, "pkg.trl": "0.27.0", "pkg.transformers": "4.57.1"})
    out = run("check", "--facts", facts, "--recipe", "run.sh").out
    assert "fix    --dtype bfloat16" in out and "--dtype bf16" not in out


SFT = """import alignment
from trl import ModelConfig, SFTConfig, TrlParser
parser = TrlParser((alignment.ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
"""
HANDBOOK = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
use_peft: true
max_seq_length: 2048
chat_template: x
dataset_mixture:
  datasets:
  - id: a/b
  test_split_size: 1000
"""


@pytest.mark.parametrize(
    ("release", "field", "refused"),
    [("0.25.1", "seed", True), ("0.19.1", "seed", False), ("0.25.1", "max_seq_length", False)],
)
def test_a_key_that_no_class_of_a_script_takes_is_an_error_and_one_of_its_own_is_none(
    run, facts_file, tmp_path, release, field, refused
):
    """The recipes of the alignment-handbook, which TrlParser reads into classes of trl and of the project's own."""
    (tmp_path / "src" / "alignment").mkdir(parents=True)
    declared = (
        f"class ScriptArguments:\n    dataset_mixture: dict\n    chat_template: str = None\n    {field}: str = None\n"
    )
    (tmp_path / "src" / "alignment" / "configs.py").write_text(declared)
    (tmp_path / "sft.py").write_text(SFT)
    (tmp_path / "sft.yaml").write_text(HANDBOOK)
    facts = facts_file({"pkg.trl": release, "pkg.transformers": "4.57.1"})
    answer = run("check", "--facts", facts, "--recipe", "sft.yaml", "--code", "sft.py", cwd=tmp_path)
    assert ("trl.SFTConfig(max_seq_length=); instead: max_length=" in answer.out) is refused
    assert "did you mean" not in answer.out


@pytest.mark.parametrize(
    ("cast", "found"),
    [
        ("", True),
        ("model = prepare_model_for_kbit_training(model)", False),
        ("model = model.float()", False),
        ("for p in model.parameters(): p.data = p.data.float()", False),
        ("for p in model.parameters(): p.data = p.data.to(torch.float32)", False),
        ("peft.helpers.cast_training_params(model)", False),
    ],
)
def test_adapters_that_the_script_makes_float32_have_gradients_that_can_be_unscaled(
    run, facts_file, tmp_path, cast, found
):
    (tmp_path / "t.py").write_text(f"""import peft, torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-7b", torch_dtype=torch.float16)
model = get_peft_model(model, LoraConfig(r=8, task_type="CAUSAL_LM"))
{cast}
Trainer(model=model, args=TrainingArguments(fp16=True, output_dir="o")).train()
""")
    facts = {"pkg.torch": "2.1.2", "pkg.transformers": "4.36.2", "pkg.peft": "0.7.1", "python.version": "3.10.1"}
    answer = run("check", "--no-config", "--facts", facts_file(facts), "--recipe", "t.py")
    assert ("fp16-gradients-cannot-be-unscaled" in answer.out) is found, answer.out


@pytest.mark.parametrize(
    ("base", "config", "found"),
    [
        ("transformers.Trainer", "DPOConfig", []),
        ("transformers.Trainer", "KTOConfig", []),
        ("trl.DPOTrainer", "DPOConfig", ["trl-before-0-12-fails-with-transformers-4-46"]),
        ("trl.KTOTrainer", "KTOConfig", ["trl-before-0-12-fails-with-transformers-4-46"]),
    ],
)
def test_a_trainer_is_what_it_inherits_from_whoever_made_its_settings(run, tmp_path, monkeypatch, base, config, found):
    """A project's own trainer over the one of transformers takes no method of TRL's, whose settings it reuses."""
    (tmp_path / "l.txt").write_text("torch==2.3.1\ntransformers==4.51.0\ntrl==0.10.1\naccelerate==1.2.0\n")
    (tmp_path / "mine.py").write_text(f"import transformers\nimport trl\nclass Mine({base}):\n    beta = 0.1\n")
    (tmp_path / "t.py").write_text(
        f"import trl\nfrom mine import Mine\nMine(model='Qwen/Qwen2.5-7B', args=trl.{config}(output_dir='o')).train()\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ("--lock", "l.txt", "--target-python", "3.11", "--target-platform", "linux-x86_64", "--recipe", "t.py")
    report = run("check", *words, "--format", "json").json
    errors = [one for one in report["findings"] if one["severity"] == "error" and one["status"] == "active"]
    assert [one["id"] for one in errors] == found
