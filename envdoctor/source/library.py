"""The modules below some folders: where Python would find each, its syntax tree, what it offers."""

import ast
import errno
import os
import re
import warnings
from _imp import source_hash
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import NamedTuple, TypeVar

from envdoctor.source.definitions import is_generator, of_kind, statements
from envdoctor.source.notebook import is_encoded, overruns
from envdoctor.source.offers import Offers, read_offers
from envdoctor.source.signatures import calls, parameters
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

# Python source without the bodies of its functions and most parameters: what an import executes, far less to parse.

_TEXTS = rb'"""|\'\'\'|#[^\n]*|"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'
_TOKENS = re.compile(_TEXTS)
_MARKS = re.compile(_TEXTS + rb"|[()\[\]{}:]")
_PLAIN = rb"[^()\[\]{}#\"']*"


def _balanced(inside: bytes, depth: int) -> bytes:
    """Return a pattern for plain code (``inside``), texts of one line, and brackets around these."""
    within = _balanced(_PLAIN, depth - 1) if depth else _PLAIN
    return rb"%b(?:(?:[(\[{]%b[)\]}]|\"[^\"\\\n]*\"|'[^'\\\n]*')%b){0,200}" % (inside, within, inside)


#: A function up to the end of its name, and the rest of its header if that is plain.
_DEFINITION = re.compile(
    rb"def[ ]+[^\s(\[:]+(\(%b\)%b:[ ]*\r?\n)?" % (_balanced(_PLAIN, 1), _balanced(rb"[^()\[\]{}#\"':\n]*", 1))
)
_HEADER_END = re.compile(rb":[ ]*(?:#[^\n]*)?\r?\n")
_LONGEST = 200_000
#: A default that is more than a name or a constant.
_DEFAULT = re.compile(rb"=[^,=)]*(?:(?<!\w)[A-Za-z_]\w*\s*\.|[(\[{])|lambda")
_QUOTES = (b'"""', b"'''")
#: Indentation or ends of lines other than spaces and line feeds.
_ODD = re.compile(rb"\n[ ]*[\t\f]|\r(?!\n)")


def trimmed(source: bytes, *, signatures: bool = False) -> bytes:
    """Return the source with ``pass`` for the body of every function. Unless ``signatures`` are wanted, parameters go
    too if their defaults do nothing at import. Line numbers stay.

    It reads only indentation, brackets and quotes. If these deceive, the result is either invalid Python, and the whole
    source is to be parsed, or has the same statements outside of functions.
    """
    if _is_odd(source):
        return source
    source = b"\n" + source
    parts: list[bytes] = []
    position, above = 1, 0
    at = source.find(b"def ")  # ten times as fast as any pattern
    while at >= 0:
        indent, name, colon, body = _function(source, above, at)
        if colon < 0:
            break
        if body < 0:
            above, at = at, source.find(b"def ", colon)
            continue
        end = _body_end(source, body, indent)
        is_valued = source.find(b"=", name, colon) >= 0 and _DEFAULT.search(source, name, colon) is not None
        cut = colon if signatures or is_valued else name
        parts.append(source[position:cut])
        parts.append((b": pass" if cut == colon else b"(): pass") + b"\n" * source.count(b"\n", cut, end))
        position, above = end, end - 1
        at = source.find(b"def ", end)
    parts.append(source[position:])
    return b"".join(parts)


def definition(source: bytes, line: int) -> bytes | None:
    """Return the source of the function whose ``def`` is at a line, with its body; lines before it are empty. None if
    it cannot be found."""
    lines = (b"\n" + source).split(b"\n", line)
    if len(lines) <= line or _is_odd(source) or is_encoded(source):
        return None
    source = b"\n" + lines[line]
    at = source.find(b"def ", 0, source.find(b"\n", 1))
    indent, _, colon, body = _function(source, 0, at) if at >= 0 else (0, -1, -1, -1)
    if colon < 0 or body < 0:
        return None
    text = source[: _body_end(source, body, indent)]
    return b"\n" * (line - 2) + b"if 1:" + text if indent else b"\n" * (line - 1) + text[1:]


