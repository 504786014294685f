"""``envdoctor plan``: uv resolves, the rules judge, and the list that comes out has no error; nothing is installed."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from small_index import SmallIndex

DAY = "2026-01-01"
MACHINE = ("--target-python", "3.11", "--target-platform", "linux-x86_64")
OLD_DRIVER = (*MACHINE, "--target-driver", "535.161.08")
A100 = (*OLD_DRIVER, "--target-gpu", "A100")
GLM3 = ("--model", "zai-org/chatglm3-6b")


@pytest.fixture
def index():
    """Releases with the requirements that the real ones have of each other, and nothing in them."""
    with SmallIndex() as small:
        for version in ("2.10.0", "2.13.0", "2.13.0+cpu"):
            small.wheel("torch", version, DAY, {})
        for version, tokenizers in (("4.40.0", ">=0.19,<0.20"), ("4.48.3", ">=0.21,<0.22"), ("5.23.0", ">=0.22,<0.24")):
            small.wheel("transformers", version, DAY, {}, requires=(f"tokenizers{tokenizers}", "huggingface-hub"))
        for name, versions in {
            "accelerate": ["1.15.0"],
            "huggingface-hub": ["0.36.2", "2.4.0"],
            "sentencepiece": ["0.2.1"],
            "tiktoken": ["0.12.0"],
            "tokenizers": ["0.19.1", "0.21.4", "0.23.3"],
        }.items():
            for version in versions:
                small.wheel(name.replace("-", "_"), version, DAY, {})
        yield small


@pytest.fixture
def planned(run, index, tmp_path):
    def start(*arguments, **environ):
        uv = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(tmp_path / "uv"), "UV_NO_CONFIG": "1", "PATH": uv}
        return run("plan", *arguments, "--no-config", env={**own, **environ})

    return start


def test_a_list_for_a_stated_machine_has_no_error(run, planned, tmp_path):
    result = planned(*GLM3, *A100, "--out", "new.txt")
    assert (result.code, result.err) == (0, "")
    text = (tmp_path / "new.txt").read_text()
    assert "torch==2.10.0\n" in text and "transformers==4.48.3\n" in text and "sentencepiece==0.2.1\n" in text
    assert "# torch<=2.10.0: driver-too-old-for-cuda-13: the NVIDIA driver is too old" in text
    checked = run("check", "--lock", "new.txt", *GLM3, *A100)
    assert checked.code == 0 and "No findings" in checked.out


def test_what_a_rule_forbids_is_resolved_again(planned):
    tuned = ("--model", "me/tuned", "--set", "model.family=chatglm2", "--set", "model.remote_code=true")
    result = planned(*tuned, *A100, "--lang", "zh")
    assert result.code == 0 and "\ntransformers==4.48.3\n" in result.out and "\ntokenizers==0.21.4\n" in result.out
    assert "# transformers<=4.48.3：chatglm-does-not-load-with-transformers-5：" in result.out
    assert all(re.search("[\u4e00-\u9fff]", line) for line in result.out.splitlines() if line.startswith("#"))


def test_without_a_gpu_the_build_for_the_cpu_is_taken_from_the_users_index(planned):
    result = planned("--model", "zai-org/glm-4-9b-chat-hf", *MACHINE, "--target-gpu", "none", "torch==2.13.0")
    assert result.code == 0 and "\ntorch==2.13.0+cpu\n" in result.out and "index-url" not in result.out


#: Stands in for uv where it cannot reach torch's own index: the user's has no such build, torch's has it.
NO_MIRROR = """#!/bin/sh
lines=$(cat)
version() { printf '%s' "$lines" | sed -n "s/^torch$1//p" | tail -1; }
tag=$(printf '%s' "$*" | sed -n 's/.*--torch-backend //p')
case "$*$(version ==)" in
  *--torch-backend*) echo "torch==$(version ==)+$tag" ;;
  *+*) echo "No solution found" >&2; exit 1 ;;
  *) echo "torch==$(version '<=')" ;;
