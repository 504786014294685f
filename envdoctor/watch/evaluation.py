"""The losses of an evaluation, batch by batch, which the Trainer's log shows as one number that may hide them."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from envdoctor.watch.flags import is_sharded
from envdoctor.watch.losses import bytes_of, describe, loss_of, shape_of
from envdoctor.watch.telling import Teller

#: Batches whose losses wait on the device to be read together, and the bytes that they may hold.
_WAITING = 16
_BYTES = 64 << 20


class Evaluation:
    """One evaluation after the other. On the CPU losses are read at once, on a device some batches together.

    ``shape`` is the last batch's (samples, tokens)."""

    def __init__(self, teller: Teller, *, rerun: bool) -> None:
        self.shape: tuple[int, int] | None = None
        self._teller = teller
        self._rerun = rerun
        self._begun: Mapping[str, Any] | None = None
        self._waiting: deque[tuple[int, Mapping[str, Any], Any]] = deque(maxlen=_WAITING)
        self._count = 0

    def before(self, batch: Mapping[str, Any]) -> None:
        """The model is called with a batch."""
        self._begun = batch

    def after(self, output: Any) -> None:
        """It answered; a call without a loss (generation) is no batch of an evaluation."""
        loss, batch, self._begun = loss_of(output), self._begun, None
        if loss is None or batch is None:
            return
        self.shape = shape_of(batch)
        self._waiting.append((self._count, batch, loss.detach()))
        self._count += 1

    def look(self, args: Any, step: int, model: Any, *, end: bool) -> None:
        """Tell the first batch whose loss is not finite, by its number from 0. At the ``end`` all that wait are read,
        and the next batch is the first of another evaluation."""
        waiting = list(self._waiting)
        due = end or (waiting and waiting[-1][2].device.type == "cpu") or len(waiting) >= _WAITING
        if not due and sum(bytes_of(batch) for _, batch, _ in waiting) < _BYTES:
            return
        self._waiting.clear()
        self._count = 0 if end else self._count
        losses = torch.stack([loss.float() for _, _, loss in waiting]).tolist() if waiting else []
        bad = [entry for entry, loss in zip(waiting, losses, strict=True) if not math.isfinite(loss)]
        if not bad or "nan-eval-loss" in self._teller.seen:
            return
        number, batch, _ = bad[0]
        facts = {"watch.event": "nan-eval-loss", "watch.step": step, "watch.batch": number, **describe(batch)}
        found: dict[str, Any] = {}
        if self._rerun and facts.get("watch.label_tokens") != 0:
            # In the evaluation's own mode and without gradients.
            with self._teller.examining() as examine:
                found = examine(model, batch, again=not is_sharded(model), backward=False)
        details = {"problem": found.pop("problem", None)}
        self._teller.record(args, {**facts, **found}, details)
