"""Lay out text by display width: wrapping at blanks or between Chinese characters, hanging indents, long commands."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Characters that do not begin a line, and those that do not end one (the usual rules of Chinese typesetting).
_NOT_FIRST = "，。、；：？！）」』】》”’…％,.;:?!)]}"
#: A word of a shell command, with what it quotes.
_WORD = r"""(?:[^ '"\\]|\\.?|'[^']*'?|"(?:\\.|[^"\\])*"?)+"""
_NOT_LAST = "（「『【《“‘([{"


def display_width(text: str) -> int:
    """Columns the text takes in a terminal: 2 for wide East Asian characters, 0 for combining marks."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    width = 0
    for char in text:
        if east_asian_width(char) in "WF":
            width += 2
        elif category(char) not in ("Mn", "Me"):
            width += 1
    return width


def pad(text: str, width: int) -> str:
    """The text with blanks up to ``width`` columns."""
    return text + " " * (width - display_width(text))


def shortened(text: str, longest: int) -> str:
    """The text, cut to ``longest`` characters, the cut marked with ``...``."""
    return text if len(text) <= longest else text[: longest - 3].rstrip(" ") + "..."


def wrap(text: str, width: int | None, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most ``width`` columns; the first begins with ``first``, the others with ``rest``.

    Breaks only at blanks and beside wide characters, so that a URL, a path or a version stays whole even when it is
    too long. ``width`` None does not wrap.
    """
    if width is None or display_width(first) + display_width(text) <= width:
        return [first + text]
    return _fill(_atoms(text), width, first, rest)


def wrap_items(
    items: Iterable[str], width: int | None, first: str = "", rest: str = "", separator: str = ", "
) -> list[str]:
    """Items in one or more lines; a line is broken between two items, and inside one only where it is too long.

    Of the separator, what is not blank stays at the end of the broken line.
    """
    items = list(items)
    if width is None or display_width(first) + display_width(separator.join(items)) <= width:
        return [first + separator.join(items)]
    room = width - display_width(rest)
    glue = separator.rstrip(" ")
    atoms: list[tuple[str, str]] = []
    for number, item in enumerate(items):
        text = item + glue if number < len(items) - 1 else item
        before = separator[len(glue) :] if number else ""
        if display_width(text) <= room:
            atoms.append((before, text))
        else:
            pieces = _atoms(text)
            atoms.append((before, pieces[0][1]))
            atoms.extend(pieces[1:])
    return _fill(atoms, width, first, rest)


def command_lines(command: str, width: int | None, first: str = "", rest: str = "") -> list[str]:
    """A shell command in lines that end with a backslash, broken only between arguments and never inside quotes.

    An option stays with its value. ``width`` None keeps one line.
    """
    if width is None or display_width(first) + display_width(command) <= width:
        return [first + command]
    lines: list[str] = []
    line, empty = first, True
    for group in _arguments(command):
        gap = "" if empty else " "
        if not empty and display_width(line) + len(gap) + display_width(group) + 2 > width:
            lines.append(line + " \\")
            line, gap = rest + "  ", ""
        line += gap + group
        empty = False
    return [*lines, line]


def _fill(atoms: list[tuple[str, str]], width: int, first: str, rest: str) -> list[str]:
    lines: list[str] = []
    line, used, empty = first, display_width(first), True
    for gap, atom in atoms:
        size = display_width(atom)
        if not empty and used + len(gap) + size > width:
            lines.append(line.rstrip(" "))
            line, used, empty = rest, display_width(rest), True
        if empty:
            gap = ""
        line += gap + atom
        used += len(gap) + size
        empty = False
    return [*lines, line]


def _atoms(text: str) -> list[tuple[str, str]]:
    """Pieces that stay whole, each with the blank before it."""
    words = _words(text)
    if text.isascii():
        return [(" ", word) for word in words]
    from unicodedata import east_asian_width

    atoms: list[tuple[str, str]] = []
    for word in words:
        gap, start, before_wide = " ", 0, False
        for place, char in enumerate(word):
            wide = east_asian_width(char) in "WF"
            breakable = (wide or before_wide) and char not in _NOT_FIRST and word[place - 1] not in _NOT_LAST
            if place and breakable:
                atoms.append((gap, word[start:place]))
                gap, start = "", place
            before_wide = wide
        if word[start:]:
            atoms.append((gap, word[start:]))
    return atoms


def _words(text: str) -> list[str]:
    """The words, an option together with its value (``--model DIR``)."""
    words: list[str] = []
    for word in filter(None, text.split(" ")):
        last = words[-1] if words else ""
        if last.startswith("--") and last[-1].isalnum() and " " not in last and "=" not in last and word[0] != "-":
            words[-1] = f"{last} {word}"
        else:
            words.append(word)
    return words


def _arguments(command: str) -> list[str]:
    groups: list[str] = []
    for word in re.findall(_WORD, command):
        last = groups[-1] if groups else ""
        takes_value = last.startswith("-") and "=" not in last and " " not in last
        if takes_value and not word.startswith("-"):
            groups[-1] = f"{last} {word}"
        else:
            groups.append(word)
    return groups