def _function(source: bytes, above: int, at: int) -> tuple[int, int, int, int]:
    """Return the indentation of the function whose ``def`` is at a position, in a line that begins behind ``above``;
    the end of its name; the colon of its header (-1 if not found); and the line feed before its body (-1 if that is on
    the same line). For any other ``def `` only the colon counts: a position behind it."""
    line = source.rfind(b"\n", above, at) + 1
    before = source[line:at].split() if line else [b""]
    match = _DEFINITION.match(source, at) if not before or before == [b"async"] else None
    if match is None:
        return 0, -1, at + 1, -1
    indent = at - line if not before else source.find(b"async", line) - line
    name = match.end()
    if match[1] is not None:
        name, body = match.span(1)
        return indent, name, source.rfind(b":", name, body), body - 1
    colon = _colon(source, name)
    header = _HEADER_END.match(source, colon) if colon >= 0 else None
    return indent, name, colon, header.end() - 1 if header is not None else -1


def _is_odd(source: bytes) -> bool:
    return any(mark in source for mark in b"\t\f\r") and _ODD.search(source) is not None


def _colon(source: bytes, start: int) -> int:
    """Return the colon behind ``def name(...)``, from the end of the name; -1 if the parentheses are not closed."""
    opened, limit = 0, start + _LONGEST
    token = _MARKS.search(source, start, limit)
    while token:
        mark, after = token[0], token.end()
        if mark in _QUOTES:
            after = source.find(mark, after, limit) + 3
            if after < 3 or source[after - 4] == 92:  # not closed, or a backslash before it
                return -1
        elif mark in b"([{":
            opened += 1
        elif mark in b")]}":
            opened -= 1
        elif mark == b":" and not opened:
            return token.start()
        token = _MARKS.search(source, after, limit)
    return -1


def _body_end(source: bytes, start: int, indent: int) -> int:
    """Return the start of the first line that is not deeper than the definition and not in a text of several lines; the
    search begins at the line feed at ``start``."""
    pattern = _less_than(indent)
    position = start
    while match := pattern.search(source, position):
        end = match.start() + 1
        if not (source.count(b'"""', start, end) % 2 or source.count(b"'''", start, end) % 2):
            # The line before goes on if it ends with a backslash, outside a comment.
            last = end - 3 if source[end - 2] == 13 else end - 2
            goes_on = source[last] == 92 and b"#" not in source[source.rfind(b"\n", 0, end - 1) + 1 : end]
            if not goes_on:
                return end
            position = end
            continue
        opened = _opened(source, start, end)
        closing = source.find(opened, end) if opened else -1
        if closing < 0:
            return end
        start = position = closing + 3
    return len(source)


def _opened(source: bytes, start: int, end: int) -> bytes | None:
    """Return the triple quote that is still open at the end."""
    opened = None
    for token in _TOKENS.finditer(source, start, end):
        if opened is None:
            opened = token[0] if token[0] in _QUOTES else None
        elif token[0] == opened or opened in token[0]:
            opened = None
    return opened


