"""Pasted text as plain lines: bounded, without colours, control characters, and what tools write before each line."""

from __future__ import annotations

import re

#: The end of a text decides, because Python names the error last: characters, lines, and characters of a line.
_CHARACTERS, _LINES, _LINE = 1 << 20, 20_000, 2_000

_CSI = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]")
#: Colours whose escape character was lost on the way: ``[0;31mImportError[0m``.
_LOST_CSI = re.compile(r"\[[0-9;]{1,8}m")
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_BREAKS = re.compile("\r\n?|[\u2028\u2029\x85]")
#: What stands before a line that another program passed on: launchers of several processes, Ray, vLLM, pytest,
#: containers, mail, and times of day.
_PREFIX = re.compile(
    r"(?:\[(?:rank|default)?\s?\d{1,5}\]:?|\(?[\w.-]{1,60}(?: \w{1,20})? ?pid=[^)]{1,60}\)|E {2,}|>+|\|"
    r"|[\w.-]{1,60} +\| |\d{4}-\d\d-\d\d[T ][\d:.,]{5,15}Z?)\s?"
)
_QUOTES = str.maketrans("\u2018\u2019\u201b`\u00b4\u201c\u201d\uff1a", "'''''\"\":")


def lines_of(text: str) -> list[str]:
    """The last lines of a text, at most 20,000, without what is no part of them; indentation stays.

    Quotes that forums and word processors bend are straight again, and backticks are quotes too.
    """
    return numbered(text)[1]


def numbered(text: str) -> tuple[int, list[str]]:
    """The same with the number (from 1) that the first of them has in the text."""
    left = text[: max(0, len(text) - _CHARACTERS)].count("\n")
    lines = _BREAKS.sub("\n", text[-_CHARACTERS:]).split("\n")
    kept = [_plain(line[:_LINE]) for line in lines[-_LINES:]]
    return left + len(lines) - len(kept) + 1, kept


def visible(line: str) -> str:
    """The line without colours, control and hidden characters."""
    if not (line.isascii() and line.isprintable()):
        line = _HIDDEN.sub("", _CSI.sub("", line))
    return _LOST_CSI.sub("", line) if "[" in line else line


def _plain(line: str) -> str:
    line = visible(line.rstrip()).translate(_QUOTES)
    for _ in range(3):
        found = _PREFIX.match(line)
        if found is None:
            break
        line = line[found.end() :]
    return line
