"""A script or notebook as one syntax tree: code cells in order, without IPython's magics; which cell a line is from."""

import ast
import io
import json
import re
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

#: The first two lines name another encoding than UTF-8, in which bytes tell no operators.
_ENCODED = re.compile(rb"(?:[^\n]*\n)?[^\n]*coding[:=](?![ ]*[uU][tT][fF]-?8)")
_OPERATORS = b".([+-*/%@&|^<>"
_MOST_OPERATORS = 20_000
_OPENING, _CLOSING, _APART = ("(", "[", "{"), (")", "]", "}"), (",", ":", ";", "=")
_MOST_CELLS = 20_000
#: Magics of a whole cell after which Python follows; any other hands the cell to something else.
_PYTHON_CELLS = {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "python", "python3"}
#: ``%time x``, ``!pip install x``, ``?x``, ``x?``, ``files = !ls``, ``out = %sql ...``.
_NOT_PYTHON = re.compile(r"[%!?]|[\w., \t]+=[ \t]*[%!]|[\w.]+\?{1,2}\Z")
_AWAIT = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class NotANotebook(ValueError):
    """The file is not a notebook; the message is a clause."""


class Code(NamedTuple):
    """``tree`` holds the statements of a script, or of all cells of a notebook that could be parsed. ``place`` is
    where a line of it is: the line, and in a notebook the cell, from 1; ``unread`` are the other cells, each by the
    line at fault."""

    tree: ast.Module
    place: Callable[[int], tuple[int, ...]] = lambda line: (line,)
    unread: Sequence[tuple[int, ...]] = ()


class NeedsPython312(SyntaxError):
    """A line has a form that came with Python 3.12, and this interpreter is older."""


#: ``type Rows = list[int]``, ``def first[T](…``, ``class Box[T]:``; ``f"{path.split("/")[-1]}"``, a field
#: that holds the quote of its f-string (PEP 701).
_OF_PYTHON_312 = re.compile(
    r"""\A[ \t]*(?:type[ \t]+\w+[ \t]*[=\[]|(?:async[ \t]+)?(?:def|class)[ \t]+\w+\[)"""
    r"""|[fF][rR]?"(?:[^"{\\\n]|\\.|\{\{|\{[^"{}\n]*\})*\{[^"{}\n][^"}\n]*\""""
    r"""|[fF][rR]?'(?:[^'{\\\n]|\\.|\{\{|\{[^'{}\n]*\})*\{[^'{}\n][^'}\n]*'"""
)
_NO_BACKSLASH = "f-string expression part cannot include a backslash"


def parse_code(content: bytes, *, notebook: bool = False) -> Code:
    """Parse a script, or a notebook of nbformat 3 or 4.

    Raises :class:`NotANotebook`, RecursionError, MemoryError, and SyntaxError, also for a script that is not text:
    :class:`NeedsPython312` where that is sure.
    """
    if notebook:
        return _parse_notebook(content)
    if overruns(content):
        raise RecursionError
    try:
        return Code(ast.parse(content))
    except SyntaxError as error:
        is_form = _OF_PYTHON_312.search(error.text or "") or error.msg == _NO_BACKSLASH
        newer = sys.version_info < (3, 12) and is_form
        raise NeedsPython312(*error.args) if newer else error from None
    except (ValueError, LookupError) as error:
        raise SyntaxError(str(error)) from None


def is_encoded(source: bytes) -> bool:
    """Return whether a comment of the first two lines names another encoding than UTF-8."""
    return _ENCODED.match(source) is not None


def overruns(source: bytes) -> bool:
    """Return whether the parser may end this process: before 3.11 it has no limit for 100,000 operators in one
    expression, which overrun a stack of 8 MiB."""
    if sys.version_info >= (3, 11) or len(source) <= _MOST_OPERATORS:
        return False
    many = len(source) - len(source.translate(None, _OPERATORS)) > _MOST_OPERATORS or is_encoded(source)
    return many and _has_chain(source, _MOST_OPERATORS)


