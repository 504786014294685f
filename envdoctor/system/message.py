"""A sentence for people as an id and values, not as a text: only the page knows its language, and ``zh.json`` has its
Chinese. And a guess at a mistyped word."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

Value = TypeVar("Value")


class Message(str):
    """A sentence or clause of the catalogue. ``id`` is its English with ``{}`` for each value, ``values`` are names,
    numbers, versions, places and other messages. As a text it is the finished English sentence."""

    __slots__ = ("id", "values")
    id: str
    values: tuple[object, ...]

    def __new__(cls, id: str, *values: object) -> "Message":
        values = tuple(said_by(value) if isinstance(value, Exception) else value for value in values)
        message = super().__new__(cls, id.format(*values) if values else id)
        message.id, message.values = id, values
        return message

    def __str__(self) -> "Message":
        return self

    def __getnewargs__(self) -> Any:
        return (self.id, *self.values)


def mapped(value: Value, change: Callable[[str], str]) -> Value:
    """Return the text changed by ``change``; a message with its texts changed so; anything else as it is."""
    new: Any = value
    if isinstance(value, Message):
        new = Message(value.id, *(mapped(part, change) for part in value.values))
    elif isinstance(value, str):
        new = change(value)
    return new  # type: ignore[no-any-return]


#: The empty message.
NOTHING = Message("")


def quoted(text: str) -> Message:
    """Return a quotation as a message: it is shown as it is, in every language."""
    return Message("{}", text)


def joined(texts: Iterable[str], glue: str = "; ") -> Message:
    """Return the texts side by side."""
    texts = list(texts)
    return Message(glue.join(["{}"] * len(texts)), *texts)


class MessageError(Exception):
    """An error with one sentence that says what is wrong, where, and what to do: a message, or its id and values."""

    def __init__(self, id: str, *values: object) -> None:
        self.message = id if isinstance(id, Message) else Message(id, *values)
        super().__init__(self.message)


def as_message(text: str) -> Message:
    """Return the message, or any other text as a quotation."""
    return text if isinstance(text, Message) else quoted(text)


def said_by(error: Exception) -> Message:
    """Return the message of an exception."""
    return as_message(error.args[0] if len(error.args) == 1 and isinstance(error.args[0], str) else str(error))


def packed(value: object) -> Any:
    """Return the value as JSON holds it; a message keeps its id and its values."""
    if isinstance(value, Message):
        return [value.id, *map(packed, value.values)]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def unpacked(data: Any, deepest: int = 20) -> Any:
    """Return a packed value, with at most ``deepest`` messages within each other. Raises any error for damaged data."""
    if not isinstance(data, list):
        return data
    id, *values = (unpacked(part, deepest - 1) for part in data)
    if not deepest or "{" in id.replace("{}", "") or "}" in id.replace("{}", ""):
        raise ValueError("a message has no other placeholders than {}, and few messages in it")
    return Message(id, *values)


def listed(items: Iterable[str], most: int = 4) -> Message:
    """Join names to ``a, b, c, d and 3 more``."""
    names = list(items)
    text = joined(names[:most], ", ")
    return text if len(names) <= most else Message("{} and {} more", text, len(names) - most)


_LONGEST = 100


def alike(word: str, words: Iterable[str], spellings: Mapping[str, str] = {}, *, least: float = 0.6) -> str | None:
    """Return the word of ``words`` that is spelled most alike, None if none is as alike as ``least``, a share;
    ``spellings`` maps other spellings, in lower case, to the words that they stand for."""
    from difflib import get_close_matches

    spelled = {**spellings, **{name.lower(): name for name in words}}
    near = get_close_matches(word[:_LONGEST].lower(), spelled, n=1, cutoff=least)
    return spelled[near[0]] if near else None


def did_you_mean(word: str, words: Iterable[str], otherwise: Message, spellings: Mapping[str, str] = {}) -> Message:
    """Return ``did you mean X?``, or ``otherwise`` when no word is alike."""
    near = alike(word, words, spellings)
    return otherwise if near is None else Message("did you mean {}?", near)


_HAN_GAP = "(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"  # compiled when it is needed: that takes a millisecond
#: The glue between messages side by side.
_JOINTS = {"; ": "；", ": ": "：", ", ": "，"}


def say(lang: str, template: str, n: int | None = None, /, **values: object) -> str:
    """Fill the named values into a phrase of the interface, as they are. ``n`` fills ``{n}`` and decides about ``(s)``.

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
