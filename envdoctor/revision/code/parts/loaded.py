"""Which Python files of a revision transformers loads, and what keeps it from loading them."""

import builtins
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot
from envdoctor.revision.code.parts.reading import Source
from envdoctor.revision.code.parts.records import FileCode
from envdoctor.text.message import Message

#: Files that transformers loads by an auto_map are called so; others (web_demo.py, convert.py) are only there.
_LOADED = re.compile(
    r"(?:modeling|configuration|tokenization|processing|image_processing|video_processing|feature_extraction"
    r"|quantization|cache|modular|generation)\w*\.py\Z"
)
#: Other libraries load code by these, by rules of their own.
_OTHERS = ("modules.json", "model_index.json")
_MARKS = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
_LONGEST_CIRCLE = 4
#: A name that is no attribute, no word in quotes and no keyword.
_NAME = re.compile(r"(?<![\w.'\"#])[A-Za-z_]\w*\b(?!=)")

Codes = Mapping[str, FileCode]
#: The entries of a side's auto_map: where each stands, its key, the module's file and the class; None: not readable.
Entries = Sequence["Entry"] | None


class Entry(NamedTuple):
    """What a configuration asks transformers to load; without a path where that is in another repository."""

    config: str
    key: str
    path: str
    name: str


def is_loaded_by_name(path: str) -> bool:
    """Whether the file is called like those that transformers loads."""
    return _LOADED.match(posixpath.basename(path)) is not None


def entry_of(config: str, key: str, text: str, away: str | None) -> Entry:
    """The entry of ``module.Class``; ``away`` is the other repository that has it."""
    module, _, name = text.rpartition("--")[2].rpartition(".")
    return Entry(config, key, "" if away else module.replace(".", "/") + ".py", name)


def imported_files(path: str, code: FileCode, files: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each relative import as it is written, the file of its module (empty: there is none), and the name taken
    from that (empty for the module itself)."""
    for one in code.imports:
        dots = len(one.name) - len(one.name.lstrip("."))
        if not dots:
            continue
        folder = posixpath.dirname(path)
        for _ in range(dots - 1):
            folder = posixpath.dirname(folder)
        names = one.name.lstrip(".").split(".")
        for length in range(len(names), 0, -1):
            stem = posixpath.join(folder, *names[:length])
            at = next((name for name in (f"{stem}.py", f"{stem}/__init__.py") if name in files), "")
            if at:
                yield one.name, at, ".".join(names[length:])
                break
        else:
            yield one.name, "", names[-1]


def loaded_files(
    sides: Sequence[tuple[Snapshot, Entries, Codes]], wanted: Collection[str], more: Callable[[Sequence[str]], Codes]
) -> set[str] | None:
    """Return those of the ``wanted`` files that are loaded from an auto_map on, on either side; None where that cannot
    be told. ``more`` reads files that are the same on both sides: only as long as a wanted one was not reached."""
    if any(entries is None for _, entries, _ in sides):
        return None
    if not any(entries for _, entries, _ in sides) or any(name in side[0].files for side in sides for name in _OTHERS):
        return None
    reached = {entry.path for _, entries, _ in sides for entry in entries or () if entry.path}
    known: dict[str, FileCode] = {}
    done: set[str] = set()
    while not reached.issuperset(wanted) and reached - done:
        waiting = sorted(reached - done)
        unknown = [path for path in waiting if not any(path in codes for _, _, codes in sides) and path not in known]
        known |= more(unknown)
        for path in waiting:
            done.add(path)
            for snapshot, _, codes in sides:
                code = codes.get(path) or known.get(path)
                if code is not None:
                    reached |= {at for _, at, _ in imported_files(path, code, snapshot.files) if at}
            is_read = path in known or any(path in codes for _, _, codes in sides)
            if not is_read and any(path in snapshot.files for snapshot, _, _ in sides):
                return None  # what it imports is not known
    return reached & set(wanted)


def faults(snapshot: Snapshot, entries: Entries, codes: Codes) -> Iterator[tuple[str, Message]]:
    """Yield what keeps the files from being loaded, each by its file. Files without code were not read."""
    for entry in (entry for entry in entries or () if entry.path):
        code = codes.get(entry.path)
        if entry.path not in snapshot.files:
            yield entry.path, Message("{} names it, and it is not there", entry.config)
        elif code is not None and not _has(code, entry.name):
            yield entry.path, Message("{} names {}, which it does not define", entry.config, entry.name)
    for path, code in codes.items():
        for root in (one.name.partition(".")[0] for one in code.imports if one.demanded):
            if posixpath.join(posixpath.dirname(path), f"{root}.py") in snapshot.files:
                yield path, Message("it imports {} without a dot in front, which asks for a package of that name", root)
        for written, at, name in imported_files(path, code, snapshot.files):
            module = codes.get(at)
            if not at:
                yield path, Message("it imports {}, and there is no such file", written)
            elif module is not None and name and not _has(module, name):
                yield path, Message("it imports {}, which {} does not define", written, at)
        for one in (one for one in code.definitions if one.kind == "class" and "." not in one.name):
            for name in _NAME.findall(one.text):
                if name in one.mentions and not (_has(code, name) or hasattr(builtins, name)):
                    yield path, Message("{} derives from {}, which is not defined", one.name, name)
    for path in codes:
        circle = _circle(path, snapshot, codes)
        if circle and path == min(circle):
            yield path, Message("these files import names from each other in a circle: {}", ", ".join(circle))


def _has(code: FileCode, name: str) -> bool:
    return name.partition(".")[0] in code.bound or "*" in code.bound or "__getattr__" in code.bound


def _circle(start: str, snapshot: Snapshot, codes: Codes) -> list[str]:
    """The shortest circle of imports of names, each of which is run whenever its file is loaded, through a file."""
    edges = {path: {at for _, at, name in _needed(path, code, snapshot) if name} for path, code in codes.items()}
    paths = [[start]]
    for _ in range(_LONGEST_CIRCLE):
        paths = [[*path, at] for path in paths for at in sorted(edges.get(path[-1], ())) if at not in path[1:]]
        closed = next((path for path in paths if path[-1] == start), None)
        if closed:
            return closed[:-1]
    return []


def _needed(path: str, code: FileCode, snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    required = {one.name for one in code.imports if one.required}
    return (found for found in imported_files(path, code, snapshot.files) if found[0] in required)


def has_conflict_marks(source: Source) -> bool:
    """Whether git left the marks of a conflict in the file."""
    return _MARKS.search(source.content) is not None
