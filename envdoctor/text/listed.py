"""Lists in a sentence: the first of them, and how many more there are. One way to say so everywhere."""

from collections.abc import Iterable

from envdoctor.text.message import Message, joined


def listed(items: Iterable[str], most: int = 4) -> Message:
    """``a, b, c, d and 3 more``."""
    known = list(items)
    text = joined(known[:most], ", ")
    return text if len(known) <= most else Message("{} and {} more", text, len(known) - most)