def _has_chain(source: bytes, length: int) -> bool:
    """Return whether an expression may have more operators, calls and subscripts than this, those around its brackets
    included. A comma, a colon, an equals sign or the end of a statement begins another. An f-string counts as written,
    and invalid Python as long."""
    chains, total = [0], 0
    try:
        for kind, text, *_ in tokenize.tokenize(io.BytesIO(source).readline):
            if kind == tokenize.ERRORTOKEN:  # the tokenizer seeks an end again from each quote that has none
                return True
            if kind == tokenize.NEWLINE:
                chains, total = [0], 0
            elif kind == tokenize.OP and text in _CLOSING:
                total -= chains.pop() if len(chains) > 1 else 0
            elif kind == tokenize.OP and text in _APART:
                total -= chains[-1]
                chains[-1] = 0
            elif kind == tokenize.OP or (kind == tokenize.STRING and "f" in text[:2].lower()):
                more = 1 if kind == tokenize.OP else sum(map(text.count, _OPERATORS.decode()))
                chains[-1] += more
                total += more
                if total > length:
                    return True
                if kind == tokenize.OP and text in _OPENING:
                    chains.append(0)
    except (tokenize.TokenError, SyntaxError, ValueError, LookupError):
        return True
    return False


def _parse_notebook(content: bytes) -> Code:
    tree = ast.Module([], [])
    unread: list[tuple[int, ...]] = []
    starts, numbers = [1], [1]
    line = 1
    for number, source in cells(content):
        try:
            part = _parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread.append((getattr(error, "lineno", None) or 1, number))
            continue
        starts.append(line)
        numbers.append(number)
        for statement in part.body:
            ast.increment_lineno(statement, line - 1)
        tree.body += part.body
        line += source.count("\n") + 1

    def place(line: int) -> tuple[int, ...]:
        at = bisect_right(starts, line) - 1
        return line - starts[at] + 1, numbers[at]

    return Code(tree, place, unread)


def cells(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the code cells by their number, from 1. Raises :class:`NotANotebook`."""
    try:
        document: Any = json.loads(content)
    except (ValueError, UnicodeDecodeError) as error:
        raise NotANotebook("it is no JSON") from error
    if not isinstance(document, dict):
        raise NotANotebook("it is no notebook")
    entries = document.get("cells")
    if entries is None and isinstance(document.get("worksheets"), list):
        sheets = [sheet for sheet in document["worksheets"] if isinstance(sheet, dict)]
        entries = [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    if not isinstance(entries, list) or len(entries) > _MOST_CELLS:
        raise NotANotebook("it has no list of cells" if not isinstance(entries, list) else "it has too many cells")
    for number, cell in enumerate(entries, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input"))
        if isinstance(source, list) and all(isinstance(piece, str) for piece in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise NotANotebook(f"its cell {number} has no source")
        yield number, source.replace("\r\n", "\n")


def _parse(source: str) -> ast.Module:
    """Parse the cell as it is, else without its magics. A magic of the whole cell decides whether it is Python."""
    first = re.match(r"\s*%%(\w*)[^\n]*", source)
    if first is not None:
        if first[1] not in _PYTHON_CELLS:
            return ast.Module([], [])
        source = "\n" * first[0].count("\n") + source[first.end() :]
    try:
        return _compiled(source)
    except (SyntaxError, RecursionError):
        return _compiled(_without_magics(source))


def _compiled(source: str) -> ast.Module:
    if overruns(source.encode("utf-8", "replace")):
        raise RecursionError
    tree = compile(source, "<cell>", "exec", _AWAIT, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


def _without_magics(source: str) -> str:
    """Replace each line that only IPython understands, and its continuation lines, by ``pass`` at its place."""
    lines: list[str] = []
    continued = False
    for line in source.split("\n"):
        if continued or _NOT_PYTHON.match(line.strip()):
            indent = re.match(r"\s*", line)
            lines.append("" if continued else f"{indent[0] if indent else ''}pass")
            continued = line.rstrip().endswith("\\")
        else:
            lines.append(line)
    return "\n".join(lines)
