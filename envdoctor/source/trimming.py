"""Python source without the bodies of its functions: what an import executes, and a fifth of the text to parse."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["trimmed"]

_DEFINITION = re.compile(rb"^([ ]*)(?:async[ ]+)?def[ ]", re.MULTILINE)
_HEADER_END = re.compile(rb":[ ]*(?:#[^\n]*)?\r?\n")
_QUOTES = (b'"""', b"'''")
_TOKENS = re.compile(rb'"""|\'\'\'|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')


def trimmed(source: bytes) -> bytes:
    """The source with ``pass`` for the body of every function, line numbers kept.

    It goes by indentation and triple quotes alone. Where these deceive, what comes out is either no Python, and the
    whole source is to be parsed, or has the same statements outside of functions.
    """
    if b"\t" in source:
        return source
    parts: list[bytes] = []
    done = 0
    for found in _DEFINITION.finditer(source):
        if found.start() < done:
            continue
        header = _header_end(source, found.end())
        if header is None:
            continue
        start, colon = header
        end = _body_end(source, start, len(found[1]))
        parts += [source[done:colon], b": pass", b"\n" * source.count(b"\n", colon, end)]
        done = end
    parts.append(source[done:])
    return b"".join(parts)


def _header_end(source: bytes, start: int) -> tuple[int, int] | None:
    """Where the line behind ``def name(...):`` begins, and its colon; None for a body on the same line."""
    for found in _HEADER_END.finditer(source, start, start + 20_000):
        header = source[start : found.start()]
        if header.count(b"(") == header.count(b")") and header.count(b"[") == header.count(b"]"):
            return found.end(), found.start()
        if header.count(b"\n") > 200:
            break
    return None


def _body_end(source: bytes, start: int, indent: int) -> int:
    """Where the first line begins that is not deeper than the definition and stands in no triple-quoted text."""
    pattern = _less_than(indent)
    position = start
    while True:
        found = pattern.search(source, position)
        if not found:
            return len(source)
        end = found.start()
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
    return re.compile(rb"^[ ]{0,%d}[^\s#]" % indent, re.MULTILINE)