esac
echo transformers==4.57.6
"""


@pytest.mark.parametrize(
    ("gpu", "driver", "asked", "build", "system"),
    [
        ("A100", "535.161.08", "torch==2.13.0", "2.13.0+cu126", "linux"),
        ("RTX5090", "575.57.08", "torch==2.7.1", "2.7.1+cu128", "linux"),
        ("A100", "450.80.02", "wandb", "2.7.1+cu118", "linux"),
        # PyPI has builds for the CPU alone there.
        ("RTX4070", "576.88", "torch==2.6.0", "2.6.0+cu126", "windows"),
    ],
)
def test_the_list_names_the_index_of_the_build_that_fits(planned, tmp_path, gpu, driver, asked, build, system):
    (tmp_path / "uv").write_text(NO_MIRROR)
    (tmp_path / "uv").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    machine = (*MACHINE[:-1], f"{system}-x86_64", "--target-gpu", gpu, "--target-driver", driver)
    result = planned("--model", "Qwen/Qwen2.5-7B", *machine, asked, PATH=path)
    index = f"--extra-index-url https://download.pytorch.org/whl/{build.partition('+')[2]}\n"
    assert result.code == 0 and f"\n{index}torch=={build}\n" in result.out, result.err
    assert "install: uv pip install --index-strategy unsafe-best-match -r FILE" in result.out


def test_of_two_cures_the_one_is_taken_that_leaves_what_was_asked_for(planned, index, tmp_path):
    """Another trl, which is named first, or another transformers."""
    for name, version in (("trl", "0.11.4"), ("trl", "0.29.1"), ("peft", "0.12.0"), ("datasets", "2.21.0")):
        index.wheel(name, version, DAY, {})
    (tmp_path / "train.py").write_text("from trl import DPOTrainer\nDPOTrainer(model, train_dataset=data).train()\n")
    result = planned("--recipe", "train.py", "--code", "train.py", *MACHINE, "trl==0.11.4", "peft==0.12.0")
    assert result.code == 0 and "\ntrl==0.11.4\n" in result.out, result.err
    assert "\ntransformers==4.40.0\n" in result.out


@pytest.mark.parametrize(
    ("release", "newest", "taken"),
    [
        ("0.9.2", "4.50", ["transformers==4.48.3"]),
        ("0.9.5", "5.30", ["transformers==5.23.0", "torchaudio==2.10.0"]),
    ],
)
def test_the_framework_of_the_recipe_has_its_newest_release(planned, index, tmp_path, release, newest, taken):
    """Not an old one that names no bounds and so goes with the newest of everything; torchaudio follows torch where
    transformers imports it with every model."""
    index.wheel("llamafactory", "0.8.3", DAY, {}, requires=("transformers>=4.40",))
    index.wheel("llamafactory", release, DAY, {}, requires=(f"transformers<={newest}", "torchaudio"))
    for name, version in (("torchaudio", "2.10.0"), ("torchaudio", "2.11.0"), ("peft", "0.18.1"), ("trl", "0.24.0")):
        index.wheel(name, version, DAY, {})
    recipe = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\n"
    (tmp_path / "r.yaml").write_text(recipe)
    result = planned("--recipe", "r.yaml", *A100)
    assert result.code == 0 and ", for Qwen/Qwen2.5-7B-Instruct, " in result.out, result.err
    assert {f"llamafactory=={release}", *taken} <= set(result.out.splitlines())


def test_no_set_is_said_with_the_reason(planned):
    result = planned(*GLM3, *A100, "transformers==5.23.0", "--out", "new.txt")
    assert (result.code, result.out) == (1, "")
    assert "uv, asked for " in result.err and "transformers>=4.36.2,<4.49" in result.err
    old = planned(*GLM3, *MACHINE, "--target-gpu", "RTX5090", "torch==2.5.1")
    assert old.code == 1 and "gpu-newer-than-torch-build" in old.err


def test_a_package_without_a_wheel_leaves_it_open(planned, index):
    index.sdist("fire", "0.7.1", DAY, {})
    result = planned(*GLM3, *A100, "fire")
    assert result.code == 3 and "some package has no wheel, and nothing is built here" in result.err


def test_an_environment_gets_the_least_change(planned, tmp_path):
    (tmp_path / "facts.json").write_text(
        '{"schema": "envdoctor.facts/1", "facts": {"pkg.transformers": "5.23.0", "model.repo": "zai-org/chatglm3-6b"}}'
    )
    result = planned("--facts", "facts.json")
    assert result.code == 0 and result.out.endswith("\ntransformers==4.48.3\n")
    assert "# chatglm-does-not-load-with-transformers-5: " in result.out
    chinese = planned("--facts", "facts.json", "--lang", "zh").out
    assert "# 安装：python -m pip install transformers==4.48.3\n" in chinese and "无法" in chinese
    (tmp_path / "facts.json").write_text('{"schema": "envdoctor.facts/1", "facts": {"pkg.transformers": "4.48.3"}}')
    assert planned("--facts", "facts.json").out == "# nothing to change: no error is known\n"


@pytest.mark.parametrize(
    ("built", "again"), [("2.7.4.post1", True), ("2.8.0.post2+cu12torch2.7cxx11abiTRUE", False), (None, False)]
)
def test_what_was_compiled_for_the_torch_before_is_named(run, tmp_path, built, again):
    facts = {"pkg.torch": "2.5.1+cu121", "pkg.flash-attn": built, "driver.version": "570.124.06"}
    facts["gpu"] = [{"name": "NVIDIA GeForce RTX 5090", "cc": "12.0"}]
    (tmp_path / "facts.json").write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": facts}))
    for command in ("plan", "check"):
        said = run(command, "--facts", "facts.json", "--no-config").out
        assert "torch==2.7.0+cu128" in said
        assert ("install again after it: flash-attn\n" in said) is again


def test_a_list_installs_all_of_it_again_anyway(run, tmp_path):
    (tmp_path / "pins.txt").write_text("torch==2.5.1\ndeepspeed==0.16.4\n")
    said = run("plan", "--lock", "pins.txt", *MACHINE, "--target-gpu", "5090", "--no-config").out
    assert "\ntorch==2.7" in said and "again" not in said


#: A script that a release before transformers 4.51 runs, of a model that is too large for a card of 24 GB.
SCRIPT = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype="bfloat16")
args = TrainingArguments(
    "out", evaluation_strategy="steps", gradient_checkpointing=True, per_device_train_batch_size=1
)
Trainer(model=model, args=args).train()
"""


