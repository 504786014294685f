"""Compares installed files with the lists that were written when they were installed. Runs in a bounded child.

It is asked with ``root``, ``python`` (the environment's Python as numbers, or null), ``machine``
(x86_64, aarch64, or null), ``lists`` (the metadata directories of all packages) and ``packages``, each with ``name``,
``metadata`` (its directory), ``stack`` and ``elsewhere`` (kinds of damage to its libraries that others tell). It
answers with ``damage`` (what could not be looked at is the last), and ``files`` and ``folders``, what was looked at.
"""

import ast
import errno
import os
import re
import sys
import tokenize
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple

from envdoctor.observe.binaries.elf_file import ElfError, ElfFile
from envdoctor.observe.packages.version_files import RECORD_LIMIT, is_library
from envdoctor.system.files import Files, Looks, because_of
from envdoctor.system.message import Message

_LARGEST, _LARGEST_LIBRARY = 4 << 20, 1 << 34
#: Libraries up to this size are compared by their digests (80 MB in an environment with torch: 0.1 s).
_LARGEST_COMPARED = 16 << 20
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LINE = re.compile(rb"(?m)^([^\",\n][^,\n]{0,400}),(?:sha256=([\w-]{43}))?,(\d{0,15})\r?(?:\n|\Z)")
_FOR_TESTS = re.compile(rb"(?:\A|/)tests?/")
_LIBRARY_FOR_TESTS = re.compile(rb"(?:\A|[/_])tests?(?:[/_.]|\Z)|torchbind_test")
#: ``_C.cpython-311-x86_64-linux-gnu.so``, ``tokenizers.abi3.so``: what ``import`` loads by its name. Other libraries
#: may be for one of several kinds of hardware.
_MODULE = re.compile(r"\.(?:cpython-[\w-]+|abi3|cp\d+-[\w-]+|pypy\d+-[\w-]+)\.(?:so|pyd)\Z")
#: Files that compilers, editors and people read; those without an ending are licences and data of time zones, unless
#: they lie in a folder of programs.
_NOT_RUN = re.compile(
    rb"\.(?:pyc|pyi|pyx|pxd|pxi|h|hpp|cuh|c|cc|cpp|cu|cmake|a|lib|md|rst|typed|pc)\Z|(?<!/bin)(?:\A|/)[^./]+\Z"
)
_PROGRAM = re.compile(r"/bin/[^./]+\Z")
#: Of the metadata, what every program with plugins reads.
_METADATA, _READ_BY_ALL = b".dist-info/", b".dist-info/entry_points.txt"
_HEAD = 4096


class Listed(NamedTuple):
    """A line of the list: a file below the folder of packages, its sha256 (base64) and size, empty where not told."""

    name: str
    digest: bytes
    size: bytes


