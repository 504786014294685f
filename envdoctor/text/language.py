"""What a report says, in English or Chinese: the code writes English, and ``zh.json`` has the Chinese of each template.

Two kinds of templates: those of the interface, which a renderer fills itself (``"{n} more rule(s): {help}"``), and
sentences that were finished long before anybody knew the language (``"{} cannot be read: {}"``: the reason why a fact
is unknown, where it comes from), which are recognised again.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

_HAN_GAP = "(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"  # compiled when it is needed: that takes a millisecond
#: How deep a sentence may hold other sentences, and how many may stand side by side.
_DEPTH, _MOST = 4, 4
#: Between sentences that stand side by side, with what stands there in Chinese.
_JOINTS = (("; ", "；"), (": ", "："), (", ", "，"))


def say(lang: str, template: str, n: int | None = None, /, **values: object) -> str:
    """A phrase of the interface with its values put in as they are. ``n`` fills ``{n}`` and decides about ``(s)``.

    Raises ``KeyError`` for a phrase without Chinese; a test holds that there is none.
    """
    if lang == "zh":
        template = _catalogue().interface[template]
    if n is not None:
        values["n"] = n
        template = template.replace("(s)", "" if n == 1 else "s")
    text = template.format(**values) if values else template
    return _without_gaps(text) if lang == "zh" else text


def sentence(lang: str, text: str) -> str:
    """A finished English sentence in the language; unchanged where no template is known for it."""
    return _without_gaps(_translated(text)) if lang == "zh" and text else text


class _Catalogue(NamedTuple):
    """``fixed`` are the sentences without placeholders; the others are in pieces, those that say most first."""

    interface: Mapping[str, str]
    fixed: Mapping[str, str]
    patterns: tuple[tuple[tuple[str, ...], str], ...]


@lru_cache(maxsize=1)
def _catalogue() -> _Catalogue:
    with open(os.path.join(os.path.dirname(__file__), "zh.json"), encoding="utf-8") as file:
        said = json.load(file)
    sentences: Mapping[str, str] = said["sentences"]
    patterns = [(tuple(english.split("{}")), chinese) for english, chinese in sentences.items() if "{}" in english]
    patterns.sort(key=lambda pattern: -sum(map(len, pattern[0])))
    return _Catalogue(said["interface"], sentences, tuple(patterns))


@lru_cache(maxsize=1024)
def _translated(text: str, depth: int = 0) -> str:
    catalogue = _catalogue()
    fixed = catalogue.fixed.get(text)
    if fixed is not None or depth > _DEPTH:
        return fixed or text
    # What a template puts in may be a sentence of its own, but not the rest of one sentence and all of the next.
    several = "; " in text
    return (
        _by_template(
            text, [pattern for pattern in catalogue.patterns if several <= ("; " in "".join(pattern[0]))], depth
        )
        or (_by_joint(text, _JOINTS[0], depth) if several else None)
        or (_by_template(text, catalogue.patterns, depth) if several else None)
        or next(filter(None, (_by_joint(text, joint, depth) for joint in _JOINTS[1:])), text)
    )


def _by_template(text: str, patterns: Iterable[tuple[tuple[str, ...], str]], depth: int) -> str | None:
    for pieces, chinese in patterns:
        found = _between(text, pieces)
        if found is not None:
            return chinese.format(*(_translated(part, depth + 1) for part in found))
    return None


def _by_joint(text: str, joint: tuple[str, str], depth: int) -> str | None:
    parts = text.split(joint[0])
    said = [_translated(part, depth + 1) for part in parts] if 1 < len(parts) <= _MOST else parts
    return joint[1].join(said) if said != parts else None


def _between(text: str, pieces: tuple[str, ...]) -> list[str] | None:
    """What stands between the pieces of a template; None when the text is not made by it. Only the last may be empty
    ("3 file{}")."""
    first, *middle, last = pieces
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return None
    found, place, end = [], len(first), len(text) - len(last)
    for piece in middle:
        following = text.find(piece, place + 1, end)
        if following < 0:
            return None
        found.append(text[place:following])
        place = following + len(piece)
    return [*found, text[place:end]] if place < end or (first and place == end) else None


def _without_gaps(text: str) -> str:
    """Blanks set off Latin words in Chinese, and have no place between two Chinese ones."""
    return re.sub(_HAN_GAP, "", text)
