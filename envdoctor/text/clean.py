"""Clean strings from outside: no control, hidden or reordering characters and no credentials reach any output."""

from __future__ import annotations

import re

from envdoctor.text.message import Message, mapped
from envdoctor.text.redact import without_credentials

#: Characters kept of one string in text meant for people.
LIMIT = 500
#: Nothing is looked at behind this many characters: cleaning must not be the slow part of a run on hostile input.
_READ = 65_536

# Patterns are compiled when there is something to hide: most texts are plain.
#: ECMA-48 control sequences (colours, cursor moves), with the one-character CSI of C1 too. Other escape sequences lose
#: only their ESC, so that what they would have hidden can be seen.
_CSI = "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
_BREAKS = "[\t\n\x0b\x0c\r\x1c-\x1f\x85\u2028\u2029]+"

#: Characters that Unicode counts as letters, symbols or marks although nothing is drawn: Hangul fillers, the Braille
#: blank, the grapheme joiner, Khmer inherent vowels, Mongolian and general variation selectors.
_INVISIBLE = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]+"
#: More marks than this on one letter are decoration that paints over neighbouring lines.
_MARKS = 3


def clean(text: str, limit: int | None = LIMIT) -> str:
    """One line: line breaks become blanks, hidden characters go, credentials become ``***``.

    ``limit`` caps the length in characters (the cut is marked with ``...``); None keeps up to 65,536. Broken and
    unassigned characters become ``?``, because a gap would let two names look alike.
    """
    if isinstance(text, Message):
        return mapped(text, lambda part: _edged(part, clean(part, limit)))
    cut = len(text) > _READ
    if cut:
        text = text[:_READ]
    if not (text.isascii() and text.isprintable()):
        text = _visible(re.sub(_BREAKS, " ", re.sub(_CSI, "", text)))
    text = without_credentials(text).strip(" ")
    if limit is not None and (len(text) > limit or cut):
        text = text[: limit - 3].rstrip(" ") + "..."
    return text


def _edged(part: str, text: str) -> str:
    """The text with the blanks that set it off in a sentence."""
    return " " * part.startswith(" ") + text + " " * part.endswith(" ") if text else text


def _visible(text: str) -> str:
    from unicodedata import category

    out: list[str] = []
    marks = 0
    for char in text if text.isascii() else re.sub(_INVISIBLE, "", text):
        if char.isascii():
            if char.isprintable():
                out.append(char)
                marks = 0
            continue
        kind = category(char)
        if kind in ("Cc", "Cf"):
            continue
        if kind in ("Mn", "Me"):
            marks += 1
            if marks > _MARKS:
                continue
        else:
            marks = 0
        if kind[0] == "Z":
            char = " "
        elif kind[0] == "C":
            char = "?"
        out.append(char)
    return "".join(out)
