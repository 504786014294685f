"""Python files of snapshots, read and parsed in bounded children; which of them transformers loads, and what keeps it
from loading them."""

import builtins
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import decode_source
from types import MappingProxyType
from typing import NamedTuple

from envdoctor.revision.code.parts.tree import Definition, FileCode, from_json
from envdoctor.revision.comparer import parted
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.asking import ChildProblem, Limits, ask
from envdoctor.system.message import Message

#: The largest modeling file of transformers has 0.3 MiB.
_MAX_FILE = 1 << 20
_MAX_FILES = 200
_MAX_TOTAL = 16 << 20
_CHILD = "envdoctor.revision.code.parts.tree:read_code"
_LIMITS = Limits(seconds=10.0, mib=512, output=64 << 20, in_all=20.0)
#: Files that transformers loads by an auto_map are called so; others (web_demo.py, convert.py) are only there.
_LOADED = re.compile(
    r"(modeling|configuration|tokenization|processing|image_processing|video_processing|feature_extraction"
    r"|quantization|cache|modular|generation)\w*\.py\Z"
)
#: Other libraries load code by these, by rules of their own.
_OTHERS = ("modules.json", "model_index.json")
CONFLICT_MARKS = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
#: What produces text, whoever calls it; a training step does it only where it says so itself.
_GENERATES = re.compile(
    r"(?:\A|_)(?:chat|stream|generate|generation|sample|decode|respond|beam_search|greedy_search|build_chat_input"
    r"|logits_processor|reorder_cache|stream_generator)\Z|\A_?(?:chat|stream|generate)_"
    r"|\A(?:process_response|build_inputs|build_prompt|convert_tokens_to_string|__repr__|__str__)\Z"
)
_GENERATING_CLASS = re.compile(r"LogitsProcessor|LogitsWarper|StoppingCriteria|Streamer|Pipeline|Mixin\Z.*Generation")
#: A name; attributes, words in quotes and keywords are left out.
_NAME = re.compile(r"(?<![\w.'\"#])[A-Za-z_]\w*\b(?!=)")


class CodeSource(NamedTuple):
    """One file's text as bytes; its syntax tree comes later."""

    path: str
    content: bytes

    @property
    def lines(self) -> list[str]:
        """Return the text line by line, as Python counts lines; bytes that cannot be decoded are replaced."""
        try:
            text = decode_source(self.content)
        except (SyntaxError, LookupError, ValueError):
            text = self.content.decode("utf-8", "replace")
        return text.split("\n")


class NotPython(Unread):
    """A file that has a syntax error: whoever loads it fails as well."""


def read_sources(snapshot: Snapshot, paths: Iterable[str]) -> Iterator[CodeSource | Unread]:
    """Yield the files' contents within the limits of size and number, and the other files with the reason."""
    count = total = 0
    for path in paths:
        if count >= _MAX_FILES or total + snapshot.files[path].size > _MAX_TOTAL:
            reason = Message("only {} Python files and {} MiB of them are compared", _MAX_FILES, _MAX_TOTAL >> 20)
            yield Unread(path, reason)
        elif isinstance(content := snapshot.read(path, _MAX_FILE), Unread):
            yield content
        else:
            count, total = count + 1, total + len(content)
            yield CodeSource(path, content)


def parse(sources: Sequence[CodeSource], reaching: Mapping[str, str] = MappingProxyType({})) -> list[FileCode | Unread]:
    """Return the code of each file; ``reaching`` are kinds of the table ``reaching-calls`` by name. Nothing is run."""
    questions = [({"reaching": dict(reaching)}, file.content) for file in sources]
    return [
        (NotPython if answer.kind == "SyntaxError" else Unread)(source.path, answer.said())
        if isinstance(answer, ChildProblem)
        else from_json(FileCode, answer)
        for source, answer in zip(sources, ask(_CHILD, questions, _LIMITS), strict=True)
    ]


class LoadedEntry(NamedTuple):
    """What a configuration loads: ``module.Class``; ``away`` is the other repository that has it, if any."""

    config: str
    key: str
    text: str
    away: str | None

    @property
    def path(self) -> str:
        """Return the module's file."""
        return self.text.rpartition("--")[2].rpartition(".")[0].replace(".", "/") + ".py"

    @property
    def name(self) -> str:
        """Return the name of the class."""
        return self.text.rpartition(".")[2]


class CodeSide(NamedTuple):
    """One revision: what its configurations name, what each file holds, its lines, what keeps transformers from loading
    some, and the files that hold the marks of a conflict, which no interpreter can parse."""

    snapshot: Snapshot
    entries: list[LoadedEntry]
    codes: dict[str, FileCode]
    texts: dict[str, list[str]]
    faults: list[tuple[str, Message]]
    marked: set[str]


def kind_of_file(path: str) -> str | None:
    """Return the kind of a file that is named like the ones that transformers loads: ``modeling``."""
    match = _LOADED.match(posixpath.basename(path))
    return match[1] if match else None