@lru_cache(maxsize=32)
def _less_than(indent: int) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?![ ]{%d})[ ]*[^\s#]" % (indent + 1))


_LARGEST = 4 << 20
_COMPILED = (".so", ".pyd", ".pyc")

_Read = TypeVar("_Read")


class Unreadable(Exception):
    """A module whose source cannot be parsed; the message is a clause for a report. ``fails``: no Python can run it
    (``always``), or only a newer one than this may (``here``)."""

    def __init__(self, reason: str, fails: str = "") -> None:
        super().__init__(reason)
        self.fails = fails


class _ModuleSpec(NamedTuple):
    """The place of a module.

    ``kind`` is ``source``, ``compiled`` (an extension module or bytecode alone) or ``namespace`` (folders without
    ``__init__``). ``paths`` are the folders of its submodules; empty unless it is a package.
    """

    kind: str
    path: str
    paths: tuple[str, ...]


class Library:
    """The modules below ``folders``, in import order. Each file is parsed once.

    ``exported`` holds, for following imports, what the modules in a folder export, found once. ``closed`` are the
    folders that cannot be listed, with the reason; their content is unknown. ``calls`` tells how the classes of a
    module call their own methods; None when that is not known.
    """

    def __init__(self, folders: Sequence[str], files: Files | None = None) -> None:
        self._folders = tuple(folders)
        self._files = files or Files()
        self._unnoted = Files(self._files.root)  # Python writes bytecode anew whenever it likes
        self._specs: dict[str, _ModuleSpec | None] = {}
        self._offers: dict[str, Offers | None] = {}
        self._trees: dict[str, ast.Module] = {}
        self._given: set[str] = set()
        self._names, self._extensions, self._kept_text = cache(self._listed), cache(self._compiled), cache(self.text)
        whole_headers = partial(_without_bodies, signatures=True)
        self._parameters = cache(lambda module: self._signatures(module, parameters, whole_headers) or {})
        self.calls = cache(lambda module: self._signatures(module, calls, _parsed))
        self.exported: dict[str, dict[str, str]] = {}
        self.closed: dict[str, str] = {}

    def find(self, name: str) -> _ModuleSpec | None:
        """Return the module of that dotted name; None if the folders do not have it."""
        if name not in self._specs:
            parent, _, last = name.rpartition(".")
            folders: Sequence[str] = self._folders
            if parent:
                package = self.find(parent)
                folders = package.paths if package is not None else ()
            self._specs[name] = self._look(folders, last)
        return self._specs[name]

    def offers(self, name: str) -> Offers | None:
        """Return what a module offers; None if it has no source. Raises :class:`Unreadable`."""
        if name in self._offers:
            return self._offers[name]
        spec = self.find(name)
        if spec is None or spec.kind != "source":
            return self._offers.setdefault(name, None)
        source = self.text(spec.path)
        tree = self._trees.pop(name, None) or _without_bodies(source)
        self._offers[name] = read_offers(tree, name, bool(spec.paths), source)
        if name not in self._given:
            self._trees[name] = tree
        return self._offers[name]

    def tree(self, name: str) -> ast.Module:
        """Return the syntax tree of a source module, once: the caller keeps it. Raises :class:`Unreadable`."""
        spec = self.find(name)
        assert spec is not None and spec.kind == "source"
        tree = self._trees.pop(name, None) or _without_bodies(self.text(spec.path))
        self._given.add(name)
        if spec.paths and name not in self._offers:
            self._trees[name] = tree  # the offers of a package are asked for later
        return tree

    def check_bytecode(self, name: str, python: Sequence[int]) -> None:
        """Raise :class:`Unreadable` if this CPython would load bytecode in place of a source module, and that is of
        another source (PEP 552: it is loaded unchecked), or cut off or zeroed: the name of the code, ``<module>``,
        stands near its end. The bytecode itself is not loaded."""
        spec = self.find(name)
        folder, base = os.path.split(spec.path if spec is not None else "")
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
        is_whole = code[16:17] in (b"c", b"\xe3") and b"<module>" in code
        if not is_whole and (flags == 1 or (flags == 0 and of_source == current)):
            reason = Message("its bytecode in __pycache__, which Python loads instead, is cut off: remove it")
            raise Unreadable(reason, "always")
        magic = int.from_bytes(code[:4], "little")
        if flags == 1 and code[8:16] != source_hash(magic, self.text(os.path.join(folder, base))):
            raise Unreadable(Message("Python loads its bytecode in __pycache__, which is of another source: remove it"))

    def function(self, module: str, line: int) -> ast.FunctionDef | None:
        """Return a function at the top of a module with its body, by the line of its definition; None if it cannot be
        parsed or yields."""
        spec = self.find(module)
        assert spec is not None
        try:
            source = self.text(spec.path)
            text = definition(source, line) or source
            try:
                body = _parsed(text).body
            except Unreadable:
                body = _parsed(source).body
        except Unreadable:
            return None
        functions = (node for node in of_kind(statements(body), ast.FunctionDef) if node.lineno == line)
        node = next(functions, None)
        return None if node is None or (b"yield" in text and is_generator(node)) else node

    def parameters(self, place: str) -> tuple[str, ...] | None:
        """Return the parameters of ``module:Class`` or of a function; None if unknown."""
        module, _, name = place.partition(":")
        return self._parameters(module).get(name)

    def _signatures(
        self,
        module: str,
        read: Callable[[ast.Module, str, Mapping[str, str]], _Read],
        parsed: Callable[[bytes], ast.Module],
    ) -> _Read | None:
        """Return what :mod:`~envdoctor.source.signatures` reads in a module; None if it cannot be read."""
        try:
            offers, spec = self.offers(module), self.find(module)
            if offers is not None and spec is not None:
                return read(parsed(self.text(spec.path)), module, offers.names)
        except (Unreadable, RecursionError):
            pass
        return None

    def mentions(self, module: str, name: str) -> bool:
        """Return whether a module's source contains the name anywhere: otherwise nothing binds it there by name."""
        spec = self.find(module)
        if spec is None or spec.kind != "source":
            return False
        source, word = self._kept_text(spec.path), name.encode()
        return word in source and re.search(rb"\b%b\b" % re.escape(word), source) is not None

    def files_below(self, folder: str, ending: str = ".py") -> list[str]:
        """Return the paths of the files with that ending in a folder."""
        return [os.path.join(folder, name) for name in sorted(self._names(folder)) if name.endswith(ending)]

    def folders_below(self, folder: str) -> list[str]:
        """Return the paths in a folder that may be folders."""
        return [os.path.join(folder, name) for name in sorted(self._names(folder)) if "." not in name]

    def text(self, path: str) -> bytes:
        """Return the content of a source file. Raises :class:`Unreadable`."""
        try:
            return self._files.whole(path, _LARGEST)
        except OSError as error:
            raise Unreadable(Message("cannot be read: {}", because_of(error))) from None

    def _look(self, folders: Sequence[str], name: str) -> _ModuleSpec | None:
        portions: list[str] = []
        for folder in folders:
            names = self._names(folder)
            if name in names:
                inner = os.path.join(folder, name)
                inside = self._names(inner)
                if inner in self.closed:
                    return _ModuleSpec("compiled", inner, (inner,))
                if "__init__.py" in inside:
                    return _ModuleSpec("source", os.path.join(inner, "__init__.py"), (inner,))
                if any(file.startswith("__init__.") and file.endswith(_COMPILED) for file in inside):
                    return _ModuleSpec("compiled", inner, (inner,))
                if inside or self._files.is_folder(inner):
                    portions.append(inner)
            if name in self._extensions(folder):
                return _ModuleSpec("compiled", os.path.join(folder, name), ())
            if f"{name}.py" in names:
                return _ModuleSpec("source", os.path.join(folder, f"{name}.py"), ())
            if f"{name}.pyc" in names:
                return _ModuleSpec("compiled", os.path.join(folder, f"{name}.pyc"), ())
        return _ModuleSpec("namespace", portions[0], tuple(portions)) if portions else None

    def _listed(self, folder: str) -> frozenset[str]:
        try:
            return frozenset(self._files.names(folder))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP):
                self.closed[folder] = because_of(error)
        return frozenset()

    def _compiled(self, folder: str) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in self._names(folder) if name.endswith(_COMPILED[:2]))


def _without_bodies(source: bytes, *, signatures: bool = False) -> ast.Module:
    """Parse a module without the bodies of its functions. Raises :class:`Unreadable`."""
    text = trimmed(source, signatures=signatures)
    try:
        return _parsed(text)
    except Unreadable:
        if text is source:
            raise
        return _parsed(source)


def _parsed(source: bytes) -> ast.Module:
    """Parse the source. Raises :class:`Unreadable`."""
    if overruns(source):
        raise Unreadable(Message("is too large to be parsed safely by Python before 3.11"))
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
