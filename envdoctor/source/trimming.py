"""Python source without the bodies of its functions and most parameters: what an import executes, far less to parse."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["trimmed"]

# Each begins with a line feed: the search then leaps from line to line.
_DEFINITION = re.compile(rb"\n([ ]*)(?:async[ ]+)?def[ ]+[^\s(\[:]+")
_HEADER_END = re.compile(rb":[ ]*(?:#[^\n]*)?\r?\n")
_MOST_LINES, _LONGEST = 200, 20_000
#: A default that is more than a name or a constant.
_DEFAULT = re.compile(rb"=[^,=)]*(?:[A-Za-z_]\w*\s*\.|[(\[{])|lambda")
_QUOTES = (b'"""', b"'''")
_TOKENS = re.compile(rb'"""|\'\'\'|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')


def trimmed(source: bytes) -> bytes:
    """The source with ``pass`` for the body of every function, and without the parameters where their defaults say
    nothing to an import; line numbers kept.

    It goes by indentation and triple quotes alone. Where these deceive, what comes out is either no Python, and the
    whole source is to be parsed, or has the same statements outside of functions.
    """
    if b"\t" in source:
        return source
    source = b"\n" + source
    parts: list[bytes] = []
    done = 1
    found = _DEFINITION.search(source)
    while found:
        header = _header_end(source, found.end())
        if header is None:
            break
        start, colon = header
        if colon < 0:
            found = _DEFINITION.search(source, start - 1)
            continue
        end = _body_end(source, start - 1, len(found[1]))
        kept = colon if _DEFAULT.search(source, found.end(), colon) else found.end()
        parts += [source[done:kept], b": pass" if kept == colon else b"(): pass"]
        parts.append(b"\n" * source.count(b"\n", kept, end))
        done = end
        found = _DEFINITION.search(source, end - 1)
    parts.append(source[done:])
    return b"".join(parts)


def _header_end(source: bytes, start: int) -> tuple[int, int] | None:
    """Where the line behind ``def name(...):`` begins, and its colon, -1 for a body on the same line; None when the
    parentheses are not closed."""
    line, opened = start, 0
    for _ in range(_MOST_LINES):
        end = source.find(b"\n", line)
        if end < 0 or end > start + _LONGEST:
            break
        opened += sum(source.count(one, line, end) for one in (b"(", b"["))
        opened -= sum(source.count(one, line, end) for one in (b")", b"]"))
        if not opened:
            colon = _HEADER_END.search(source, line, end + 1)
            return end + 1, colon.start() if colon else -1
        line = end + 1
    return None


def _body_end(source: bytes, start: int, indent: int) -> int:
    """Where the first line begins that is not deeper than the definition and stands in no triple-quoted text; the line
    feed at ``start`` is the first to be looked at."""
    pattern = _less_than(indent)
    position = start
    while True:
        found = pattern.search(source, position)
        if not found:
            return len(source)
        end = found.start() + 1
        if not any(source.count(quote, start, end) % 2 for quote in _QUOTES):
            return end
        opened = _opened(source, start, end)
        closing = source.find(opened, end) if opened else -1
        if closing < 0:
            return end
        position = closing + 3


def _opened(source: bytes, start: int, end: int) -> bytes | None:
    """The triple quote that is still open at the end."""
    opened = None
    for token in _TOKENS.finditer(source, start, end):
        if opened is None:
            opened = token[0] if token[0] in _QUOTES else None
        elif token[0] == opened or opened in token[0]:
            opened = None
    return opened


@lru_cache(maxsize=32)
def _less_than(indent: int) -> re.Pattern[bytes]:
    return re.compile(rb"\n[ ]{0,%d}[^\s#]" % indent)