def _imported_files(path: str, code: FileCode, files: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each relative import as written, the file of its module, and the name taken from that; empty: none."""
    for statement in (statement for statement in code.imports if statement.name.startswith(".")):
        names = statement.name.lstrip(".").split(".")
        folder = path
        for _ in range(len(statement.name) - len(statement.name.lstrip("."))):
            folder = posixpath.dirname(folder)
        stems = [posixpath.join(folder, *names[:length]) for length in range(len(names), 0, -1)]
        places = [(f"{stem}{end}", number) for number, stem in enumerate(stems) for end in (".py", "/__init__.py")]
        at, number = next(((at, number) for at, number in places if at in files), ("", 1))
        yield statement.name, at, ".".join(names[len(names) - number :])


def loaded_files(sides: Sequence[CodeSide], paths: Collection[str]) -> set[str] | None:
    """Return those of the ``paths`` that are loaded from an auto_map on, on either side, and those called like
    loaded ones of a kind that no entry names (somebody loads them by other means); None where that cannot be told.
    Files that are the same on both sides are read only as long as one of them was not reached."""
    entries = [entry for side in sides for entry in side.entries]
    if not entries or any(name in side.snapshot.files for side in sides for name in _OTHERS):
        return None
    kinds = {None, *(kind_of_file(entry.path) for entry in entries)}
    reached = {entry.path for entry in entries if not entry.away}
    reached |= {path for path in paths if kind_of_file(path) not in kinds}
    followed: set[str] = set()
    while not reached.issuperset(paths) and reached - followed:
        waiting = sorted(reached - followed)
        followed |= reached
        files = sides[1].snapshot.files
        unknown = [path for path in waiting if path in files and not any(path in side.codes for side in sides)]
        sources, _ = parted(read_sources(sides[1].snapshot, unknown))
        parsed = zip(sources, parse(sources), strict=True)
        shared = {source.path: code for source, code in parsed if isinstance(code, FileCode)}
        for path in waiting:
            codes = [(side.codes.get(path) or shared.get(path), side.snapshot.files) for side in sides]
            if not any(code for code, _ in codes) and any(path in files for _, files in codes):
                return None  # what it imports is not known
            imports = [_imported_files(path, code, files) for code, files in codes if code]
            reached |= {at for one in imports for _, at, _ in one if at}
    return reached & set(paths)


def faults(side: CodeSide, codes: Mapping[str, FileCode]) -> Iterator[tuple[str, Message]]:
    """Yield what keeps the files from being loaded, each by its file. Files without code were not read."""
    files = side.snapshot.files
    for entry in (entry for entry in side.entries if not entry.away):
        if entry.path not in files:
            yield entry.path, Message("{} names it, and it is not there", entry.config)
        elif entry.path in codes and not _has(codes[entry.path], entry.name):
            yield entry.path, Message("{} names {}, which it does not define", entry.config, entry.name)
    for path, code in codes.items():
        for root in (item.name.partition(".")[0] for item in code.imports if item.demanded):
            if posixpath.join(posixpath.dirname(path), f"{root}.py") in files:
                yield path, Message("it imports {} without a dot in front, which asks for a package of that name", root)
        for module, at, name in _imported_files(path, code, files):
            if not at:
                yield path, Message("it imports {}, and there is no such file", module)
            elif at in codes and name and not _has(codes[at], name):
                yield path, Message("it imports {}, which {} does not define", module, at)
        for item in (item for item in code.definitions if item.kind == "class" and "." not in item.name):
            for name in _NAME.findall(item.text):
                if name in item.mentions and not (_has(code, name) or hasattr(builtins, name)):
                    yield path, Message("{} derives from {}, which is not defined", item.name, name)


def _has(code: FileCode, name: str) -> bool:
    return name.partition(".")[0] in code.bound or "*" in code.bound or "__getattr__" in code.bound


def on_the_path(codes: Iterable[FileCode], entries: Collection[str]) -> set[str]:
    """Return the names of definitions that a training step may reach: the ``entries``, other classes, functions and
    methods that nothing speaks of (transformers may call them), and whatever these speak of by name, in any file. What
    generates text is left out unless one of them speaks of it."""
    definitions = [definition for code in codes for definition in code.definitions]
    speakers: dict[str, set[str]] = defaultdict(set)
    by_leaf: dict[str, list[Definition]] = defaultdict(list)
    members: dict[str, list[Definition]] = defaultdict(list)
    for part in definitions:
        by_leaf[part.leaf].append(part)
        members[part.owner].append(part)
        for name in part.mentions:
            speakers[name].update([part.name] if name != part.leaf else [])  # by its own name it calls its base's

    def is_called_from_outside(part: Definition) -> bool:
        if part.kind == "value" and not part.owner:
            return False
        inside = f"{part.name}."
        is_spoken_of = any(not name.startswith(inside) for name in speakers[part.leaf])
        is_called = part.kind == "class" or not is_spoken_of or part.leaf == "forward" or part.leaf.startswith("__")
        return is_called and not _GENERATES.search(part.leaf) and not _GENERATING_CLASS.search(part.name + part.text)

    waiting = [part for part in members[""] if part.name in entries or is_called_from_outside(part)]
    reached: set[str] = set()
    while waiting:
        part = waiting.pop()
        if part.name not in reached:
            reached.add(part.name)
            waiting += [other for name in part.mentions for other in by_leaf.pop(name, ())]
            waiting += filter(is_called_from_outside, members[part.name] if part.kind == "class" else ())
    return reached
