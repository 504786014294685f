"""The repository's own Python files: signatures of their methods, names they import, attributes they read.

A bounded child parses them (``reading/python_code.py``); nothing of them is imported.
"""

from __future__ import annotations

import json
import os

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.models.names import printable
from envdoctor.observe.model.reading.model_file import read_bytes
from envdoctor.observe.request import Request
from envdoctor.sandbox.child import own_python, run_child
from envdoctor.sandbox.frames import framed
from envdoctor.text.files import Files, because_of

__all__ = ["KEYS", "observe"]

KEYS = ("model.code_methods", "model.code_names")

_MAX_FILES = 64
_MAX_FILE = 1 << 20
_MAX_TOTAL = 4 << 20
_SECONDS = 5.0
_MEMORY_MIB = 768
_OUTPUT = 32 << 20
_ENDINGS = {
    "timeout": f"parsing the Python files of the model took more than {_SECONDS:g} s",
    "memory": f"parsing the Python files of the model took more than {_MEMORY_MIB} MiB",
    "output-limit": "the Python files of the model name too much",
}
_PROBLEMS = {
    "syntax": "{} is not Python that this interpreter can parse (line {})",
    "deep": "{} is nested too deeply, or too large, to be parsed",
    "large": "{} is too large to be parsed safely by Python before 3.11",
    "text": "{} is not Python source text",
}


def observe(request: Request) -> list[Fact]:
    """``model.code_methods`` as ``Class.method(self, a, *args, b, **kwargs)`` and ``name(a)`` for functions;
    ``model.code_names`` as ``package.module.name`` and ``.attribute``. Sorted, without repetition, empty without
    Python files; unknown when any of the files could not be read, for a missing name would then prove nothing.
    """
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    files = _read_folder(source.folder)
    found = files if isinstance(files, Unknown) else _parsed(files)
    values: tuple[Value, Value] = (found, found) if isinstance(found, Unknown) else found
    return [Fact(key, value, "*.py", "model") for key, value in zip(KEYS, values, strict=True)]


def _read_folder(folder: str) -> dict[str, bytes] | Unknown:
    """The content of all Python files of the folder, or the first reason why one of them could not be read."""
    names = _python_files(folder)
    if isinstance(names, Unknown):
        return names
    files: dict[str, bytes] = {}
    total = 0
    for name in names:
        content = read_bytes(folder, name, _MAX_FILE)
        if isinstance(content, Unknown):
            return content
        files[name] = content
        total += len(content)
        if total > _MAX_TOTAL:
            return Unknown(f"the Python files of the model are larger than {_MAX_TOTAL >> 20} MiB together")
    return files


def _parsed(files: dict[str, bytes]) -> tuple[tuple[str, ...], tuple[str, ...]] | Unknown:
    if not files:
        return (), ()
    child = run_child(
        own_python("envdoctor.observe.model.reading.python_code"),
        framed(files.values()),
        seconds=_SECONDS,
        memory_mib=_MEMORY_MIB,
        output_limit=_OUTPUT,
    )
    if child.status != "ok":
        return Unknown(_ENDINGS.get(child.status, "the child that parses the model's Python files failed"))
    answer = json.loads(child.stdout)
    if "problem" in answer:
        name = printable(list(files)[answer["file"]])
        return Unknown(_PROBLEMS[answer["problem"]].format(name, answer["line"]))
    return tuple(answer["methods"]), tuple(answer["names"])


def _python_files(folder: str) -> list[str] | Unknown:
    files = Files()
    try:
        names = [name for name in files.names(folder) if name.endswith(".py")]
    except OSError as error:
        return Unknown(f"the model's folder cannot be listed: {because_of(error)}")
    found = [name for name in names if not files.is_folder(os.path.join(folder, name))]
    return found if len(found) <= _MAX_FILES else Unknown(f"the model has more than {_MAX_FILES} Python files")
