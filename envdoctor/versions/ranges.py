"""Sets of releases as people write them: ``>=4.36,<4.48``, or several such ranges with ``or`` (in tables ``|``)."""

from __future__ import annotations

from collections.abc import Iterable

#: Releases from the first one to below the second one; None: without an end.
Range = tuple[tuple[int, ...], tuple[int, ...] | None]

EVERY: tuple[Range, ...] = (((), None),)


def parse_ranges(text: str) -> tuple[Range, ...]:
    """The ranges of a text; an empty text is every release. Raises ValueError for anything but ``>=`` and ``<``."""
    found: list[Range] = []
    for part in text.replace(" or ", "|").split("|"):
        low: tuple[int, ...] = ()
        high: tuple[int, ...] | None = None
        for clause in part.split(","):
            clause = clause.strip()
            if clause.startswith(">="):
                low = plain_release(clause[2:])
            elif clause.startswith("<") and not clause.startswith("<="):
                high = plain_release(clause[1:])
            elif clause:
                raise ValueError(f"{clause!r} is neither >= nor < a release")
        found.append((low, high))
    return tuple(found)


def plain_release(version: str) -> tuple[int, ...]:
    """``4.36.2`` as numbers, without trailing zeros, so that 5.0 is 5. Raises ValueError for another text."""
    parts = [int(part) for part in version.strip().split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def intersect(one: Iterable[Range], other: Iterable[Range]) -> tuple[Range, ...]:
    """The releases that are in both."""
    others = list(other)
    found: list[Range] = []
    for low, high in one:
        for other_low, other_high in others:
            start = max(low, other_low)
            ends = [end for end in (high, other_high) if end is not None]
            stop = min(ends, default=None)
            if stop is None or start < stop:
                found.append((start, stop))
    return tuple(sorted(found, key=lambda item: item[0]))


def contains(ranges: Iterable[Range], release: tuple[int, ...]) -> bool:
    """Whether the release, as :func:`plain_release` gives it, is in one of the ranges."""
    return any(low <= release and (high is None or release < high) for low, high in ranges)


def spell_ranges(ranges: Iterable[Range]) -> str:
    """``>=4.36,<4.48 or >=5.1``; ``any`` for every release and ``none`` for no release."""
    texts = []
    for low, high in ranges:
        clauses = [f">={_dotted(low)}"] if low else []
        clauses += [f"<{_dotted(high)}"] if high is not None else []
        texts.append(",".join(clauses) or "any")
    return " or ".join(texts) or "none"


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release if len(release) > 1 else (*release, 0)))
