"""What a person who mistyped a word may have meant: one way to say so everywhere."""

from collections.abc import Iterable, Mapping

from envdoctor.system.message import Message

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
