"""Python source without the bodies of its functions and most parameters: what an import executes, far less to parse."""

from __future__ import annotations

import re
from functools import lru_cache

_TEXTS = rb'"""|\'\'\'|#[^\n]*|"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'
_TOKENS = re.compile(_TEXTS)
_MARKS = re.compile(_TEXTS + rb"|[()\[\]{}:]")
_PLAIN = rb"[^()\[\]{}#\"']*"


def _balanced(inside: bytes, depth: int) -> bytes:
    """Plain code (``inside``), texts of one line, and brackets around as much."""
    within = _balanced(_PLAIN, depth - 1) if depth else _PLAIN
    return rb"%b(?:(?:[(\[{]%b[)\]}]|\"[^\"\\\n]*\"|'[^'\\\n]*')%b){0,200}" % (inside, within, inside)


#: A function up to the end of its name, and the rest of a header in which nothing deceives.
_DEFINITION = re.compile(
    rb"def[ ]+[^\s(\[:]+(\(%b\)%b:[ ]*\r?\n)?" % (_balanced(_PLAIN, 1), _balanced(rb"[^()\[\]{}#\"':\n]*", 1))
)
_HEADER_END = re.compile(rb":[ ]*(?:#[^\n]*)?\r?\n")
_LONGEST = 200_000
#: A default that is more than a name or a constant.
_DEFAULT = re.compile(rb"=[^,=)]*(?:(?<!\w)[A-Za-z_]\w*\s*\.|[(\[{])|lambda")
_QUOTES = (b'"""', b"'''")
#: Indentation or ends of lines that spaces and line feeds alone do not tell.
_ODD = re.compile(rb"\n[ ]*[\t\f]|\r(?!\n)")

#: The first two lines name another encoding than UTF-8.
_ENCODED = re.compile(rb"(?:[^\n]*\n)?[^\n]*coding[:=](?![ ]*[uU][tT][fF]-?8)")


def trimmed(source: bytes, *, signatures: bool = False) -> bytes:
    """The source with ``pass`` for the body of every function, and unless ``signatures`` are wanted without the
    parameters where their defaults say nothing to an import; line numbers kept.

    It goes by indentation, brackets and quotes alone. Where these deceive, what comes out is either no Python, and the
    whole source is to be parsed, or has the same statements outside of functions.
    """
    if _is_odd(source):
        return source
    source = b"\n" + source
    parts: list[bytes] = []
    done, above = 1, 0
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
        kept = colon if signatures or is_valued else name
        parts.append(source[done:kept])
        parts.append((b": pass" if kept == colon else b"(): pass") + b"\n" * source.count(b"\n", kept, end))
        done, above = end, end - 1
        at = source.find(b"def ", end)
    parts.append(source[done:])
    return b"".join(parts)


def definition(source: bytes, line: int) -> bytes | None:
    """A function by the line of its ``def``: its source with its body, of the lines before it only their ends. None
    where that cannot be told."""
    lines = (b"\n" + source).split(b"\n", line)
    if len(lines) <= line or _is_odd(source) or _ENCODED.match(source):
        return None
    source = b"\n" + lines[line]
    at = source.find(b"def ", 0, source.find(b"\n", 1))
    indent, _, colon, body = _function(source, 0, at) if at >= 0 else (0, -1, -1, -1)
    if colon < 0 or body < 0:
        return None
    text = source[: _body_end(source, body, indent)]
    return b"\n" * (line - 2) + b"if 1:" + text if indent else b"\n" * (line - 1) + text[1:]


def _function(source: bytes, above: int, at: int) -> tuple[int, int, int, int]:
    """Of the function whose ``def`` stands there, in a line that begins behind ``above``: its indentation, where its
    name ends, the colon of its header (-1 where that is not found), and the line feed before its body (-1 where that
    stands on the same line). Of any other ``def `` only a place behind it, for the colon."""
    line = source.rfind(b"\n", above, at) + 1
    before = source[line:at].split() if line else [b""]
    found = _DEFINITION.match(source, at) if not before or before == [b"async"] else None
    if found is None:
        return 0, -1, at + 1, -1
    indent = at - line if not before else source.find(b"async", line) - line
    name = found.end()
    if found[1] is not None:
        name, body = found.span(1)
        return indent, name, source.rfind(b":", name, body), body - 1
    colon = _colon(source, name)
    header = _HEADER_END.match(source, colon) if colon >= 0 else None
    return indent, name, colon, header.end() - 1 if header is not None else -1


def _is_odd(source: bytes) -> bool:
    return any(one in source for one in b"\t\f\r") and _ODD.search(source) is not None


def _colon(source: bytes, start: int) -> int:
    """The colon behind ``def name(...)``, from the end of the name; -1 when the parentheses are not closed."""
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
    """Where the first line begins that is not deeper than the definition and stands in no text of several lines; the
    line feed at ``start`` is the first to be looked at."""
    pattern = _less_than(indent)
    position = start
    while True:
        found = pattern.search(source, position)
        if not found:
            return len(source)
        end = found.start() + 1
        if not (source.count(b'"""', start, end) % 2 or source.count(b"'''", start, end) % 2):
            if source[end - 2] not in b"\\\r" or not _goes_on(source, found.start()):
                return end
            position = end
            continue
        opened = _opened(source, start, end)
        closing = source.find(opened, end) if opened else -1
        if closing < 0:
            return end
        start = position = closing + 3


def _goes_on(source: bytes, end: int) -> bool:
    """Whether the line that ends there goes on in the next one: it ends with a backslash, in no comment."""
    last = end - 2 if source[end - 1] == 13 else end - 1
    return source[last] == 92 and b"#" not in source[source.rfind(b"\n", 0, end) + 1 : end]


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
    return re.compile(rb"\n(?![ ]{%d})[ ]*[^\s#]" % (indent + 1))