class Package:
    """The files of one distribution, compared with its list. What is not as it was is gone, damaged, changed (a
    library), patched (one that kept its size) or edited (Python)."""

    def __init__(
        self,
        package: Mapping[str, Any],
        question: Mapping[str, Any],
        files: Files,
        digests: Callable[[], Mapping[bytes, set[bytes]]],
    ) -> None:
        self.unread: list[tuple[str, str]] = []
        self._folder = os.path.dirname(package["metadata"])
        self._files, self._digests = files, digests
        self._python: tuple[int, ...] = tuple(question["python"] or ())[:2]
        self._machine: str | None = question["machine"]
        self._of_stack, self._told_elsewhere = bool(package["stack"]), tuple(package["elsewhere"])
        self._sources: list[Listed] = []
        self._libraries: list[Listed] = []
        self._others: list[Listed] = []
        self._needed: set[str] = set()
        self._read_list(package["metadata"])

    def _read_list(self, metadata: str) -> None:
        try:
            text = self._files.head(os.path.join(metadata, "RECORD"), RECORD_LIMIT)
        except OSError:
            return  # what nobody listed is compared with nothing
        for match in _LINE.finditer(text):
            name = match[1]
            if name.startswith((b"/", b"..")) or b"/../" in name or b"\0" in name:
                continue
            if is_library(name):
                kind = None if _LIBRARY_FOR_TESTS.search(name) else self._libraries
            elif _FOR_TESTS.search(name):
                kind = None
            elif name.endswith(b".py"):
                kind = self._sources
            else:
                run = name.endswith(_READ_BY_ALL) if _METADATA in name else not _NOT_RUN.search(name)
                kind = self._others if run else None
            if kind is not None:
                kind.append(Listed(name.decode("utf-8", "replace"), match[2] or b"", match[3]))
        programs = [entry for entry in self._others if _PROGRAM.search(entry.name)]
        words = self._words(*{f"{entry.name.partition('/')[0]}/__init__.py" for entry in programs}) if programs else ()
        # The others are tests and tools, which people remove.
        idle = {entry.name for entry in programs if os.path.basename(entry.name).encode() not in words}
        self._others = [entry for entry in self._others if entry.name not in idle]

    def damage(self) -> Iterator[tuple[str, list[str], bool]]:
        """Kinds with their files, and whether an import fails for them."""
        compared = ((self._sources, self._source), (self._libraries, self._library), (self._others, self._other))
        files = [pair for listed, look in compared for each in listed if (pair := self._looked_at(each, look))]
        files = [(file, kind) for file, kind in files if kind == "gone" or not self._is_of_another(file)]
        libraries = [(file, kind) for file, kind in files if is_library(file.encode())]
        if len(self._libraries) > 1 and [kind for _, kind in libraries] == ["changed"] * len(self._libraries):
            files = [pair for pair in files if pair not in libraries]  # all were stripped, or linked anew
            if "changed" not in self._told_elsewhere:
                yield "files-changed", [file for file, _ in libraries], False
        files = [pair for pair in files if pair[1] not in self._told_elsewhere or pair not in libraries]
        words = self._words() if files else ()
        by_kind: dict[str, tuple[list[str], list[str]]] = {}
        for file, kind in files:
            if kind == "patched" and self._fails(file, words):  # an import loads it, and nobody knows what changed
                self.unread.append((file, Message("its content is not what was installed, and its size is")))
                continue
            fails = kind not in ("edited", "patched") and self._fails(file, words)
            word = "changed" if kind == "patched" else kind
            by_kind.setdefault(f"files-{word}", ([], []))[not fails].append(file)
        yield from ((kind, failing + others, bool(failing)) for kind, (failing, others) in by_kind.items())

    def _is_of_another(self, file: str) -> bool:
        """Return whether another package installed the file as it is now: the one that was installed last has it."""
        try:
            digests = self._digests().get(file.encode(), ())
            return bool(digests) and self._sum(os.path.join(self._folder, file)) in digests
        except OSError:
            return False

    def _sum(self, path: str) -> bytes:
        """Return the sha256 of a file of any size."""
        summed = sha256()
        for piece in self._files.lines(path, _LARGEST_LIBRARY):
            summed.update(piece)
        return _as_listed(summed.digest())

    def _fails(self, file: str, words: Iterable[bytes]) -> bool:
        """Return whether the file is imported, loaded or named by the package's own code."""
        folder, base = os.path.split(file)
        if file.endswith(".py"):
            stem = os.path.basename(folder) if base == "__init__.py" else base[:-3]
            return self._of_stack or ("/" not in folder and base == "__init__.py") or stem.encode() in words
        if is_library(file.encode()):
            linked = folder.endswith(".libs") or (self._of_stack and folder.endswith("/lib"))
            vital = _MODULE.search(base) or linked or base in self._needed
            return bool(vital) or base.partition(".")[0].encode() in words
        return base.encode() in words or base.partition(".")[0].encode() in words

    def _words(self, *files: str) -> set[bytes]:
        """Return all words of the package's Python files, or of these, and texts that may name a file."""
        words: set[bytes] = set()
        for source in self._sources:
            if files and source.name not in files:
                continue
            try:
                text = self._files.whole(os.path.join(self._folder, source.name), _LARGEST)
            except OSError:
                continue
            words.update(re.findall(rb"\w+", text))
            words.update(re.findall(rb"[\w.-]+", text))
        return words

    def _looked_at(self, listed: Listed, look: Any) -> tuple[str, str] | None:
        path = os.path.join(self._folder, listed.name)
        try:
            kind = look(path, listed)
        except OSError as error:
            if error.errno in _GONE:
                bare = listed.name.endswith(".py") and self._files.is_file(f"{path}c")  # bytecode alone will do
                return None if bare else (listed.name, "gone")
            if error.errno == errno.EFBIG:
                return None
            if error.errno == errno.EINVAL:
                return listed.name, "damaged"
            self.unread.append((listed.name, because_of(error)))
            return None
        return (listed.name, kind) if kind else None

    def _source(self, path: str, listed: Listed) -> str | None:
        content = self._files.whole(path, _LARGEST)
        if not listed.digest or _as_listed(sha256(content).digest()) == listed.digest:
            return None
        if b"\0" in content or (not content.strip() and listed.size != b"0"):
            return "damaged"  # zeroed, emptied
        try:
            with warnings.catch_warnings(), suppress(RecursionError, MemoryError):
                warnings.simplefilter("ignore")
                ast.parse(content)
        except (SyntaxError, ValueError, LookupError):
            if self._python > sys.version_info[:2] and not _is_cut(content):  # a newer Python may parse it
                return "edited"
            return "damaged"
        return "edited"

    def _library(self, path: str, listed: Listed) -> str | None:
        size = self._files.status(path).st_size
        other = bool(listed.size) and size != int(listed.size)
        compared = bool(listed.digest) and size <= _LARGEST_COMPARED
        patched = compared and not other and self._sum(path) != listed.digest
        unsure = other or patched or not compared
        refused = False
        if not path.endswith((".pyd", ".dll")):
            try:
                with ElfFile(path, self._files) as file:
                    self._needed.update(file.needed)
                    refused = unsure and (self._machine not in (None, file.machine) or file.is_zeroed())
            except ElfError as error:
                refused = unsure and (error.damaged or self._machine is not None)
        if refused and (other or patched or self._sum(path) != listed.digest):
            return "damaged"
        return "changed" if other else "patched" if patched else None

    def _other(self, path: str, listed: Listed) -> str | None:
        head = self._files.head(path, _HEAD)
        if not listed.size:
            return None
        size = len(head) if len(head) < _HEAD else self._files.status(path).st_size
        if size < int(listed.size) or (head and not head.strip(b"\0")):
            return "damaged"
        return None


