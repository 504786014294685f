"""A file, a folder, a model or a fact that is typed without an option is taken as what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envdoctor.app import UsageProblem
from envdoctor.app.words import meant

TAKES = ("python", "path", "root", "lock", "sbom", "facts", "report", "model", "recipe", "code", "assignments")
FILES = {
    "train.py": "",
    "run.ipynb": "",
    "run.sh": "torchrun train.py",
    "lora.yaml": "model_name_or_path: a/b\nfinetuning_type: lora\n",
    "args.json": '{"per_device_train_batch_size": 2}',
    "environment.yml": "name: x\nchannels: [conda-forge]\ndependencies:\n- python=3.11\n",
    "uv.lock": "",
    "requirements-gpu.txt": "",
    "env.txt": "# pins\ntorch==2.5.0 ; python_version > '3'\nflash-attn\n-r more.txt\n",
    "list.txt": "Package Version\n------- -------\ntorch   2.5.0\n",
    "issue.md": "torch==2.5.0",
    "train.log": "CUDA out of memory",
    "here.json": json.dumps({"schema": "envdoctor.facts/1", "facts": {}}),
    "bom.json": json.dumps({"bomFormat": "CycloneDX"}),
    "pyproject.toml": "",
    "Dockerfile": "FROM x",
    "python3.11": "",
    "model/config.json": "{}",
    "venv/pyvenv.cfg": "",
    "code/a.py": "",
    "packages/torch-2.5.0.dist-info/METADATA": "",
    "image/etc/os-release": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("train.py", ["recipe", "code"]),
        ("run.ipynb", ["recipe", "code"]),
        ("run.sh", ["recipe"]),
        ("lora.yaml", ["recipe"]),
        ("args.json", ["recipe"]),
        ("environment.yml", ["lock"]),
        ("uv.lock", ["lock"]),
        ("requirements-gpu.txt", ["lock"]),
        ("env.txt", ["lock"]),
        ("list.txt", ["report"]),
        ("issue.md", ["report"]),
        ("train.log", ["report"]),
        ("here.json", ["facts"]),
        ("bom.json", ["sbom"]),
        ("pyproject.toml", ["lock"]),
        ("Dockerfile", ["lock"]),
        ("python3.11", ["python"]),
        ("model/config.json", ["model"]),
        ("model", ["model"]),
        ("venv", ["python"]),
        ("code", ["code"]),
        ("packages", ["path"]),
        ("image", ["root"]),
        ("recipe.batch_size=2", ["assignments"]),
        ("THUDM/glm-4-9b-chat-hf", ["model"]),
        ("https://huggingface.co/Qwen/Qwen2.5-7B", ["model"]),
        ("Qwen2.5-7B-Instruct", ["model"]),
    ],
)
def test_a_word_is_what_its_name_and_its_beginning_say(folder: Path, word: str, kinds: list[str]) -> None:
    assert meant(word, str(folder), TAKES) == kinds


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("trian.py", "did you mean train.py?"),
        ("nothing", "no such file or folder"),
        ("no/such/folder", "no such folder"),
        ("https://modelscope.cn/models/a/b", "ModelScope"),
        ("", "no such file or folder"),
        ("a\0b", "no such file or folder"),
    ],
)
def test_a_word_that_is_nothing_is_refused_in_a_sentence(folder: Path, word: str, said: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        meant(word, str(folder), TAKES)
    assert said in str(problem.value)


def test_what_the_command_does_not_take_is_refused(folder: Path) -> None:
    with pytest.raises(UsageProblem) as problem:
        meant("uv.lock", str(folder), ("model", "recipe"))
    assert "--lock" in str(problem.value)


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
    assert [str(text) for text in typed.taken] == [
        "train.py is taken as --recipe --code",
        "uv.lock is taken as --lock",
        "a/b is taken as --model",
    ]
    with pytest.raises(UsageProblem, match="give one of them"):
        run("uv.lock", "env.txt")
