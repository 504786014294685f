"""Releases that have something, out of a list in order: as specifiers people read, and those in between."""

from __future__ import annotations

from collections.abc import Sequence


def spell_spans(versions: Sequence[str], has: Sequence[bool]) -> str | None:
    """``>=4.46,<5.0`` for the versions that have it, several spans joined by `` or ``; empty when all have it, None
    when none has. An upper bound is the next version of the list, or the first of its minor where the list has none
    of that minor before it: of those between it is not known whether they have it. There is none above the last."""
    spans: list[str] = []
    for span in _spans(has):
        low = [f">={_short(versions[span.start])}"] if span.start else []
        high = [f"<{_bound(versions[span.stop - 1], versions[span.stop])}"] if span.stop < len(versions) else []
        spans.append(",".join(low + high))
    return " or ".join(spans) if spans else None


def nearest_span(has: Sequence[bool], at: int) -> range:
    """The places of the unbroken row of true ones that is nearest to a place, the later of two that are equally near;
    empty when none is true."""
    return min(reversed(_spans(has)), key=lambda span: max(span.start - at, at - span[-1], 0), default=range(0))


def _spans(has: Sequence[bool]) -> list[range]:
    """The places of each unbroken row of true ones."""
    spans: list[range] = []
    for place, holds in enumerate(has):
        if holds and spans and spans[-1].stop == place:
            spans[-1] = range(spans[-1].start, place + 1)
        elif holds:
            spans.append(range(place, place + 1))
    return spans


def _bound(last: str, following: str) -> str:
    """``4.51`` between 4.50.3 and 4.51.3; 4.51.3 between 4.51.0 and that."""
    minor = following.split(".")[:2]
    return ".".join(minor) if last.split(".")[:2] != minor and minor[-1].isdigit() else _short(following)


def _short(version: str) -> str:
    """``4.51`` for 4.51.0, as people write bounds."""
    while version.count(".") > 1 and version.endswith(".0"):
        version = version[:-2]
    return version
