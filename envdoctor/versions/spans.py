"""Releases that have something, out of a list in order: as specifiers people read, and those in between."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["spell_spans"]


def spell_spans(versions: Sequence[str], has: Sequence[bool]) -> str | None:
    """``>=4.46,<5.0`` for the versions that have it, several spans joined by `` or ``; empty when all have it, None
    when none has. A bound is the next version of the list, or the minor release that it belongs to where the list has
    no other of that; there is none above the last."""
    spans: list[str] = []
    start: int | None = None
    for place in range(len(versions) + 1):
        holds = place < len(versions) and has[place]
        if holds and start is None:
            start = place
        if not holds and start is not None:
            low = [f">={_short(versions[start])}"] if start else []
            high = [f"<{_short(_next(versions[place - 1], versions[place]))}"] if place < len(versions) else []
            spans.append(",".join(low + high))
            start = None
    return " or ".join(spans) if spans else None


def _next(last: str, following: str) -> str:
    """``4.46`` behind 4.45.2 where 4.46.3 follows: what nobody looked into between them is not taken as alike."""
    parts = following.split(".")
    skipped = len(parts) == 3 and all(map(str.isdigit, parts)) and last.split(".")[:2] != parts[:2]
    return ".".join(parts[:2]) if skipped else following


def _short(version: str) -> str:
    """``4.51`` for 4.51.0, as people write bounds."""
    while version.count(".") > 1 and version.endswith(".0"):
        version = version[:-2]
    return version
