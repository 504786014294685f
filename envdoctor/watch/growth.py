"""Memory that grows from visit to visit of one batch shape: a leak; growth with a longer batch is only padding."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

__all__ = ["Growth", "GrowthSeen"]

#: Visits of one shape that must each hold more than the last: the first ones still fill caches and optimizer state.
VISITS = 4
#: Bytes between the first and the last of them below which nothing is said (allocator blocks are 2 MiB).
LEAST = 16 << 20
#: Shapes that are kept; older ones are forgotten first.
SHAPES = 512


class GrowthSeen(NamedTuple):
    """``grown`` bytes more at the last of ``visits`` batches of ``shape`` (samples, tokens)."""

    shape: tuple[int, int]
    grown: int
    visits: int


class Growth:
    """Allocated bytes at the end of steps, by the shape of their batch."""

    def __init__(self) -> None:
        self._visits: dict[tuple[int, int], list[int]] = {}

    def add(self, shape: tuple[int, int], allocated: int) -> GrowthSeen | None:
        """Note one step; what was seen when the last :data:`VISITS` visits of the shape grew each time.

        The first visit of a shape is left out: it may fill caches of its own.
        """
        seen = self._visits.pop(shape, None)
        self._visits[shape] = visits = [] if seen is None else [*seen, allocated][-VISITS:]
        if len(self._visits) > SHAPES:
            del self._visits[next(iter(self._visits))]
        if len(visits) < VISITS or any(later <= earlier for earlier, later in pairwise(visits)):
            return None
        grown = visits[-1] - visits[0]
        return GrowthSeen(shape, grown, len(visits)) if grown >= LEAST else None
