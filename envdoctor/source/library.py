"""The modules below some folders: where Python would find each, its syntax tree, what it offers."""

from __future__ import annotations

import ast
import errno
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from envdoctor.source.definitions import is_generator
from envdoctor.source.notebook import overruns
from envdoctor.source.offers import Offers, read_offers, statements
from envdoctor.source.signatures import calls, parameters
from envdoctor.source.trimming import definition, trimmed
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

_LARGEST = 4 << 20
_COMPILED = (".so", ".pyd", ".pyc")

_Read = TypeVar("_Read")


class Unreadable(Exception):
    """A module whose source cannot be parsed; the message is a clause for a report. ``fails``: no Python can run it
    (``always``), or none that is not newer than this one (``here``)."""

    def __init__(self, reason: str, fails: str = "") -> None:
        super().__init__(reason)
        self.fails = fails


class Found(NamedTuple):
    """Where a module lies.

    ``kind`` is ``source``, ``compiled`` (an extension module or bytecode alone) or ``namespace`` (folders without
    ``__init__``). ``paths`` are the folders of its submodules, none for a module that is no package.
    """

    kind: str
    path: str
    paths: tuple[str, ...]


class Library:
    """The modules below ``folders``, in import order. Each file is parsed once.

    ``exported`` is for who follows imports: what the modules in a folder export, found once. ``closed`` are the folders
    that cannot be listed, with the reason; of what is in them nothing is known.
    """

    def __init__(self, folders: Sequence[str], files: Files | None = None) -> None:
        self._folders = tuple(folders)
        self._files = files or Files()
        self._unnoted = Files(self._files.root)  # Python writes bytecode anew whenever it likes
        self._found: dict[str, Found | None] = {}
        self._listed: dict[str, frozenset[str]] = {}
        self._compiled: dict[str, frozenset[str]] = {}
        self._offers: dict[str, Offers | None] = {}
        self._trees: dict[str, ast.Module] = {}
        self._given: set[str] = set()
        self._sources: dict[str, bytes] = {}
        self._parameters: dict[str, Mapping[str, tuple[str, ...] | None]] = {}
        self._calls: dict[str, Mapping[str, tuple[str, ...]] | None] = {}
        self.exported: dict[str, dict[str, str]] = {}
        self.closed: dict[str, str] = {}

    def find(self, name: str) -> Found | None:
        """The module of that dotted name; None when there is none below the folders."""
        if name not in self._found:
            parent, _, last = name.rpartition(".")
            folders: Sequence[str] = self._folders
            if parent:
                above = self.find(parent)
                folders = above.paths if above is not None else ()
            self._found[name] = self._look(folders, last)
        return self._found[name]

    def offers(self, name: str) -> Offers | None:
        """What a module offers; None for one that is no source. Raises :class:`Unreadable`."""
        if name not in self._offers:
            found = self.find(name)
            if found is None or found.kind != "source":
                self._offers[name] = None
            else:
                source = self.text(found.path)
                tree = self._trees.pop(name, None) or _without_bodies(source)
                self._offers[name] = read_offers(tree, name, bool(found.paths), source)
                if name not in self._given:
                    self._trees[name] = tree
        return self._offers[name]

    def tree(self, name: str) -> ast.Module:
        """The syntax tree of a source module, once: whoever asks keeps it. Raises :class:`Unreadable`."""
        found = self.find(name)
        assert found is not None and found.kind == "source"
        tree = self._trees.pop(name, None) or _without_bodies(self.text(found.path))
        self._given.add(name)
        if found.paths and name not in self._offers:
            self._trees[name] = tree  # of packages it is asked what they offer
        return tree

    def check_bytecode(self, name: str, python: Sequence[int]) -> None:
        """Raises :class:`Unreadable` where this CPython would load bytecode in place of a source module, and it is cut
        off or zeroed: the name of the code, ``<module>``, stands near its end. The bytecode itself is not loaded."""
        found = self.find(name)
        folder, base = os.path.split(found.path if found is not None else "")
        path = os.path.join(folder, "__pycache__", f"{base[:-3]}.cpython-{python[0]}{python[1]}.pyc")
        try:
            code = self._unnoted.whole(path, _LARGEST)
            source = self._unnoted.status(os.path.join(folder, base))
        except OSError:
            return
        if len(code) < 16 or code[2:4] != b"\r\n":
            return  # it is compiled again
        flags, *of_source = (int.from_bytes(code[place : place + 4], "little") for place in (4, 8, 12))
        current = [int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF]
        if (flags == 1 or (flags == 0 and of_source == current)) and not (
            code[16:17] in (b"c", b"\xe3") and b"<module>" in code
        ):
            raise Unreadable(
                Message("its bytecode in __pycache__, which Python loads instead, is cut off: remove it"), "always"
            )

    def function(self, module: str, line: int) -> ast.FunctionDef | None:
        """A function at the top of a module with its body, by the line of its definition; None where that cannot be
        parsed, and for one that yields."""
        found = self.find(module)
        assert found is not None
        try:
            source = self.text(found.path)
            text = definition(source, line)
            try:
                body = _parsed(source if text is None else text).body
            except Unreadable:
                body = _parsed(source).body
        except Unreadable:
            return None
        functions = (one for one in statements(body) if isinstance(one, ast.FunctionDef) and one.lineno == line)
        node = next(functions, None)
        return None if node is None or (b"yield" in (text or source) and is_generator(node)) else node

    def parameters(self, place: str) -> tuple[str, ...] | None:
        """What ``module:Class`` or a function can be called with; None when that is not known."""
        module, _, name = place.partition(":")
        if module not in self._parameters:
            known = self._signatures(module, parameters, partial(_without_bodies, signatures=True))
            self._parameters[module] = known or {}
        return self._parameters[module].get(name)

    def calls(self, module: str) -> Mapping[str, tuple[str, ...]] | None:
        """How the classes of a module call their own methods; None when that is not known."""
        if module not in self._calls:
            self._calls[module] = self._signatures(module, calls, _parsed)
        return self._calls[module]

    def _signatures(
        self,
        module: str,
        read: Callable[[ast.Module, str, Mapping[str, str]], _Read],
        parsed: Callable[[bytes], ast.Module],
    ) -> _Read | None:
        """What :mod:`~envdoctor.source.signatures` tells of a module; None when it cannot be read."""
        try:
            offers, found = self.offers(module), self.find(module)
            if offers is not None and found is not None:
                return read(parsed(self.text(found.path)), module, offers.names)
        except (Unreadable, RecursionError):
            pass
        return None

    def mentions(self, module: str, name: str) -> bool:
        """Whether the name stands anywhere in the source of a module: otherwise nothing binds it there by name."""
        found = self.find(module)
        if found is None or found.kind != "source":
            return False
        if found.path not in self._sources:
            self._sources[found.path] = self.text(found.path)
        source, word = self._sources[found.path], name.encode()
        return word in source and re.search(rb"\b%b\b" % re.escape(word), source) is not None

    def files_below(self, folder: str, ending: str = ".py") -> list[str]:
        """The paths of the files with that ending in a folder."""
        return [os.path.join(folder, name) for name in sorted(self._names(folder)) if name.endswith(ending)]

    def folders_below(self, folder: str) -> list[str]:
        """The paths of what may be folders in a folder."""
        return [os.path.join(folder, name) for name in sorted(self._names(folder)) if "." not in name]

    def text(self, path: str) -> bytes:
        """The content of a source file. Raises :class:`Unreadable`."""
        try:
            return self._files.whole(path, _LARGEST)
        except OSError as error:
            raise Unreadable(Message("cannot be read: {}", because_of(error))) from None

    def _look(self, folders: Sequence[str], name: str) -> Found | None:
        portions: list[str] = []
        for folder in folders:
            names = self._names(folder)
            if name in names:
                inner = os.path.join(folder, name)
                inside = self._names(inner)
                if inner in self.closed:
                    return Found("compiled", inner, (inner,))
                if "__init__.py" in inside:
                    return Found("source", os.path.join(inner, "__init__.py"), (inner,))
                if any(one.startswith("__init__.") and one.endswith(_COMPILED) for one in inside):
                    return Found("compiled", inner, (inner,))
                if inside or self._files.is_folder(inner):
                    portions.append(inner)
            if self._is_compiled(folder, name):
                return Found("compiled", os.path.join(folder, name), ())
            if f"{name}.py" in names:
                return Found("source", os.path.join(folder, f"{name}.py"), ())
            if f"{name}.pyc" in names:
                return Found("compiled", os.path.join(folder, f"{name}.pyc"), ())
        return Found("namespace", portions[0], tuple(portions)) if portions else None

    def _names(self, folder: str) -> frozenset[str]:
        known = self._listed.get(folder)
        if known is None:
            try:
                names = self._files.names(folder)
            except OSError as error:
                names = []
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP):
                    self.closed[folder] = because_of(error)
            known = self._listed[folder] = frozenset(names)
        return known

    def _is_compiled(self, folder: str, name: str) -> bool:
        if folder not in self._compiled:
            compiled = (one for one in self._names(folder) if one.endswith(_COMPILED[:2]))
            self._compiled[folder] = frozenset(one.partition(".")[0] for one in compiled)
        return name in self._compiled[folder]


def _without_bodies(source: bytes, *, signatures: bool = False) -> ast.Module:
    """The tree of a module without the bodies of its functions. Raises :class:`Unreadable`."""
    if overruns(source):
        raise Unreadable(Message("is too large to be parsed safely by Python before 3.11"))
    try:
        return _parsed(trimmed(source, signatures=signatures))
    except Unreadable:
        return _parsed(source)


def _parsed(source: bytes) -> ast.Module:
    """Raises :class:`Unreadable`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        reason = Message("is not Python that this interpreter can parse (line {})", error.lineno or 1)
        raise Unreadable(reason, "always" if b"\0" in source else "here") from None
    except (RecursionError, MemoryError):
        raise Unreadable(Message("is nested too deeply, or too large, to be parsed")) from None
    except (ValueError, LookupError):
        raise Unreadable(Message("is not Python source text"), "always") from None