def _is_cut(content: bytes) -> bool:
    """Return whether the source ends within a bracket or a text, which no Python parses."""
    try:
        for _ in tokenize.tokenize(BytesIO(content).readline):
            pass
    except tokenize.TokenError as error:
        return "EOF" in str(error) or "unterminated triple" in str(error)
    except SyntaxError:
        pass
    return False


def _as_listed(digest: bytes) -> bytes:
    """Return a sha256 as RECORD writes it."""
    return urlsafe_b64encode(digest)[:43]


def answer(**question: Any) -> dict[str, Any]:
    """Return what the parent is told."""
    files = Files(question["root"])
    looks = files.looks = Looks()
    damage, unread = [], []

    @cache
    def digests() -> Mapping[bytes, set[bytes]]:
        """Return what any package says of each file."""
        owners: dict[bytes, set[bytes]] = {}
        for metadata in question["lists"]:
            with suppress(OSError):
                text = files.head(os.path.join(metadata, "RECORD"), RECORD_LIMIT)
                for match in _LINE.finditer(text):
                    owners.setdefault(match[1], set()).add(match[2])
        return owners

    for item in question["packages"]:
        package = Package(item, question, files, digests)
        damage += [[item["name"], kind, names, fails] for kind, names, fails in package.damage()]
        if package.unread:
            name, reason = package.unread[0]
            more = Message(" and {} more", len(package.unread) - 1) if len(package.unread) > 1 else ""
            unread.append([item["name"], "unread", [f"{name}{more} ({reason})"], False])
    return {"damage": damage + unread, "files": looks.files, "folders": looks.folders}
