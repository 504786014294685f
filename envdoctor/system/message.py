"""A sentence for people as an id and values, not as a text: only the page knows its language. And what a person who
mistyped a word may have meant."""

from collections.abc import Callable, Iterable, Mapping
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
    """Return the text changed so; of a message, the texts that are put in. Anything else is as it was."""
    new: Any = value
    if isinstance(value, Message):
        new = Message(value.id, *(mapped(part, change) for part in value.values))
    elif isinstance(value, str):
        new = change(value)
    return new  # type: ignore[no-any-return]


#: Where there is nothing to say.
NOTHING = Message("")


def quoted(text: str) -> Message:
    """Return what somebody else said: it is shown as it is, in every language."""
    return Message("{}", text)


def joined(texts: Iterable[str], glue: str = "; ") -> Message:
    """Return the texts side by side."""
    texts = list(texts)
    return Message(glue.join(["{}"] * len(texts)), *texts)


class MessageError(Exception):
    """An error that says in one sentence what is wrong, where, and what to do: a message, or its id and values."""

    def __init__(self, id: str, *values: object) -> None:
        self.message = id if isinstance(id, Message) else Message(id, *values)
        super().__init__(self.message)


def as_message(text: str) -> Message:
    """Return the message, or the words of somebody else as one."""
    return text if isinstance(text, Message) else quoted(text)


def said_by(error: Exception) -> Message:
    """Return what an exception says."""
    return as_message(error.args[0] if len(error.args) == 1 and isinstance(error.args[0], str) else str(error))


def packed(value: object) -> Any:
    """Return the value as JSON holds it; a message keeps its id and its values."""
    if isinstance(value, Message):
        return [value.id, *map(packed, value.values)]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def unpacked(found: Any, deepest: int = 20) -> Any:
    """Return what was packed so, at most ``deepest`` messages within each other. Raises what a damaged one raises."""
    if not isinstance(found, list):
        return found
    id, *values = (unpacked(part, deepest - 1) for part in found)
    if not deepest or "{" in id.replace("{}", "") or "}" in id.replace("{}", ""):
        raise ValueError("a message has no other placeholders than {}, and few messages in it")
    return Message(id, *values)


def listed(items: Iterable[str], most: int = 4) -> Message:
    """Join names to ``a, b, c, d and 3 more``."""
    known = list(items)
    text = joined(known[:most], ", ")
    return text if len(known) <= most else Message("{} and {} more", text, len(known) - most)


_LONGEST = 100


def alike(word: str, known: Iterable[str], spellings: Mapping[str, str] = {}) -> str | None:
    """Return the known word that is spelled most alike, None when none is; ``spellings`` are other words, in lower
    case, and those that they stand for."""
    from difflib import get_close_matches

    spelled = {**spellings, **{name.lower(): name for name in known}}
    near = get_close_matches(word[:_LONGEST].lower(), spelled, n=1, cutoff=0.6)
    return spelled[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str], otherwise: Message, spellings: Mapping[str, str] = {}) -> Message:
    """Return ``did you mean X?``, or what to say when no word is alike."""
    near = alike(word, known, spellings)
    return otherwise if near is None else Message("did you mean {}?", near)
