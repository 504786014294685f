"""Lists in a sentence: the first of them, and how many more there are. One way to say so everywhere."""

from collections.abc import Iterable

from envdoctor.text.message import Message


def listed(items: Iterable[str], most: int = 4) -> str:
    """``a, b, c, d and 3 more``."""
    known = list(items)
    text = ", ".join(known[:most])
    return text if len(known) <= most else Message("{} and {} more", text, len(known) - most)
