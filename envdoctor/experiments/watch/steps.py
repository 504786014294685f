"""The optimizer steps of a run: every step leaves few numbers on the device, which are judged when they are read; the
first bad step is examined."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from envdoctor.experiments.watch.losses import StepLosses, describe
from envdoctor.experiments.watch.rerun import Gradients, examine, is_sharded, on_any, oversized_weight, processes

logger = logging.getLogger("envdoctor.watch")

_EVENTS_KEPT = 64


class Teller:
    """``events`` are dictionaries of ``watch.*`` facts, ``kinds`` their kinds, ``summary`` is the last event in
    words; ``last_finite`` are the last finite numbers of the Trainer's log. ``busy``: the model is called to find
    out why."""

    def __init__(self, folder: str | None) -> None:
        self.events: list[dict[str, Any]] = []
        self.kinds: set[str] = set()
        self.last_finite: dict[str, float] = {}
        self.summary = ""
        self.busy = False
        self._folder = folder

    def examine(self, model: Any, batch: Mapping[str, Any], **how: bool) -> dict[str, Any]:
        """Run a batch again (see :func:`~envdoctor.experiments.watch.rerun.examine`); the calls within are ours."""
        self.busy = True
        try:
            return examine(model, batch, **how)
        finally:
            self.busy = False

    def record(
        self, run: "WatchedRun", event: str, step: int, about: Mapping[str, Any], details: Mapping[str, Any] = {}
    ) -> None:
        """Judge and record the first event of each kind; no failure in here may end the run. A ``problem`` among the
        facts ``about`` it, a text about the second run, is a detail."""
        facts = {"watch.event": event, "watch.step": step, **about}
        problem = facts.pop("problem", None)
        if event in self.kinds or len(self.events) >= _EVENTS_KEPT:
            return
        self.kinds.add(event)
        self.events.append(facts)
        self.summary = f"{event} in step {step}"
        try:
            from envdoctor.experiments.watch.flight import tell

            folder = Path(self._folder or getattr(run.args, "output_dir", None) or ".")
            whose = {"rank": int(torch.distributed.get_rank()), "processes": processes()} if processes() > 1 else {}
            context = {**whose, **details, "problem": problem, "last_finite": dict(self.last_finite)}
            self.summary = tell(facts, context, run.args, folder, logger)
        except Exception as error:
            kind = type(error).__name__
            logger.warning("envdoctor.experiments.watch: the flight record could not be written: %s", kind)


#: Steps in a row whose gradients are not finite beside a finite loss, before the loss scale is no longer an excuse: the
#: scaler begins at 2**16 and halves it each time.
_OVERFLOWS = 20
#: Steps in a row without a label that counts, before the whole run is taken for one without labels.
_UNLABELLED = 20
#: Steps in a row that are far worse than guessing after one that was not, before that is more than a spike.
_DIVERGED = 10
#: Steps in a row whose gradients are all 0, or whose loss is the same to the last bit, before that is more than chance;
#: a loss below the least is rounded to few values.
_DEAD, _LEAST = 5, 1e-3
#: Every so many steps a sample of half-precision weights is compared with itself.
_EVERY, _SAMPLE = 100, 1024
_HALF = (torch.bfloat16, torch.float16)


class WatchedRun(NamedTuple):
    """The arguments of every callback of the Trainer, or their substitutes in a plain loop."""

    args: Any
    state: Any
    control: Any
    model: Any = None
    optimizer: Any = None


class _Step(NamedTuple):
    """One optimizer step: its number from 1, its micro-batches and their losses, the numbers of this process (see
    :meth:`Gradients.look`); ``warms``: the learning rate is 0 or rises; ``applied``: the weights have moved."""

    run: WatchedRun
    number: int
    kept: StepLosses
    own: Any
    rate: float | None
    warms: bool
    applied: bool


class Steps:
    """``kept`` is the present step, ``shape`` that of the last step's batch. ``tripped``: the run is being stopped."""

    def __init__(self, teller: Teller, *, stop: bool, rerun: bool) -> None:
        self.kept = StepLosses()
        self.shape: tuple[int, int] | None = None
        self.tripped = False
        self._teller = teller
        self._stop = stop
        self._rerun = rerun
        self._gradients = Gradients()
        self._late: tuple[tuple[Any, Any], _Step] | None = None
        self._overflows = self._unlabelled = self._worse = self._zero = self._same = 0
        self._was_calm = False
        self._loss = 0.0
        self._rate: float | None = None
        self._zeroed: _Step | None = None
        self._noted: tuple[str, Any, Any, Any] | None = None

    def look(self, run: WatchedRun, *, applied: bool) -> None:
        """Judge the present step, or the step before if numbers are read late; ``applied``: the weights have moved."""
        losses, self.kept = self.kept, StepLosses()
        if run.model is None or self.tripped:
            return
        number = run.state.global_step + (not applied)
        last, self._rate = self._rate, _rate_of(run.optimizer)
        warms = self._rate == 0 or (self._rate is not None and last is not None and self._rate > last)
        numbers = self._gradients.look(run.model, run.args, number, losses)
        moves = True
        if numbers is not None:
            shared, own = numbers
            step = _Step(run, number, losses, own, self._rate, warms, applied)
            if shared.device.type == "cpu" or getattr(run.args, "logging_nan_inf_filter", False):
                moves = not self._judge(shared.tolist(), step)
            else:
                self.read_late()
                self._late = (_to_host(shared), step._replace(applied=True))
        if not applied and moves:
            self._note_half(run.model, number, warms=warms)
        self.shape = losses.shape

    def _note_half(self, model: Any, step: int, *, warms: bool) -> None:
        """Keep a sample of the largest half-precision weight, every hundredth step; not during warm-up."""
        pairs = [] if step % _EVERY or warms else model.named_parameters()
        half = [(name, weight) for name, weight in pairs if weight.grad is not None and weight.dtype in _HALF]
        name, parameter = max(half, key=lambda entry: int(entry[1].numel()), default=("", None))
        noted = None if parameter is None else (_sample(parameter).clone(), _sample(parameter.grad) != 0)
        self._noted = None if noted is None else (name, parameter, *noted)

    def stands_still(self, *, skipped: bool) -> str | None:
        """Return the sampled half-precision weight if none of its elements that have a gradient moved in the step; None
        if the step was ``skipped``, which rightly moved nothing."""
        noted, self._noted = self._noted, None
        if noted is None or skipped:
            return None
        name, parameter, before, moving = noted
        moved = (_sample(parameter) != before) & moving
        return name if int(moving.sum()) >= 100 and not bool(moved.any()) else None

    def read_late(self) -> None:
        """Judge the step before, whose numbers were on their way. Call this before anything is saved."""
        if self._late is None or self.tripped:
            return
        (numbers, event), step = self._late
        self._late = None
        if event is not None:
            event.synchronize()
        self._judge(numbers.tolist(), step)

    def explain_norm(self, step: int) -> dict[str, Any]:
        """Return facts about a step's infinite norm: its gradients are all 0 now, so its batches are run again."""
        zeroed = self._zeroed
        if zeroed is None or zeroed.number != step or not self._rerun or processes() > 1:
            return {}
        return self._examined(zeroed, [*zeroed.kept.batches.values()], again=not is_sharded(zeroed.run.model))

    def _judge(self, numbers: list[float], step: _Step) -> bool:
        """Return whether the step is bad or skipped. Stop or record, unless the loss scaler skips the step."""
        *largest, least = numbers
        loss, gradient = not math.isfinite(largest[0]), not all(map(math.isfinite, largest[1:]))
        zero = len(largest) > 1 and not any(largest[1:])
        own = (loss or gradient) and not bool(torch.isfinite(step.own).all())
        masked = loss and not gradient and self._masked(step)
        dead = False
        if (zero and not (loss or gradient)) or masked:
            # All zero: nothing to learn, or clipping divided by an infinite norm. Once applied the gradients are gone,
            # and an infinite one has left its mark in a weight.
            gradient, own, dead = self._gradients.any_bad(step.run.model, applied=step.applied)
        masked = masked and not gradient
        if masked:
            self._note_masked(step)
        elif not (loss or gradient):
            self._overflows = self._unlabelled = 0
            self._note_course(step, largest[0], calm=least <= step.kept.worst, dead=dead)
        if masked or not (loss or gradient):
            return False
        self._overflows += 1
        if loss or not scales(step.run) or self._overflows >= _OVERFLOWS:
            self._trip(step, "nan-loss" if loss else "nan-gradient", own=own)
        return True

    def _masked(self, step: _Step) -> bool:
        """Return whether every loss that is not finite, on any process, is of a batch without a label that counts."""
        batches = step.kept.batches
        unexplained = any(describe(batches.get(index, {})).get("watch.label_tokens") != 0 for index in step.kept.bad())
        return not on_any(step.run.model, unexplained)

    def _note_masked(self, step: _Step) -> None:
        self._unlabelled += 1
        if self._unlabelled >= _UNLABELLED:
            self._trip(step, "all-labels-masked", own=False)
            return
        first = next(iter(step.kept.bad()), None)
        about = describe({} if first is None else step.kept.batches.get(first, {}))
        self._teller.record(step.run, "labels-masked", step.number, about, {"micro_batch": first})

    def _note_course(self, step: _Step, loss: float, *, calm: bool, dead: bool) -> None:
        """Count steps in a row that are far worse than guessing after one that was not, whose gradients are all 0
        (``dead``) beside a loss that is not, and whose loss stands still though the learning rate does not rise."""
        losses = step.kept.losses
        self._was_calm = self._was_calm or calm
        self._worse = self._worse + 1 if self._was_calm and not calm else 0
        self._zeroed = step if dead else None
        self._zero = self._zero + 1 if dead and (loss or not losses) else 0
        exact = bool(losses) and losses[0][1].dtype in (torch.float32, torch.float64)
        self._same = self._same + 1 if exact and loss == self._loss and abs(loss) > _LEAST and not step.warms else 1
        self._loss = loss
        if self._worse >= _DIVERGED:
            self._trip(step, "diverged", own=False)
        elif self._zero >= _DEAD:
            self._tell_dead(step, "zero-gradient")
        elif self._same >= _DEAD and "zero-gradient" not in self._teller.kinds:
            self._tell_dead(step, "loss-stands-still")

    def _tell_dead(self, step: _Step, event: str) -> None:
        if event not in self._teller.kinds:
            weight = oversized_weight(step.run.model)
            about = {"watch.parameter": weight} if weight is not None else {}
            self._teller.record(step.run, event, step.number - _DEAD + 1, about, {"learning_rate": step.rate})

    def _trip(self, step: _Step, event: str, *, own: bool) -> None:
        """Stop or record. ``own``: this process has values that are not finite, and a second run may say where."""
        run, model = step.run, step.run.model
        if self._stop:
            self.tripped = True
            run.control.should_training_stop = True
        elif event in self._teller.kinds:
            return
        facts: dict[str, Any] = {}
        details: dict[str, Any] = {"weights_were_changed": step.applied, "learning_rate": step.rate}
        if scales(step.run) and event == "nan-gradient":
            details["skipped_by_the_loss_scaler"] = self._overflows
        batches = step.kept.batches
        number = next(iter(step.kept.bad()), max(batches, default=-1))
        alone = processes() == 1
        if not alone:
            details["bad_here"] = own
        if own or alone:
            details["micro_batch"] = number
            facts.update(describe(batches.get(number, {})))
        alone = alone and not is_sharded(model)
        if self._rerun and not alone:
            details["rerun"] = "not with several processes or sharded weights"
        weights = [parameter for parameter in model.parameters() if parameter.grad is not None]
        gradients = [parameter.grad for parameter in weights] if not self._stop else []
        details["gradients_not_finite"] = bad = self._gradients.bad(model) if own else []
        if len(bad) == 1:
            facts["watch.parameter"] = bad[0]
        if self._rerun and own:
            if gradients and alone:
                model.zero_grad(set_to_none=True)
            first_bad_first = sorted(batches, key=lambda index: index != number)
            facts.update(self._examined(step, [batches[index] for index in first_bad_first], again=alone))
            for parameter, gradient in zip(weights, gradients, strict=False):
                parameter.grad = gradient
        if self._stop and not step.applied:
            _nothing_to_apply(model, weights, keep=scales(step.run) or not alone)
        first_bad = step.number - _DIVERGED + 1 if event == "diverged" else step.number
        self._teller.record(run, event, first_bad, facts, details)

    def _examined(self, step: _Step, batches: list[Mapping[str, Any]], *, again: bool) -> dict[str, Any]:
        """Return the facts of a second run of the batches, one after the other, and the description of the faulty
        batch. ``again`` False looks at batches and weights only."""
        about: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        for batch in batches or [{}]:
            facts = self._teller.examine(step.run.model, batch, again=again and bool(batch))
            if facts.get("watch.where") not in ("nothing", "outside", "unknown", None):
                about = describe(batch)
                break
        if facts.get("watch.where") == "nothing" and not step.kept.is_own():
            facts = {"watch.where": "outside", "problem": "the loss that was trained on is not the model's own"}
        if step.applied and facts.get("watch.where") in ("nothing", "outside", "weights"):
            facts = {"watch.where": "unknown", "problem": "the weights had moved when the batch was run again"}
        return {**about, **facts}


