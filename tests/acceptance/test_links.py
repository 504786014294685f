"""A broken import found before it happens: in a folder by its files, in a facts file by the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def write(site: Path, name: str, version: str, source: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n")
    (site / name).mkdir()
    (site / name / "__init__.py").write_text(source)


def test_a_folder_whose_peft_takes_what_transformers_has_not(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "peft", "0.17.0", "from transformers import HybridCache\n")
    write(tmp_path, "transformers", "5.23.0", "class Cache: ...\n")
    result = run("check", "--no-config", "--path", str(tmp_path))
    assert result.code == 1
    said = "peft takes transformers.HybridCache (in peft:1); transformers 5.23.0 has no such name"
    assert said in result.out
    assert "import peft" in result.out


def test_a_working_folder_has_no_such_finding(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "peft", "0.17.0", "from transformers import Cache\n")
    write(tmp_path, "transformers", "5.23.0", "class Cache: ...\n")
    result = run("check", "--no-config", "--path", str(tmp_path), "--format", "json")
    assert [entry["id"] for entry in result.json["findings"] if entry["id"].startswith("import-")] == []


TRAINER = """\
class Trainer:
    def __init__(self, model=None, processing_class=None): ...
    def train(self):
        return self.compute_loss(1, 2, num_items_in_batch=3)
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None): ...
"""
FITTED = """\
from transformers import Trainer
class SentenceTransformerTrainer(Trainer):
    def __init__(self, tokenizer=None):
        super().__init__(%s=tokenizer)
    def compute_loss(self, model, inputs, return_outputs=False%s): ...
"""


def test_a_trainer_that_no_longer_fits_its_base_class(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "sentence_transformers", "3.0.1", FITTED % ("tokenizer", ""))
    write(tmp_path, "transformers", "5.23.0", TRAINER)
    result = run("check", "--no-config", "--path", str(tmp_path))
    assert result.code == 1
    assert "sentence-transformers passes tokenizer= to transformers.Trainer, which does not take it" in result.out
    assert "sentence_transformers.SentenceTransformerTrainer" in result.out
    assert "at sentence_transformers:4" in result.out
    assert "transformers==4.45.2" in result.out
    found = run("check", "--no-config", "--path", str(tmp_path), "--format", "json").json["findings"]
    (override,) = [entry for entry in found if entry["id"] == "class-override-outdated"]
    assert "compute_loss(_, _, num_items_in_batch=_)" in override["message"]
    assert override["superseded_by"] == "class-keyword-refused"


def test_a_trainer_that_fits_has_no_such_finding(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "sentence_transformers", "5.1.2", FITTED % ("processing_class", ", num_items_in_batch=None"))
    write(tmp_path, "transformers", "5.23.0", TRAINER)
    result = run("check", "--no-config", "--path", str(tmp_path), "--format", "json")
    assert [entry["id"] for entry in result.json["findings"] if entry["id"].startswith("class-")] == []


def test_hostile_source_ends(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "peft", "0.17.0", "x = " + "(" * 5000 + ")" * 5000 + "\nfrom transformers import a\0b\n")
    write(tmp_path, "transformers", "5.23.0", "import transformers.deep\n" + "a." * 20000 + "b\n")
    result = run("check", "--no-config", "--path", str(tmp_path), "--format", "json")
    assert result.code in (0, 1)
    assert "Traceback" not in result.err
    assert json.loads(result.out)
