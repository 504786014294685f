"""``memory --data``: as a person asks how long their data is, and reads the answer."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate
from pinned import installing, pinned

import envdoctor
from envdoctor.peak import fed_length

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
#: Four tokens of the template and one word of the role a turn: 8 more than the words of both.
ANSWER = {"role": "assistant", "content": "b"}
ROWS = [{"messages": [{"role": "user", "content": "a " * n}, ANSWER]} for n in (3, 5, 90)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a tokenizer that counts words, and train.jsonl."""
    marks = {"[UNK]": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    added = [{"id": place, "content": word, **plain} for word, place in marks.items() if place]
    words = {"type": "WordLevel", "vocab": marks, "unk_token": "[UNK]"}
    tokenizer = {"version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": words}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path


@pytest.fixture
def ask(run: Any, folder: Path) -> Any:
    return lambda *words: run("memory", "--no-config", "--no-gpu", "--no-cache", "--data", *words, cwd=folder)


@pytest.mark.torch
def test_the_longest_row_is_the_length_unless_the_recipe_cuts_it(ask: Any, torch_python: str) -> None:
    recipe = ["--set=recipe.method=full", "--set=recipe.train_batch_size=2", "--gpu", "A6000", "--python", torch_python]
    answer = ask("train.jsonl", "--model", "model", *recipe)
    assert answer.code == 0, answer.err + answer.out
    assert "3 rows of train.jsonl (conversations)" in answer.out
    assert "tokens: half have up to 12, 90% 97, 99% 97, the longest 97" in answer.out
    assert "batch 2 x 97 tokens" in answer.out and "cut off" not in answer.out
    cut = ["--set=recipe.train_batch_size=2", "--set=recipe.max_length=50", "--python", torch_python]
    report = ask("train.jsonl", "--tokenizer", "model", *cut, "--format", "json").json
    schema = Path(envdoctor.__file__).parent / "report" / "schemas" / "report.schema.json"
    validate(report, json.loads(schema.read_bytes()))
    data = report["sections"]["data"]
    assert (data["cut"], data["cutoff"], data["longest"], data["longest_batch"]) == (1, 50, 97, 100)
    assert (fed_length(data, packed=False), fed_length({**data, "cutoff": None}, packed=False)) == (50, 97)


@pytest.mark.torch
def test_without_a_model_the_lengths_are_all_that_is_told(ask: Any, torch_python: str) -> None:
    answer = ask("train.jsonl", "--tokenizer", "model", "--python", torch_python)
    assert answer.code == 0 and "memory was not predicted" in answer.out
    assert "8 a batch, up to 291 tokens: 59% padding, 59% if grouped by length, 39% if packed" in answer.out
    chinese = ask("train.jsonl", "--tokenizer", "model", "--python", torch_python, "--lang", "zh").out
    assert "train.jsonl 共 3 行（对话）" in chinese and "填充占 59%" in chinese


def test_a_tokenizer_that_is_code_of_the_model_is_not_run(ask: Any, folder: Path) -> None:
    (folder / "model" / "tokenizer.json").unlink()
    answer = ask("train.jsonl", "--tokenizer", "model")
    assert answer.code == 3
    assert "tokens could not be counted: model has no tokenizer.json, and code of a model is never run" in answer.out
    assert "the longest text has 242 bytes, and no more tokens than that" in answer.out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["train.jsonl"], 2, "give --tokenizer DIR, or --model DIR that has one"),
        (["train.jsonl", "--tokenizer", "/nowhere"], 2, "--tokenizer /nowhere"),
        (["no.jsonl", "--tokenizer", "model"], 3, "--data no.jsonl cannot be read: "),
        (["model", "--tokenizer", "model"], 3, "--data model cannot be read: it is a folder"),
        (["bad.jsonl", "--tokenizer", "model"], 3, "--data bad.jsonl: no row of it could be read; row 1 is not JSON"),
        (["bad.parquet", "--tokenizer", "model"], 3, "pyarrow"),  # is not installed, or cannot read it
    ],
)
def test_what_cannot_be_read_is_one_sentence(ask: Any, folder: Path, words: Any, code: int, sentence: str) -> None:
    (folder / "bad.jsonl").write_bytes(b"\0 hello\n" * 3)
    (folder / "bad.parquet").write_bytes(b"PAR1....")
    answer = ask(*words)
    assert answer.code == code and sentence in answer.err and "Traceback" not in answer.err
    assert len(answer.err.strip().splitlines()) == 1


@pytest.mark.torch
def test_a_template_that_refuses_leaves_the_words(ask: Any, folder: Path, torch_python: str) -> None:
    template = "{{ raise_exception('system first') }}"
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    answer = ask("train.jsonl", "--tokenizer", "model", "--python", torch_python)
    assert answer.code == 0 and "99% 91, the longest 91" in answer.out
    assert "the chat template refused 3 samples, of which the words alone were counted; row 1" in answer.out


@pytest.mark.slow
@pytest.mark.torch
def test_parquet_is_read_by_the_pyarrow_of_the_target(run: Any, folder: Path, torch_python: str) -> None:
    packages = str(folder / "packages")
    into = installing(torch_python, "--no-deps", "--target", packages, *pinned(folder, "pyarrow"))
    subprocess.run([*into, "pyarrow"], check=True, capture_output=True)
    there = {"PYTHONPATH": packages}
    code = "import json, pyarrow, pyarrow.parquet as p; rows = [json.loads(line) for line in open('train.jsonl')]; "
    code += "p.write_table(pyarrow.Table.from_pylist([{**row, 'image': b'\\xff'} for row in rows]), 'train.parquet')"
    subprocess.run([torch_python, "-c", code], cwd=folder, check=True, env={**os.environ, **there})
    words = ["memory", "--no-config", "--no-gpu", "--format", "json", "--tokenizer", "model", "--python", torch_python]
    answers = [run(*words, "--data", name, cwd=folder, env=there).json for name in ("train.jsonl", "train.parquet")]
    lines, parquet = (answer["sections"]["data"] for answer in answers)
    assert parquet == {**lines, "path": "train.parquet"} and parquet["longest"] == 97
