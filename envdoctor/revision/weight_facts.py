"""The summary facts of a comparison of weights, unknown wherever not every header was read."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.facts.values import Unknown
from envdoctor.revision.weight_census import Census

__all__ = ["counted", "newest_need", "not_counted"]

_LEFT_ALONE = Unknown("not every header was read: files that did not change are left alone")
#: What the table safetensors-dtypes starts with: a need for it is no news.
_OLDEST = (0, 4, 0)


def not_counted() -> tuple[tuple[str, object], ...]:
    """The facts that equal files leave open."""
    reason = Unknown("the weight files did not change, so their headers were not read")
    keys = ("revision.parameters_old", "revision.parameters_new", "revision.safetensors_needs")
    return tuple((key, reason) for key in keys)


def counted(census: Sequence[Census | None]) -> tuple[tuple[str, object], ...]:
    """The parameters of the main set on either side."""
    keys = ("revision.parameters_old", "revision.parameters_new")
    counts = [found.total.parameters if found else _LEFT_ALONE for found in census]
    return tuple(zip(keys, counts, strict=True))


def newest_need(needs: Sequence[str | None], read_all: bool) -> object:
    """The newest release that is needed; with headers left out a lower bound, given when it asks for anything new."""
    known = [need for need in needs if need is not None]
    if not known:
        return Unknown("no safetensors header of the new revision was read")
    newest = max(known, key=_release)
    if not read_all and _release(newest) <= _OLDEST:
        return _LEFT_ALONE
    return newest


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
