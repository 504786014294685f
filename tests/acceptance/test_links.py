"""A broken import found before it happens: in a folder by its files, in a facts file by the ledger."""

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from venv import create

import pytest
from dists import install


@pytest.fixture
def check(run: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """``check`` of a folder in which packages of these releases have one file each."""

    def check(*words: str, **sources: tuple[str, str]) -> Any:
        for name, (version, source) in sources.items():
            install(tmp_path / "site", name, version, files={f"{name}/__init__.py": source})
        return run("check", "--no-config", "--path", "site", *words)

    return check


CACHE = ("5.23.0", "class Cache: ...\n")
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


def test_a_folder_whose_peft_takes_what_transformers_has_not(check: Any) -> None:
    result = check(peft=("0.17.0", "from transformers import Hybrid\n"), transformers=("4.57.6", CACHE[1]))
    said = "peft takes transformers.Hybrid (in peft:1); transformers 4.57.6 has no such name"
    assert result.code == 1 and said in result.out and "import peft" in result.out


def test_a_damaged_file_is_told_and_not_the_imports_that_it_stops(check: Any, tmp_path: Path, run: Any) -> None:
    parts = {"transformers/__init__.py": "from .cache_utils import Cache\n", "transformers/cache_utils.py": CACHE[1]}
    info = install(tmp_path / "site", "transformers", "5.23.0", files=parts)
    (info / "INSTALLER").write_text("pip\n")
    listed = ((name, text, urlsafe_b64encode(sha256(text.encode()).digest())) for name, text in parts.items())
    lines = (f"{name},sha256={said.decode().rstrip('=')},{len(text)}\n" for name, text, said in listed)
    (info / "RECORD").write_text("".join(lines))
    whole = check("--format", "json", peft=("0.21.2", "from transformers import Cache\n")).found
    (tmp_path / "site/transformers/cache_utils.py").write_text("class StaticCache: ...\n")  # of another release
    result = run("check", "--no-config", "--path", "site", "--format", "json")
    assert "transformers/cache_utils.py (transformers: transformers.cache_utils.Cache)" in result.out
    shown = {name for name, one in result.found.items() if "superseded_by" not in one}
    assert shown - whole.keys() == {"package-library-damaged"}
    assert result.found["import-takes-what-is-not-there"]["superseded_by"] == "package-library-damaged"


def test_a_trainer_that_no_longer_fits_its_base_class(check: Any) -> None:
    fitted = ("3.0.1", FITTED % ("tokenizer", ""))
    result = check(sentence_transformers=fitted, transformers=("5.23.0", TRAINER))
    assert result.code == 1
    assert "sentence-transformers passes tokenizer= to transformers.Trainer, which does not take it" in result.out
    place = "at sentence_transformers:4"
    assert "sentence_transformers.SentenceTransformerTrainer" in result.out and place in result.out
    assert "transformers==4.45.2" in result.out
    override = check("--format", "json").found["class-override-outdated"]
    assert "compute_loss(_, _, num_items_in_batch=_)" in override["message"]
    assert override["superseded_by"] == "class-keyword-refused"


@pytest.mark.parametrize(
    "sources",
    [
        {"peft": ("0.17.0", "from transformers import Cache\n"), "transformers": CACHE},
        {
            "sentence_transformers": ("5.1.2", FITTED % ("processing_class", ", num_items_in_batch=None")),
            "transformers": ("5.23.0", TRAINER),
        },
    ],
)
def test_what_works_has_no_such_finding(check: Any, sources: dict[str, tuple[str, str]]) -> None:
    result = check("--format", "json", **sources)
    assert [rule for rule in result.found if rule.startswith(("import-", "class-"))] == []


def test_hostile_source_ends(check: Any) -> None:
    hostile = "x = " + "(" * 5000 + ")" * 5000 + "\nfrom transformers import a\0b\n"
    deep = "import transformers.deep\n" + "a." * 20000 + "b\n"
    result = check("--format", "json", peft=("0.17.0", hostile), transformers=("5.23.0", deep))
    assert result.code in (0, 1, 3) and result.json and "Traceback" not in result.err


def test_what_hides_a_module_is_told_and_not_that_the_hidden_one_lacks_what_is_taken(tmp_path: Path, run: Any) -> None:
    create(tmp_path / "venv", symlinks=os.name != "nt")
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    install(site, "peft", "0.21.2", files={"peft/__init__.py": "from tokenizers import Encoding\n"})
    install(site, "tokenizers", "0.22.1", files={"tokenizers/__init__.py": "class Encoding: ...\n"})
    (tmp_path / "old/tokenizers").mkdir(parents=True)
    (tmp_path / "old/tokenizers/__init__.py").write_text("__version__ = '0.1'\n")
    judged = ("check", "--no-config", "--no-gpu", "--python", tmp_path / "venv/bin/python", "--format", "json")
    whole, hidden = run(*judged).found, run(*judged, env={"PYTHONPATH": str(tmp_path / "old")}).found
    shown = [one["id"] for one in hidden.values() if "superseded_by" not in one and one["id"] not in whole]
    assert shown == ["module-in-front-stops-imports"]
    assert hidden["import-takes-what-is-not-there"]["superseded_by"] == "module-in-front-stops-imports"
