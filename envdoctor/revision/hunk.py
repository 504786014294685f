"""Changed lines for people to see: a unified diff of two texts, bounded and without hidden characters."""

import re
from difflib import unified_diff

from envdoctor.revision.short_text import visible

#: Lines of one diff, characters of a line, lines of each text that are compared, equal lines around a change.
_MOST, _WIDEST, _COMPARED, _AROUND = 400, 240, 2_000, 2
#: Templates are often one line: they are shown statement by statement.
_STATEMENTS = re.compile(r"(?<=%\})(?=.)|\r?\n")


def template_hunk(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a unified diff of two templates, each beginning with ``+``, ``-``, a blank or ``@``.

    A blank at the end of a changed line, which becomes a token, is shown as ``\u00b7``.
    """
    old, new = (_STATEMENTS.split(text, _COMPARED)[:_COMPARED] for text in (before, after))
    lines = list(unified_diff(old, new, n=_AROUND, lineterm=""))[2 : _MOST + 2]
    return tuple(line[0] + _shown(line[1:], line[0] in "+-")[: _WIDEST - 1] for line in lines)


def _shown(line: str, is_changed: bool) -> str:
    text = visible(line.expandtabs(4))
    bare = text.rstrip(" ")
    return bare + "\u00b7" * (len(text) - len(bare)) if is_changed else bare
