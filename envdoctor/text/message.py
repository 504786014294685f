"""A sentence for people as an id and values, not as a text: only the page knows its language."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Message(str):
    """A sentence or clause of the catalogue. ``id`` is its English with ``{}`` for each value, ``values`` are names,
    numbers, versions, places and other messages. As a text it is the finished English sentence."""

    __slots__ = ("id", "values")
    id: str
    values: tuple[object, ...]

    def __new__(cls, id: str, *values: object) -> Message:
        message = super().__new__(cls, id.format(*values) if values else id)
        message.id, message.values = id, values
        return message

    def __str__(self) -> Message:
        return self

    def __getnewargs__(self) -> Any:
        return (self.id, *self.values)


def quoted(text: str) -> Message:
    """Return what somebody else said: it is shown as it is, in every language."""
    return Message("{}", text)


def joined(texts: Iterable[str], glue: str = "; ") -> Message:
    """Return the texts side by side."""
    first, *others = list(texts) or [Message("")]
    message = first if isinstance(first, Message) else quoted(first)
    for text in others:
        message = Message(f"{{}}{glue}{{}}", message, text)
    return message


def said_by(error: Exception) -> Message:
    """Return what an exception of ours says."""
    text = error.args[0] if error.args else ""
    return text if isinstance(text, Message) else quoted(str(error))


def packed(text: str) -> Any:
    """Return the text as JSON holds it; a message keeps its id and values."""
    return (
        [text.id, *(packed(value) if isinstance(value, str) else value for value in text.values)]
        if isinstance(text, Message)
        else text
    )


def unpacked(found: Any) -> Message:
    """Return the message that was packed so. Raises what a damaged one raises."""
    if isinstance(found, list):
        id, *values = found
        return Message(id, *(unpacked(value) if isinstance(value, list) else value for value in values))
    return quoted(found)
