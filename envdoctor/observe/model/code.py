"""Code for the model: whether transformers, vLLM and SGLang have a class for it, by the lists in their installed files,
and the repository's own Python files. They are read as text and syntax trees; nothing of them is imported."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.values import Records, Unknown, Value
from envdoctor.observe.code.use import CodeFile, answers, completed, items
from envdoctor.observe.model.files import AUTO_MAP_FILES, LARGEST, JsonProblem, entries, parse_object, read_bytes
from envdoctor.observe.model.names import printable
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.asking import ChildProblem
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

_LARGEST = 1 << 20
_MOST_FILES = 500
#: By fact: what is looked up, and the files with the list. Of transformers the second one since 5.6; SGLang takes every
#: class that a file in the folder names as its EntryClass.
_LISTS = {
    "model.registered": (
        "model.type",
        "transformers/models/auto/configuration_auto.py",
        "transformers/models/auto/auto_mappings.py",
    ),
    "model.registered_vllm": ("model.architectures", "vllm/model_executor/models/registry.py"),
    "model.registered_sglang": ("model.architectures", "sglang/srt/models"),
}


@observes("model", "model.registered model.registered_vllm model.registered_sglang")
def registered(request: Request) -> Found:
    """Return whether a list names the model; unknown where there is no environment on disk, or no such list in it."""
    return [(key, _listed(request, *places), places[1]) for key, places in _LISTS.items()]


def _listed(request: Request, key: str, first: str, *more: str) -> Value:
    value = request.value(key)
    names = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
    if not names or request.layout is None:
        return Unknown(Message("what the model is, or the environment's files, are not known"))
    words = "|".join(re.escape(name) for name in names)
    # Quoted as in a mapping or a list, or the definition of a class.
    pattern = re.compile(rf"""["'](?:{words})["']\s*[,:]|^class (?:{words})\b|^EntryClass\b.*\b(?:{words})\b""", re.M)
    for folder in request.layout.site_packages:
        texts = list(_texts(request, folder, first))
        if texts:
            texts += [text for name in more for text in _texts(request, folder, name)]
            return any(pattern.search(text) for text in texts)
    return Unknown(Message("no {} in the environment", first))


def _texts(request: Request, folder: str, name: str) -> Iterator[str]:
    """Yield the text of a file, or of every file of a folder."""
    files, path = request.place.files, os.path.join(folder, name)
    inside: Sequence[str] = files.names_or_none(path) if files.is_folder(path) else ()
    paths = [os.path.join(path, inner) for inner in inside if inner.endswith(".py")][:_MOST_FILES] or [path]
    for inner in paths:
        try:
            yield files.whole(inner, _LARGEST).decode("utf-8", "replace")
        except OSError:
            continue


_MAX_FILES = 64
_MAX_FILE = 1 << 20
_MAX_TOTAL = 4 << 20
_SECONDS = 5.0

_Answers = Mapping[CodeFile, Mapping[str, Any]]


@observes("model", "model.code_methods model.code_names model_use")
def remote_code(request: Request) -> Found:
    """Return ``model.code_methods`` as ``Class.method(self, a, *args, b, **kwargs)`` and ``name(a)`` for functions;
    ``model.code_names`` as ``package.module.name`` and ``.attribute``; both of all Python files, sorted, without
    repetition; ``model_use`` of those that transformers loads. Empty without Python files; unknown when any of the
    files could not be read, for a missing name would then prove nothing."""
    source = request.source
    if source.folder is None:
        return source.unread(remote_code.keys)
    parsed = _read_folder(source.folder, source.repo or source.given)
    values = [parsed] * 3 if isinstance(parsed, Unknown) else _values(parsed, request)
    return [(key, value, "*.py") for key, value in zip(remote_code.keys, values, strict=True)]


def _values(parsed: _Answers, request: Request) -> tuple[Value, ...]:
    source = request.source
    methods = {method for answer in parsed.values() for method in answer["methods"]}
    names = {f".{attribute}" for answer in parsed.values() for attribute in answer["attributes"]}
    names |= {
        ".".join(filter(None, (module, name)))
        for answer in parsed.values()
        for kind, module, name, _, _, guarded, *_ in answer["uses"]
        if kind in ("module", "name") and not guarded
    }
    roots = dict(_auto_map(source.folder or "", source.repo or ""))
    waiting, loaded = list(roots.values()), {}
    files = {os.path.basename(file.path)[:-3]: (file, answer) for file, answer in parsed.items()}
    while waiting:
        module = waiting.pop()
        if module in files and module not in loaded:
            loaded[module] = files[module]
            waiting += files[module][1]["siblings"]
    uses = Records(completed(tuple(items(loaded.values(), roots)), request))
    return tuple(sorted(methods)), tuple(sorted(names)), uses


def _auto_map(folder: str, own: str) -> Iterator[tuple[str, str]]:
    """Yield the classes that transformers takes from files of the folder, whose repository is ``own``, with modules."""
    for name in AUTO_MAP_FILES:
        content = read_bytes(folder, name, LARGEST)
        try:
            pairs = list(entries(parse_object(content).data)) if isinstance(content, bytes) else []
        except JsonProblem:
            continue
        for _, text in pairs:
            repository, _, reference = text.rpartition("--")
            if repository.casefold() in ("", own.casefold()):
                module, _, kind = reference.rpartition(".")
                yield kind, module


def _read_folder(folder: str, model: str) -> _Answers | Unknown:
    """Return what is in all Python files of the folder, or the first reason why one of them could not be read."""
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
    parsed: dict[CodeFile, Mapping[str, Any]] = {}
    for file, answer in answers(contents, definitions=True, seconds=_SECONDS):
        if isinstance(answer, ChildProblem):
            return Unknown(Message("{}: {}", printable(os.path.basename(file.path)), answer.said()))
        parsed[file] = answer
    return parsed
