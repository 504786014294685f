"""Short texts for people: JSON values, two long texts around the place where they differ, and the lines that do."""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import islice

#: Characters of a before or after text.
LONGEST = 90
_BEFORE, _AFTER = 34, 40
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_OTHER_VALUE = re.compile(r"(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)\Z")
#: Lines of one diff, characters of a line, lines of each text that are compared, equal lines around a change.
MOST_LINES, WIDEST, _COMPARED, _AROUND = 400, 240, 2_000, 2
#: Templates are often one line: they are shown statement by statement.
_STATEMENTS = re.compile(r"(?<=%\})(?=.)|\r?\n")


def short(value: object) -> str:
    """Return a JSON value in at most :data:`LONGEST` characters; long lists keep their ends and say how many items."""
    match value:
        case str():
            # Blanks at an end, and a text that looks like a number, are seen in quotes alone.
            plain = value and value == value.strip() and not _OTHER_VALUE.match(value)
            text = value if plain else json.dumps(value, ensure_ascii=False)
        case list() if len(value) > 6:
            first, last = json.dumps(value[:3], ensure_ascii=False)[:-1], json.dumps(value[-1], ensure_ascii=False)
            text = f"{first}, ..., {last}] ({len(value)} items)"
        case dict() if len(value) > 4:
            text = f"{{{', '.join(list(map(str, value))[:3])}, ...}} ({len(value)} keys)"
        case _:
            text = json.dumps(value, ensure_ascii=False)
    return _cut(visible(text))


def _cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def visible(text: str) -> str:
    """Return the text on one line, with escapes for breaks and hidden characters."""
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def around(before: str, after: str) -> tuple[str, str]:
    """Return both texts in quotes, made visible and cut to the surroundings of the first difference."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    start = at - _BEFORE if at - _BEFORE >= 6 else 0  # less is not worth an ellipsis
    return _window(before, start, at + _AFTER), _window(after, start, at + _AFTER)


def _window(text: str, start: int, stop: int) -> str:
    stop = len(text) if len(text) - stop < 6 else stop
    # Escapes make the text longer; what is cut must not be the difference, which lies in the first half.
    shown = _cut(visible(text[start:stop]), 2 * LONGEST)
    return ("..." if start else "") + f'"{shown}"' + ("..." if stop < len(text) else "")


def hunk(before: Sequence[str], after: Sequence[str], *, starts: Sequence[int] = (0, 0)) -> Iterator[str]:
    """Yield the lines of a unified diff; ``starts`` are the numbers of the lines before the first ones."""
    for line in islice(unified_diff(before, after, n=_AROUND, lineterm=""), 2, MOST_LINES + 2):
        if line.startswith("@@"):
            line = re.sub(r"([-+])(\d+)", lambda at: f"{at[1]}{int(at[2]) + starts[at[1] == '+']}", line)
        yield line[0] + visible(line[1:].expandtabs(4))


def template_hunk(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a diff of two templates; a blank at the end of a changed line is shown as ``\u00b7``."""
    old, new = (_STATEMENTS.split(text, _COMPARED)[:_COMPARED] for text in (before, after))
    lines = []
    for line in hunk(old, new):
        bare = line[0] + line[1:].rstrip(" ")
        lines.append((bare + "\u00b7" * (len(line) - len(bare)) if line[0] in "+-" else bare)[:WIDEST])
    return tuple(lines)
