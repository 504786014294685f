"""Python source without the bodies of its functions and most parameters: what an import executes, far less to parse."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["definition", "trimmed"]

_TEXTS = rb'"""|\'\'\'|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
_TOKENS = re.compile(_TEXTS)
_MARKS = re.compile(_TEXTS + rb"|[()\[\]{}:]")
_PLAIN = rb"[^()\[\]{}#\"']*"


def _balanced(inside: bytes, depth: int) -> bytes:
    """Plain code (``inside``), texts of one line, and brackets around as much."""
    within = _balanced(_PLAIN, depth - 1) if depth else _PLAIN
    return rb"%b(?:(?:[(\[{]%b[)\]}]|\"[^\"\\\n]*\"|'[^'\\\n]*')%b){0,200}" % (inside, within, inside)


#: A function, from the line feed before it (the search then leaps from line to line) to the end of its name; and the
#: rest of a header in which nothing deceives.
_DEFINITION = re.compile(
    rb"(\n([ ]*)(?:async[ ]+)?def[ ]+[^\s(\[:]+)(\(%b\)%b:[ ]*\r?\n)?"
    % (_balanced(_PLAIN, 1), _balanced(rb"[^()\[\]{}#\"':\n]*", 1))
)
_HEADER_END = re.compile(rb":[ ]*(?:#[^\n]*)?\r?\n")
_LONGEST = 200_000
#: A default that is more than a name or a constant.
_DEFAULT = re.compile(rb"=[^,=)]*(?:[A-Za-z_]\w*\s*\.|[(\[{])|lambda")
_QUOTES = (b'"""', b"'''")
#: Indentation or ends of lines that spaces and line feeds alone do not tell.
_ODD = re.compile(rb"\n[ ]*[\t\f]|\r(?!\n)")

#: The first two lines name another encoding than UTF-8.
_ENCODED = re.compile(rb"(?:[^\n]*\n)?[^\n]*coding[:=](?![ ]*[uU][tT][fF]-?8)")


def trimmed(source: bytes) -> bytes:
    """The source with ``pass`` for the body of every function, and without the parameters where their defaults say
    nothing to an import; line numbers kept.

    It goes by indentation, brackets and quotes alone. Where these deceive, what comes out is either no Python, and the
    whole source is to be parsed, or has the same statements outside of functions.
    """
    if _is_odd(source):
        return source
    source = b"\n" + source
    parts: list[bytes] = []
    done = 1
    found = _DEFINITION.search(source)
    while found:
        name = found.end(1)
        colon = _colon(source, name) if found[3] is None else source.rfind(b":", name, found.end())
        if colon < 0:
            break
        header = _HEADER_END.match(source, colon) if found[3] is None else found
        if header is None:  # its body stands on the same line
            found = _DEFINITION.search(source, colon)
            continue
        end = _body_end(source, header.end() - 1, len(found[2]))
        valued = found[3] is None or b"=" in found[3]
        kept = colon if valued and _DEFAULT.search(source, name, colon) else name
        parts.append(source[done:kept])
        parts.append((b": pass" if kept == colon else b"(): pass") + b"\n" * source.count(b"\n", kept, end))
        done = end
        found = _DEFINITION.search(source, end - 1)
    parts.append(source[done:])
    return b"".join(parts)


def definition(source: bytes, line: int) -> bytes | None:
    """A function by the line of its ``def``: its source with its body, of the lines before it only their ends. None
    where that cannot be told."""
    lines = (b"\n" + source).split(b"\n", line)
    if len(lines) <= line or _is_odd(source) or _ENCODED.match(source):
        return None
    source = b"\n" + lines[line]
    found = _DEFINITION.match(source)
    colon = _colon(source, found.end(1)) if found else -1
    header = _HEADER_END.match(source, colon) if found and colon >= 0 else None
    if found is None or header is None:
        return None
    text = source[: _body_end(source, header.end() - 1, len(found[2]))]
    return b"\n" * (line - 2) + b"if 1:" + text if found[2] else b"\n" * (line - 1) + text[1:]


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
