"""The repository's own Python files: signatures of their methods, names they import, attributes they read, and what the
files that transformers loads use of other distributions.

They are read as the user's own code is (``observe/code/reading``); nothing of them is imported.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.observe.code.reading.code_files import CodeFile
from envdoctor.observe.code.reading.reading_uses import answers, completed, items
from envdoctor.observe.model.reading.auto_map import AUTO_MAP_FILES, entries
from envdoctor.observe.model.reading.model_file import read_bytes
from envdoctor.observe.model.reading.names import printable
from envdoctor.observe.request import Request
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

KEYS = ("model.code_methods", "model.code_names", "model_use")

_MAX_FILES = 64
_MAX_FILE = 1 << 20
_MAX_TOTAL = 4 << 20
_SECONDS = 5.0

_Answers = Mapping[CodeFile, Mapping[str, Any]]


def observe(request: Request) -> list[Fact]:
    """``model.code_methods`` as ``Class.method(self, a, *args, b, **kwargs)`` and ``name(a)`` for functions;
    ``model.code_names`` as ``package.module.name`` and ``.attribute``; both of all Python files, sorted, without
    repetition; ``model_use`` of those that transformers loads. Empty without Python files; unknown when any of the
    files could not be read, for a missing name would then prove nothing.
    """
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    read = _read_folder(source.folder, source.repo or source.given)
    if isinstance(read, Unknown):
        return [Fact(key, read, "*.py", "model") for key in KEYS]
    values = _told(read, request)
    return [Fact(key, value, "*.py", "model") for key, value in zip(KEYS, values, strict=True)]


def _told(read: _Answers, request: Request) -> tuple[Value, ...]:
    source = request.source
    methods = {method for answer in read.values() for method in answer["methods"]}
    names = {f".{attribute}" for answer in read.values() for attribute in answer["attributes"]}
    names |= {
        ".".join(filter(None, (module, name)))
        for answer in read.values()
        for kind, module, name, _, _, guarded, *_ in answer["uses"]
        if kind in ("module", "name") and not guarded
    }
    roots = dict(_auto_map(source.folder or "", source.repo or ""))
    waiting, loaded = list(roots.values()), {}
    files = {os.path.basename(file.path)[:-3]: (file, answer) for file, answer in read.items()}
    while waiting:
        module = waiting.pop()
        if module in files and module not in loaded:
            loaded[module] = files[module]
            waiting += files[module][1]["siblings"]
    uses = Records(completed(tuple(items(loaded.values(), roots)), request))
    return tuple(sorted(methods)), tuple(sorted(names)), uses


def _auto_map(folder: str, own: str) -> Iterator[tuple[str, str]]:
    """The classes that transformers takes from files of the folder, each with its module; ``own`` is its repository."""
    from envdoctor.observe.model.reading.json_object import LARGEST, JsonProblem, parse_object

    for name in AUTO_MAP_FILES:
        content = read_bytes(folder, name, LARGEST)
        try:
            found = list(entries(parse_object(content).data)) if isinstance(content, bytes) else []
        except JsonProblem:
            continue
        for _, text in found:
            repository, _, reference = text.rpartition("--")
            if repository.casefold() in ("", own.casefold()):
                module, _, made = reference.rpartition(".")
                yield made, module


def _read_folder(folder: str, model: str) -> _Answers | Unknown:
    """What is in all Python files of the folder, or the first reason why one of them could not be read."""
    files = Files()
    try:
        names = [name for name in files.names(folder) if name.endswith(".py")]
    except OSError as error:
        return Unknown(Message("the model's folder cannot be listed: {}", because_of(error)))
    names = [name for name in names if not files.is_folder(os.path.join(folder, name))]
    if len(names) > _MAX_FILES:
        return Unknown(Message("the model has more than {} Python files", _MAX_FILES))
    contents: list[tuple[CodeFile, bytes]] = []
    for name in names:
        shown = os.path.normpath(os.path.join(model, name))
        content = read_bytes(folder, name, _MAX_FILE)
        if isinstance(content, Unknown):
            return content
        contents.append((CodeFile(printable(shown), os.path.join(folder, name), frozenset(), named=False), content))
        if sum(len(content) for _, content in contents) > _MAX_TOTAL:
            return Unknown(Message("the Python files of the model are larger than {} MiB together", _MAX_TOTAL >> 20))
    read: dict[CodeFile, Mapping[str, Any]] = {}
    for file, answer in answers(contents, definitions=True, seconds=_SECONDS):
        if isinstance(answer, str):
            return Unknown(Message("{}: {}", printable(os.path.basename(file.path)), answer))
        read[file] = answer
    return read
