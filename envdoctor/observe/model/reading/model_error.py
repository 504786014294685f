"""The one error of this room: ``--model`` names nothing that can be read as a model."""

from __future__ import annotations

from envdoctor.observe.errors import ObservationError

__all__ = ["ModelError", "printable"]


class ModelError(ObservationError):
    """A sentence for the user: what was given or read, what is wrong with it, and what to do.

    Names and paths in it come from outside: characters that are not printable are written as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message, 1000))


def printable(text: str, limit: int = 200) -> str:
    """The text with control, bidirectional and unpaired surrogate characters as escapes; at most ``limit`` of it."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
