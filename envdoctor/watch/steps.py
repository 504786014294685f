"""The optimizer steps of a run: flags on the device every step, judged when they are read, everything else on the first
bad one."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from envdoctor.watch.losses import Kept, describe
from envdoctor.watch.rerun import Gradients, any_bad_weight, examine, is_sharded, on_any, processes, rank

logger = logging.getLogger("envdoctor.watch")

_EVENTS_KEPT = 64


class Teller:
    """``events`` are dictionaries of ``watch.*`` facts, ``seen`` their kinds, ``last_finite`` the last finite numbers
    of the Trainer's log, ``said`` what the last of them came to, in words. ``busy``: the model is called to find out
    what went wrong."""

    def __init__(self, folder: str | None) -> None:
        self.events: list[dict[str, Any]] = []
        self.seen: set[str] = set()
        self.last_finite: dict[str, float] = {}
        self.said = ""
        self.busy = False
        self._folder = folder

    def examine(self, model: Any, batch: Mapping[str, Any], **how: bool) -> dict[str, Any]:
        """Run a batch again (see :func:`envdoctor.watch.rerun.examine`); the model's calls within are the watch's."""
        self.busy = True
        try:
            return examine(model, batch, **how)
        finally:
            self.busy = False

    def record(self, args: Any, facts: dict[str, Any], details: Mapping[str, Any] | None = None) -> None:
        """Judge and tell once for each kind of event; nothing in here may end the run."""
        if facts["watch.event"] in self.seen or len(self.events) >= _EVENTS_KEPT:
            return
        self.seen.add(facts["watch.event"])
        self.events.append(facts)
        self.said = f"{facts['watch.event']} in step {facts['watch.step']}"
        try:
            from envdoctor.watch.flight import tell

            folder = Path(self._folder or getattr(args, "output_dir", None) or ".")
            whose = {"rank": rank(), "processes": processes()} if processes() > 1 else {}
            known = {**whose, **(details or {}), "last_finite": dict(self.last_finite)}
            self.said = tell(facts, known, args, folder, logger) or self.said
        except Exception as error:
            logger.warning("envdoctor.watch: the flight record could not be written: %s", type(error).__name__)


#: Steps in a row whose gradients are not finite beside a finite loss, before a loss scale is no excuse: the scaler
#: begins at 2**16 and halves it each time.
_OVERFLOWS = 20
#: Steps in a row without a label that counts, before it is said that the rest does not train either.
_UNLABELLED = 20
#: Steps in a row that are far worse than guessing after one that was not, before that is no spike.
_DIVERGED = 10
#: Every so many steps a sample of half-precision weights is compared with itself.
_EVERY, _SAMPLE = 100, 1024


class _Step(NamedTuple):
    """What is known of one optimizer step: its number, its micro-batches and their losses, and the flags of this
    process."""

    number: int
    kept: Kept
    own: Any
    scaled: bool
    rate: float | None


class Still:
    """Half-precision weights that a step does not move, by a sample of the largest one: :meth:`note` before a step,
    :meth:`name` after it."""

    def __init__(self) -> None:
        self._noted: tuple[str, Any, Any] | None = None
        self._rate: float | None = None

    def note(self, model: Any, step: int, rate: float | None) -> None:
        """Every hundredth step; not during warm-up, whose learning rate is 0 or still rises."""
        self._noted, last, self._rate = None, self._rate, rate
        if step % _EVERY or rate == 0 or (rate is not None and last is not None and rate > last):
            return
        half = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None and parameter.dtype in (torch.bfloat16, torch.float16)
        ]
        if half:
            name, parameter = max(half, key=lambda entry: int(entry[1].numel()))
            moving = parameter.grad.detach().reshape(-1)[:_SAMPLE] != 0
            self._noted = (name, parameter, (parameter.detach().reshape(-1)[:_SAMPLE].clone(), moving))

    def name(self, *, skipped: bool) -> str | None:
        """The weight, when none of its sampled elements that have gradients moved; a step that was ``skipped`` moved
        nothing, and rightly."""
        noted, self._noted = self._noted, None
        if noted is None or skipped:
            return None
        name, parameter, (before, moving) = noted
        pushed = int(moving.sum())
        moved = int(((parameter.detach().reshape(-1)[:_SAMPLE] != before) & moving).sum())
        return name if pushed >= 100 and moved == 0 else None


class Steps:
    """``kept`` is the step that goes on, ``shape`` the batch of the last one. ``tripped``: the run is being stopped."""

    def __init__(self, teller: Teller, *, stop: bool, rerun: bool) -> None:
        self.kept = Kept()
        self.shape: tuple[int, int] | None = None
        self.tripped = False
        self.still = Still()
        self._teller = teller
        self._stop = stop
        self._rerun = rerun
        self._gradients = Gradients()
        self._late: tuple[tuple[Any, Any], _Step] | None = None
        self._overflows = self._unlabelled = self._worse = 0
        self._was_calm = False

    def look(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, *, applied: bool) -> None:
        """Judge the step whose flags are there; ``applied`` when the weights have moved already."""
        kept, self.kept = self.kept, Kept()
        if model is None or self.tripped:
            return
        number = state.global_step - applied
        rate, scaled = _rate_of(optimizer), scales(args, optimizer)
        flags = self._gradients.look(model, args, number, kept.flags())
        moves = True
        if flags is not None:
            shared, own = flags
            step = _Step(number, kept, own, scaled, rate)
            if shared.device.type == "cpu" or getattr(args, "logging_nan_inf_filter", False):
                moves = not self._judge(shared.tolist(), args, control, model, step, applied=applied)
            else:
                self.read_late(args, state, control, model)
                self._late = (_to_host(shared), step)
        if not applied and moves:
            self.still.note(model, number, rate)
        self.shape = kept.shape

    def read_late(self, args: Any, state: Any, control: Any, model: Any) -> None:
        """Judge the step before, whose flags were on their way; before anything is saved they must be known."""
        if self._late is None or self.tripped:
            return
        (flags, event), step = self._late
        self._late = None
        if event is not None:
            event.synchronize()
        self._judge(flags.tolist(), args, control, model, step, applied=True)

    def _judge(self, flags: list[bool], args: Any, control: Any, model: Any, step: _Step, *, applied: bool) -> bool:
        """Whether the step is bad or skipped; trips when nobody else sees to it."""
        loss, gradient, zero, calm = flags
        own = bool(step.own[:2].any())
        masked = loss and not gradient and self._masked(model, step)
        if (zero and not (loss or gradient)) or masked:
            # All zero: nothing to learn, or clipping divided by an infinite norm. Once applied the gradients are gone,
            # and an infinite one has left its mark in a weight.
            gradient, own = any_bad_weight(model) if applied else self._gradients.any_bad(model)
        masked = masked and not gradient
        if masked:
            self._note_masked(args, control, model, step, applied=applied)
        elif not (loss or gradient):
            self._overflows = self._unlabelled = 0
            self._note_course(calm, args, control, model, step, applied=applied)
        if masked or not (loss or gradient):
            return False
        self._overflows += 1
        if loss or not step.scaled or self._overflows >= _OVERFLOWS:
            self._trip(args, control, model, step, "nan-loss" if loss else "nan-gradient", own=own, applied=applied)
        return True

    def _masked(self, model: Any, step: _Step) -> bool:
        """Whether every loss that is not finite, on any process, is that of a batch without a label that counts."""
        numbers = dict(step.kept.batches)
        bad = step.kept.bad()
        unexplained = any(describe(numbers.get(one, {})).get("watch.label_tokens") != 0 for one in bad)
        return not on_any(model, unexplained)

    def _note_masked(self, args: Any, control: Any, model: Any, step: _Step, *, applied: bool) -> None:
        self._unlabelled += 1
        if self._unlabelled >= _UNLABELLED:
            self._trip(args, control, model, step, "all-labels-masked", own=False, applied=applied)
            return
        first = next(iter(step.kept.bad()), None)
        about = describe(dict(step.kept.batches).get(first, {})) if first is not None else {}
        self._teller.record(
            args, {"watch.event": "labels-masked", "watch.step": step.number, **about}, {"micro_batch": first}
        )

    def _note_course(self, calm: bool, args: Any, control: Any, model: Any, step: _Step, *, applied: bool) -> None:
        """Count steps in a row that are far worse than guessing after one that was not."""
        self._was_calm = self._was_calm or calm
        self._worse = self._worse + 1 if self._was_calm and not calm else 0
        if self._worse >= _DIVERGED:
            self._trip(args, control, model, step, "diverged", own=False, applied=applied)

    def _trip(self, args: Any, control: Any, model: Any, step: _Step, event: str, *, own: bool, applied: bool) -> None:
        """Stop or tell. ``own``: this process saw something that is not finite, and a second run may say where."""
        if self._stop:
            self.tripped = True
            control.should_training_stop = True
        elif event in self._teller.seen:
            return
        facts: dict[str, Any] = {"watch.event": event, "watch.step": step.number}
        details: dict[str, Any] = {"weights_were_changed": applied, "learning_rate": step.rate}
        if event == "diverged":
            facts["watch.step"] = step.number - _DIVERGED + 1
        if step.scaled and event == "nan-gradient":
            details["skipped_by_the_loss_scaler"] = self._overflows
        numbers = dict(step.kept.batches)
        number = next(iter(step.kept.bad()), max(numbers, default=-1))
        alone = processes() == 1
        if not alone:
            details["bad_here"] = own
        if own or alone:
            details["micro_batch"] = number
            facts.update(describe(numbers.get(number, {})))
        alone = alone and not is_sharded(model)
        if self._rerun and not alone:
            details["rerun"] = "not with several processes or sharded weights"
        having = [parameter for parameter in model.parameters() if parameter.grad is not None]
        aside = [parameter.grad for parameter in having] if not self._stop else []
        if self._rerun and own:
            if aside and alone:
                model.zero_grad(set_to_none=True)
            first = [numbers[number]] if number in numbers else []
            found = self._examined(model, [*first, *(one for at, one in numbers.items() if at != number)], alone, facts)
            details["problem"] = found.pop("problem", None)
            facts.update(found)
            for parameter, gradient in zip(having, aside, strict=False):
                parameter.grad = gradient
        if self._stop and not applied:
            _nothing_to_apply(model, having, keep=step.scaled or not alone)
        self._teller.record(args, facts, details)

    def _examined(
        self, model: Any, batches: list[Mapping[str, Any]], again: bool, facts: dict[str, Any]
    ) -> dict[str, Any]:
        """What a second run of the batches, one after the other, says; ``again`` False only looks at what is there."""
        found: dict[str, Any] = {}
        for batch in batches or [{}]:
            found = self._teller.examine(model, batch, again=again and bool(batch))
            if found.get("watch.where") not in ("nothing", "unknown", None):
                facts.update(describe(batch))
                break
        return found


def scales(args: Any, optimizer: Any) -> bool:
    """Whether a loss scaler looks at the gradients and skips steps by itself."""
    return bool(getattr(args, "fp16", False)) or getattr(optimizer, "scaler", None) is not None


def _rate_of(optimizer: Any) -> float | None:
    """The largest learning rate of the step; None when it is not known without waiting for a device."""
    rates = [group.get("lr") for group in getattr(optimizer, "param_groups", None) or ()]
    known = [float(rate) for rate in rates if isinstance(rate, (int, float))]
    return max(known) if known and len(known) == len(rates) else None


def _nothing_to_apply(model: Any, having: list[Any], *, keep: bool) -> None:
    """Leave the optimizer nothing. Without gradients it does nothing at all; a loss scaler and sharded optimizers
    insist on having some (``keep``): of zeros, which move weights by finite momentum and decay at the most."""
    if not keep:
        model.zero_grad(set_to_none=True)
        return
    for parameter in having:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.detach().zero_()


def _to_host(bad: Any) -> tuple[Any, Any]:
    """A copy on its way to the host, and the event that says when it is there."""
    if bad.device.type != "cuda":
        return bad, None
    host = torch.empty(bad.shape, dtype=torch.bool, pin_memory=True)
    host.copy_(bad, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event