def scales(run: WatchedRun) -> bool:
    """Return whether a loss scaler looks at the gradients and skips steps by itself."""
    return bool(getattr(run.args, "fp16", False)) or getattr(run.optimizer, "scaler", None) is not None


def _sample(tensor: Any) -> Any:
    return tensor.detach().reshape(-1)[:_SAMPLE]


def _rate_of(optimizer: Any) -> float | None:
    """Return the largest learning rate of the step; None if reading it would wait for a device."""
    rates = [group.get("lr") for group in getattr(optimizer, "param_groups", None) or ()]
    numbers = [float(rate) for rate in rates if isinstance(rate, (int, float))]
    return max(numbers) if numbers and len(numbers) == len(rates) else None


def _nothing_to_apply(model: Any, weights: list[Any], *, keep: bool) -> None:
    """Leave the optimizer nothing to apply. Without gradients it does nothing; a loss scaler and sharded optimizers
    need gradients (``keep``): zeros move weights by finite momentum and decay at most."""
    if not keep:
        model.zero_grad(set_to_none=True)
        return
    for parameter in weights:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.detach().zero_()


def _to_host(numbers: Any) -> tuple[Any, Any]:
    """Return a copy on its way to the host, and the event that says when it is there."""
    if numbers.device.type != "cuda":
        return numbers, None
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event
