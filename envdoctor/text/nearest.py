"""What a person who mistyped a word may have meant: one way to say so everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_LONGEST = 100


def did_you_mean(word: str, known: Iterable[str], otherwise: str, spellings: Mapping[str, str] = {}) -> str:
    """``did you mean X?`` with the known word that is spelled most alike, or what to say when none is.

    ``spellings`` are other words, in lower case, and those that they stand for."""
    from difflib import get_close_matches

    spelled = {**spellings, **{name.lower(): name for name in known}}
    near = get_close_matches(word[:_LONGEST].lower(), spelled, n=1, cutoff=0.6)
    return f"did you mean {spelled[near[0]]}?" if near else otherwise