def test_a_changed_list_names_the_index_of_its_build(run, tmp_path):
    """It was in a comment alone, and the list was refused for the driver again."""
    (tmp_path / "pins.txt").write_text("torch==2.14.1\n")
    target = (*MACHINE, "--target-gpu", "A100-80G", "--target-driver", "550")
    assert run("plan", "--lock", "pins.txt", *target, "--out", "new.txt").code == 0
    assert "driver-too-old" not in run("check", "--lock", "new.txt", *target).out


@pytest.mark.parametrize(
    ("pin", "asked", "said"),
    [
        ("torch==2.2.0", ">=5.0", "transformers==5.0.0"),
        ("torch==2.2.0", ">=4.30", "transformers==4.57.6"),
        ("torch<2.4", ">=5.10", "pins.txt:1 asks for torch<2.4: that line must change with it"),
    ],
)
def test_a_plan_keeps_the_bounds_of_the_list_or_says_which_one_is_in_the_way(run, tmp_path, pin, asked, said):
    (tmp_path / "pins.txt").write_text(f"{pin}\ntransformers{asked}\naccelerate\n")
    result = run("plan", "--lock", "pins.txt", *MACHINE, "--target-gpu", "A100-80G")
    assert said in (result.out if "==" in said else result.err)
    assert (result.code, "\ntransformers==" in result.out) == ((0, True) if "==" in said else (1, False))


@pytest.mark.parametrize(
    ("lines", "planned_"),
    [
        # The type of the model is known from 4.37.0 on.
        ("torch==2.1.2\ntransformers==4.36.2\naccelerate==0.25.0\nnumpy==1.26.4\n", ["transformers==4.37.0"]),
        # What asks for another torch is moved, and not torch.
        ("vllm==0.6.3\ntorch==2.5.1\ntransformers==4.46.3\n", ["vllm==0.6.4"]),
        ("tqdm==4.66.0\ndatasets==2.20.0\ntransformers==4.43.0\n", ["tqdm==4.66.3"]),
    ],
)
def test_a_list_is_planned_until_it_can_be_installed_and_runs_the_model(run, tmp_path, lines, planned_):
    """uv resolves the changed lists, and refuses those before."""
    (tmp_path / "pins.txt").write_text(lines)
    asked = ("--lock", "pins.txt", "--model", "Qwen/Qwen2.5-1.5B", *MACHINE)
    result = run("plan", *asked)
    assert (result.code, result.err) == (0, "")
    assert [line for line in result.out.splitlines() if not line.startswith("#")] == planned_
    for line in planned_:
        lines = re.sub(rf"(?m)^{line.partition('=')[0]}==.*$", line, lines)
    (tmp_path / "pins.txt").write_text(lines)
    assert run("check", *asked).code == 0


