"""A project folder with training code that was judged without it: one line says how to judge the code too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from envdoctor.models.names import printable
from envdoctor.text.files import Budget, Files, Spent

__all__ = ["training_code"]

_FOLDERS = ("", "scripts", "src", "notebooks")
_ENDINGS = (".py", ".ipynb")
_MOST_FILES = 20
_LIMIT = 1 << 16
_TRAINS = re.compile(
    r"""(?m)^[\s"]*(?:from|import)\s+(?:transformers|trl|peft|accelerate|diffusers|deepspeed|unsloth"""
    r"""|sentence_transformers|lightning|pytorch_lightning)\b"""
)


def training_code(cwd: str) -> list[str]:
    """Scripts and notebooks of the folder that import a training library, as one would type them. Only the heads of a
    few files are looked at; none that cannot be read."""
    files = Files(budget=Budget(seconds=0.5, size=_MOST_FILES * _LIMIT, steps=20_000))
    try:
        return [name for name in _candidates(cwd, files) if _trains(os.path.join(cwd, name), files)]
    except Spent:
        return []


def _candidates(cwd: str, files: Files) -> Iterator[str]:
    count = 0
    for folder in _FOLDERS:
        for name in files.names_or_none(os.path.join(cwd, folder)):
            if name.endswith(_ENDINGS) and count < _MOST_FILES:
                count += 1
                yield os.path.join(folder, name)


def _trains(path: str, files: Files) -> bool:
    try:
        return printable(path, 4096) == path and _TRAINS.search(files.text(path, _LIMIT)) is not None
    except OSError:
        return False
