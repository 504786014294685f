"""A file, a folder, a model or a fact that is typed without an option is taken as what it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from envdoctor.app import UsageProblem
from envdoctor.app.words import meant

TAKES = ("python", "path", "root", "lock", "sbom", "facts", "report", "model", "recipe", "code", "assignments")
#: Files, what they hold, and what they are taken as.
FILES = {
    "train.py": ("", "recipe code"),
    "run.ipynb": ("", "recipe code"),
    "run.sh": ("torchrun train.py", "recipe"),
    "lora.yaml": ("model_name_or_path: a/b\nfinetuning_type: lora\n", "recipe"),
    "args.json": ('{"per_device_train_batch_size": 2}', "recipe"),
    "environment.yml": ("name: x\nchannels: [conda-forge]\ndependencies:\n- python=3.11\n", "lock"),
    "uv.lock": ("", "lock"),
    "requirements-gpu.txt": ("", "lock"),
    "env.txt": ("# pins\ntorch==2.5.0 ; python_version > '3'\nflash-attn\n-r more.txt\n", "lock"),
    "list.txt": ("Package Version\n------- -------\ntorch   2.5.0\n", "report"),
    "issue.md": ("torch==2.5.0", "report"),
    "train.log": ("CUDA out of memory", "report"),
    "here.json": (json.dumps({"schema": "envdoctor.facts/1", "facts": {}}), "facts"),
    "bom.json": (json.dumps({"bomFormat": "CycloneDX"}), "sbom"),
    "pyproject.toml": ("", "lock"),
    "Dockerfile": ("FROM x", "lock"),
    "python3.11": ("", "python"),
    "model/config.json": ("{}", "model"),
}
#: Folders by a file in them, and other words.
FOLDERS = {
    "model": ("config.json", "model"),
    "venv": ("pyvenv.cfg", "python"),
    "code": ("a.py", "code"),
    "packages": ("torch-2.5.0.dist-info/METADATA", "path"),
    "image": ("etc/os-release", "root"),
}
WORDS = {
    "recipe.batch_size=2": "assignments",
    "torch==2.5.0": "assignments",
    "THUDM/glm-4-9b-chat-hf": "model",
    "https://huggingface.co/Qwen/Qwen2.5-7B": "model",
    "Qwen2.5-7B-Instruct": "model",
    **{name: kinds for name, (_, kinds) in {**FILES, **FOLDERS}.items()},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = {f"{folder}/{name}": ("", "") for folder, (name, _) in FOLDERS.items()}
    for name, (text, _) in {**inside, **FILES}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("word", "kinds"), WORDS.items())
def test_a_word_is_what_its_name_and_its_beginning_say(folder: Path, word: str, kinds: str) -> None:
    assert meant(word, str(folder), TAKES) == kinds.split()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("trian.py", "did you mean train.py?"),
        ("nothing", "no such file or folder"),
        ("no/such/folder", "no such folder"),
        ("https://modelscope.cn/models/a/b", "ModelScope"),
        ("", "no such file or folder"),
        ("a\0b", "no such file or folder"),
        ("uv.lock", "this command has no --lock"),
    ],
)
def test_a_word_that_is_nothing_or_not_taken_is_refused_in_a_sentence(folder: Path, word: str, said: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        meant(word, str(folder), TAKES if word != "uv.lock" else ("model", "recipe"))
    assert said in str(problem.value)


def test_a_list_that_never_ends_is_looked_at_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("torch==2.5.0\n" * 400_000, encoding="utf-8")
    (tmp_path / "line.txt").write_text("a[" * 2_000_000, encoding="utf-8")
    assert meant("long.txt", str(tmp_path), TAKES) == ["lock"]
    assert meant("line.txt", str(tmp_path), TAKES) == ["report"]


def test_words_and_options_say_one_thing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from envdoctor.cli import check
    from envdoctor.cli.options import CommandRun

    monkeypatch.chdir(folder)

    def run(*words: str) -> Any:
        options = check.OPTIONS.read(words, {})
        assert options is not None
        return CommandRun(options)

    typed, named = (
        run("train.py", "uv.lock", "a/b"),
        run("--recipe=train.py", "--code=train.py", "--lock=uv.lock", "--model=a/b"),
    )
    assert typed.sources() == named.sources()
    with pytest.raises(UsageProblem, match="a run judges one --lock: run it for each"):
        run("uv.lock", "env.txt")
