"""Memory that grows from visit to visit of one batch shape: a leak; growth with a longer batch is only padding."""

from itertools import pairwise
from typing import Any

#: Visits of one shape that must each hold more than the last: the first ones still fill caches and optimizer state.
VISITS = 4
#: Bytes between the first and the last of them below which nothing is said (allocator blocks are 2 MiB).
LEAST = 16 << 20
#: The same for what the allocator holds and tensors do not: it rises for a while as shapes come, and rightly so.
RESERVED_VISITS = 8
RESERVED_LEAST = 1 << 30
#: Shapes that are kept; older ones are forgotten first.
SHAPES = 512


class Growth:
    """Bytes at the end of steps, by the shape of their batch; see the constants above for what is growth."""

    def __init__(self, visits: int = VISITS, least: int = LEAST) -> None:
        self._most = visits
        self._least = least
        self._visits: dict[tuple[int, int], list[int]] = {}

    def add(self, shape: tuple[int, int], held: int) -> dict[str, Any] | None:
        """Note one step; the facts of growth (``watch.grown_gib`` over ``watch.visits``) when the last visits of the
        shape (samples, tokens) grew each time.

        The first visit of a shape is left out: it may fill caches of its own.
        """
        seen = self._visits.pop(shape, None)
        self._visits[shape] = visits = [] if seen is None else [*seen, held][-self._most :]
        if len(self._visits) > SHAPES:
            del self._visits[next(iter(self._visits))]
        if len(visits) < self._most or any(later <= earlier for earlier, later in pairwise(visits)):
            return None
        grown = visits[-1] - visits[0]
        if grown < self._least:
            return None
        batch = {"watch.batch_size": shape[0], "watch.length": shape[1]}
        return {**batch, "watch.grown_gib": round(grown / (1 << 30), 3), "watch.visits": len(visits)}


class Memory:
    """What tensors hold, and what the allocator holds for them, over the steps and the batches of evaluations."""

    def __init__(self) -> None:
        self._allocated = Growth()
        self._idle = Growth(RESERVED_VISITS, RESERVED_LEAST)
        self._evaluation = Growth()
        self._largest = 0

    def step(self, shape: tuple[int, int], allocated: int, reserved: int) -> tuple[str, dict[str, Any]] | None:
        """After a step on a batch of this shape: the event (a word of the fact ``watch.event``) and its facts."""
        tokens = shape[0] * shape[1]
        if tokens > self._largest:  # the largest batch so far may rightly take more from the driver
            self._largest, self._idle = tokens, Growth(RESERVED_VISITS, RESERVED_LEAST)
        seen, idle = self._allocated.add(shape, allocated), self._idle.add(shape, reserved - allocated)
        if seen is not None:
            return "memory-grows", seen
        return ("reserved-memory-grows", idle) if idle is not None else None

    def evaluated(self, shape: tuple[int, int], allocated: int) -> tuple[str, dict[str, Any]] | None:
        """After a batch of an evaluation: the same."""
        seen = self._evaluation.add(shape, allocated)
        return ("evaluation-memory-grows", seen) if seen is not None else None

    def evaluation_ends(self) -> None:
        """What the Trainer gathered is let go."""
        self._evaluation = Growth()
