"""The words of a report, in English or Chinese: the code writes English, and ``zh.json`` has its Chinese.

Phrases of the page have named values (``"{n} more rule(s): {help}"``); messages come from anywhere in the house.
"""

import json
import os
import re
from functools import lru_cache

from envdoctor.system.message import Message

_HAN_GAP = "(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"  # compiled when it is needed: that takes a millisecond
#: The glue between messages side by side.
_JOINTS = {"; ": "；", ": ": "：", ", ": "，"}


def say(lang: str, template: str, n: int | None = None, /, **values: object) -> str:
    """Fill the values into a phrase of the interface, as they are. ``n`` fills ``{n}`` and decides about ``(s)``.

    Raises ``KeyError`` for a phrase without Chinese; a test makes sure that every phrase has it.
    """
    if lang == "zh":
        template = _catalogue()[template]
    if n is not None:
        values["n"] = n
        template = template.replace("(s)", "" if n == 1 else "s")
    text = template.format(**values) if values else template
    return without_gaps(text) if lang == "zh" else text


def sentence(lang: str, text: str) -> str:
    """Translate a message; return any other text, such as a name or a quotation, as it is."""
    return without_gaps(_translated(text)) if lang == "zh" and isinstance(text, Message) else text


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, str]:
    with open(os.path.join(os.path.dirname(__file__), "zh.json"), encoding="utf-8") as file:
        return dict(json.load(file))


def _translated(text: object) -> str:
    if not isinstance(text, Message):
        return text.in_language("zh") if hasattr(text, "in_language") else str(text)
    chinese = _catalogue().get(text.id)
    if chinese is None and text.id[:2] == text.id[-2:] == "{}":
        glue = text.id.strip("{}")[:2]
        chinese = text.id.replace(glue, _JOINTS.get(glue, glue)) if glue else text.id
    values = map(_translated, text.values)
    return (chinese or text.id).format(*values) if text.values else chinese or text.id


def without_gaps(text: str) -> str:
    """Remove blanks between two Chinese words; blanks beside Latin words stay."""
    return re.sub(_HAN_GAP, "", text)