@pytest.mark.parametrize("option", ["--code", "--recipe"])
def test_an_older_release_is_looked_for_where_the_code_needs_it(planned, tmp_path, option):
    (tmp_path / "train.py").write_text(SCRIPT.replace("7B", "0.5B"))
    (tmp_path / "pins.txt").write_text("transformers==5.23.0\n")
    new = planned(option, "train.py", *A100)
    assert (new.code, new.err) == (0, "") and "\ntransformers==4.48.3\n" in new.out
    assert re.search("\n# transformers<=[0-9.]+: use-keyword-renamed: ", new.out)
    listed = planned("--lock", "pins.txt", option, "train.py", *A100)
    assert (
        listed.code == 0
        and re.search(r"\ntransformers==4\.[0-9.]+\n", listed.out)
        and "use-keyword-renamed: " in listed.out
    )


@pytest.mark.parametrize("where", [(), ("--lock", "pins.txt")])
def test_where_no_version_helps_the_plan_names_the_change_of_the_run(run, planned, tmp_path, where):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pins.txt").write_text("transformers==5.23.0\n")
    result = planned(*where, "--recipe", "train.py", *OLD_DRIVER, "--target-gpu", "3090")
    assert (result.code, result.err.count("\n")) == (1, 1) and "no set of versions" not in result.err
    assert re.search("no release is known to end this, a change of the run, .* does: does-not-fit: ", result.err)
    assert re.search(r"\ntransformers==4\.[0-9.]+\n", result.out)
    assert re.search(
        "\n# also: (load_in_4bit=True|recipe.method=qlora), recipe.lora_r=8 [(].* GiB of tensors, fits[)]\n", result.out
    )
    (command,) = re.findall(r"# envdoctor (memory .*) \(how much", result.out)
    assert run(*command.split(), "--no-config").code == 1


def test_what_the_code_must_change_does_not_stop_a_list(planned, tmp_path):
    code = "from transformers import TrainingArguments\nTrainingArguments('o', no_cuda=True)\n"
    (tmp_path / "train.py").write_text(code)
    asked = ("--code", "train.py", *A100, "transformers==5.23.0")
    result = planned(*asked)
    assert result.code == 1 and "\ntransformers==5.23.0\n" in result.out, result.err
    assert re.search("(?m)^# use-keyword-[a-z]+: .* the code", result.out) and "no set of versions" not in result.err


def test_what_cannot_be_asked_is_one_sentence(planned, index):
    assert "no GPU of that name" in planned(*GLM3, *MACHINE, "--target-gpu", "A1000000").err
    index.broken = "simple/torch"
    broken = planned(*GLM3, *A100, UV_HTTP_RETRIES="0")
    assert broken.code == 3 and broken.err.startswith("envdoctor: uv failed: ") and broken.err.count("\n") == 1
    hostile = planned(*GLM3, *A100, "--index-url=http://127.0.0.1:1/simple")
    assert hostile.code == 2
    for more in ("wandb @ https://h/x.whl\n--index-url=http://127.0.0.1:1", "wandb --find-links=/x", "--find-links=/x"):
        smuggled = planned(*GLM3, *A100, "--", more)
        assert smuggled.code == 2 and smuggled.err.count("\n") == 1 and "itself failed" not in smuggled.err
    assert planned(*GLM3, *A100, "torch @ file:///etc/passwd").code == 3


@pytest.mark.slow
def test_the_real_index_has_a_set(run, tmp_path):
    uv = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        **({} if "ENVDOCTOR_TEST_NEWEST" in os.environ else {"UV_EXCLUDE_NEWER": "2026-11-24"}),
    }
    gpu = (*MACHINE, "--target-gpu", "RTX5090", "--target-driver", "575.57.08", "--model", "openai/gpt-oss-20b")
    result = run("plan", *gpu, "--out", "new.txt", env=uv, timeout=300)
    assert result.code == 0, result.err
    assert run("check", "--lock", "new.txt", *gpu).code == 0


def test_a_report_that_does_not_tell_enough_has_no_plan(run, tmp_path):
    failed = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'flash_attn'\n"
    (tmp_path / "report.txt").write_text(f"Python: 3.10.12\n{failed}")
    result = run("plan", "--report", "report.txt")
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("envdoctor: whether there is an error is not known: the run in it failed with")
