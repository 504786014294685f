"""Recognise faults in the Trainer's log, one entry at a time, and leaks: memory that grows from visit to visit of one
batch shape; growth with a longer batch is only padding. Pure: no torch."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

#: By event (a word of the fact ``watch.event``): how many visits of one shape must each hold more than the one before,
#: because the first ones still fill caches and optimizer state; and the least growth in bytes from the first to the
#: last of them (allocator blocks are 2 MiB). Memory that the allocator holds beyond the tensors rightly rises at first.
_LIMITS = {
    "memory-grows": (4, 16 << 20),
    "reserved-memory-grows": (8, 1 << 30),
    "evaluation-memory-grows": (4, 16 << 20),
}
#: Shapes that are remembered; older ones are forgotten first.
SHAPES = 512


class Memory:
    """Bytes at the end of steps and of the batches of evaluations, by the shape of the batch (samples, tokens)."""

    def __init__(self) -> None:
        self._visits: dict[str, dict[tuple[int, int], list[int]]] = {event: {} for event in _LIMITS}
        self._largest = 0

    def step(self, shape: tuple[int, int], allocated: int, reserved: int) -> tuple[str, dict[str, Any]] | None:
        """Note the bytes of tensors after a step, and those of the allocator; see :meth:`add`."""
        tokens = shape[0] * shape[1]
        if tokens > self._largest:  # the largest batch so far may rightly take more from the driver
            self._largest = tokens
            self.forget("reserved-memory-grows")
        growth = self.add("memory-grows", shape, allocated)
        idle = self.add("reserved-memory-grows", shape, reserved - allocated)
        return growth or idle

    def add(self, event: str, shape: tuple[int, int], held: int) -> tuple[str, dict[str, Any]] | None:
        """Note bytes. Return the event and its facts (``watch.grown_gib`` over ``watch.visits``) if they grew at each
        of its last visits.

        The first visit of a shape is left out: it may fill caches of its own.
        """
        most, least = _LIMITS[event]
        shapes = self._visits[event]
        history = shapes.pop(shape, None)
        shapes[shape] = visits = [] if history is None else [*history, held][-most:]
        if len(shapes) > SHAPES:
            del shapes[next(iter(shapes))]
        if len(visits) < most or any(later <= earlier for earlier, later in pairwise(visits)):
            return None
        grown = visits[-1] - visits[0]
        if grown < least:
            return None
        batch = {"watch.batch_size": shape[0], "watch.length": shape[1]}
        return event, {**batch, "watch.grown_gib": round(grown / (1 << 30), 3), "watch.visits": len(visits)}

    def forget(self, event: str) -> None:
        """Begin again, for instance when the Trainer frees an evaluation's outputs."""
        self._visits[event].clear()


def event_of_log(entry: Mapping[str, object]) -> str | None:
    """Return the event (a word of the fact ``watch.event``) that one entry of ``Trainer.state.log_history`` shows.

    With ``logging_nan_inf_filter``, the Trainer's default, a loss that is not finite is logged as 0.0: only the
    gradient norm shows it. Evaluation is filtered since transformers 5.23.0 (while one of its losses is finite), not
    in older releases. Seen alike with transformers 4.48.0 and 5.17.0: weights poisoned with NaN log (0.0, nan),
    a batch whose labels are all ignored logs (0.0, 0.0).
    """
    loss, norm, evaluated = (_number(entry.get(key)) for key in ("loss", "grad_norm", "eval_loss"))
    if evaluated is not None and not math.isfinite(evaluated):
        return "nan-eval-loss"
    if norm is not None and math.isnan(norm):
        return "zero-loss-nan-norm" if loss == 0.0 else "nan-gradient"
    if norm is not None and math.isinf(norm):
        return "infinite-norm"
    if loss is not None and not math.isfinite(loss):
        return "nan-loss"
    if loss == 0.0 and norm == 0.0:
        return "zero-loss-zero-norm"
    return None


def _number(value: object) -> float | None:
    """Return a logged value as a number; some releases log one-element tensors, others texts."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
