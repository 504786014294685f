"""The TrainerCallback: cheap flags on the device every step, everything else on the first bad one."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.watch.batch import bytes_of, describe, shape_of
from envdoctor.watch.growth import Growth
from envdoctor.watch.signatures import event_of_log

try:
    import torch
    from transformers import TrainerCallback

    from envdoctor.watch.flags import Gradients, any_bad_weight, is_sharded, processes, rank
except ImportError as error:  # pragma: no cover - a training script has both
    raise ImportError(f"envdoctor.watch needs torch and transformers in this environment: {error}") from error

__all__ = ["Watch"]

logger = logging.getLogger("envdoctor.watch")

#: Batches of one optimizer step are kept for a second run up to this many bytes and so many; the last one always.
_KEPT_BYTES = 64 << 20
_KEPT_BATCHES = 64
#: Flags of single micro-batches; more are folded into one.
_KEPT_FLAGS = 256
#: Steps in a row whose gradients are not finite beside a finite loss, before a loss scale is no excuse: the scaler
#: begins at 2**16 and halves it each time.
_OVERFLOWS = 20
#: Every so many steps a sample of half-precision weights is compared with itself.
_STILL_EVERY = 100
_SAMPLE = 1024
_EVENTS_KEPT = 64
#: transformers 4.41 to 4.45 tell nothing between clipping and the optimizer's step.
_TOLD_BEFORE_STEP = hasattr(TrainerCallback, "on_pre_optimizer_step")


class _Step(NamedTuple):
    """What is known of one optimizer step: its number, the (numbered) micro-batches that were kept and flags of their
    losses, and the flags of this process."""

    number: int
    batches: list[tuple[int, Mapping[str, Any]]]
    losses: list[tuple[int, Any]]
    own: Any
    scaled: bool
    rate: float | None


class Watch(TrainerCallback):
    """Stops a run on the first loss or gradient that is not finite, says where it came from, and records it.

    ``folder`` takes the flight records (default: the Trainer's ``output_dir``). ``stop`` False only records: the
    gradients stay as they are and the watch goes on, telling each kind of event once. ``rerun`` False leaves the second
    run of the bad batch out; with several processes there is none. Findings go to the logger ``envdoctor.watch``;
    ``events`` holds what was seen, as dictionaries of ``watch.*`` facts.

    Every step costs a few operations on single numbers: the loss of the model's output and, after the Trainer has
    clipped, one small gradient (see :class:`envdoctor.watch.flags.Gradients`). The flags stay on the device. They are
    read at once where the Trainer waits for the device anyway (``logging_nan_inf_filter``, its default) or there is
    none, so that the bad step can be examined and skipped before it reaches the weights; otherwise one step later, and
    the record says so. A step that a loss scaler skips (fp16) is the scaler's business, until there are
    too many in a row.
    """

    def __init__(self, folder: str | None = None, *, stop: bool = True, rerun: bool = True) -> None:
        self.folder = folder
        self.stop = stop
        self.rerun = rerun
        self.events: list[dict[str, Any]] = []
        self._seen: set[str] = set()
        self._handles: list[Any] = []
        self._batches: list[tuple[int, Mapping[str, Any]]] = []
        self._flags: list[tuple[int, Any]] = []
        self._micro = 0
        self._held = 0
        self._late: tuple[tuple[Any, Any], _Step] | None = None
        self._growth = Growth()
        self._still: tuple[str, Any, Any] | None = None
        self._shape: tuple[int, int] | None = None
        self._gradients = Gradients()
        self._last: dict[str, float] = {}
        self._rate: float | None = None
        self._overflows = 0
        self._busy = False
        self._tripped = False
        self._halted = False

    # --- the Trainer's events ----------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Listen to the model's own calls: that is where batch and loss are."""
        self._release()
        self._gradients = Gradients()
        self._late = None
        if model is None:
            return
        if not _TOLD_BEFORE_STEP:
            logger.warning(
                "envdoctor.watch: this transformers tells nothing before the optimizer's step: losses alone are "
                "watched, and a bad step has changed the weights when it is seen"
            )
        self._handles = [
            model.register_forward_pre_hook(_not_compiled(self._before), with_kwargs=True),
            model.register_forward_hook(_not_compiled(self._after)),
        ]

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """After clipping, before the weights move."""
        self._look(args, state, control, model, optimizer, applied=False)

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Before anything is saved the flags must be known."""
        if not _TOLD_BEFORE_STEP:
            self._look(args, state, control, model, optimizer, applied=True)
        if control.should_save or control.should_evaluate:
            self._read_late(args, state, control, model)
        if getattr(optimizer, "step_was_skipped", False):
            self._still = None
        self._check_weights(args, state)
        self._check_memory(args, state)
        self._keep_from_saving(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The Trainer may save here as well."""
        self._read_late(args, state, control, model)
        self._keep_from_saving(control)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """What the log hides: see :mod:`envdoctor.watch.signatures`."""
        entry = logs if isinstance(logs, Mapping) else {}
        for key in ("loss", "grad_norm", "eval_loss"):
            value = entry.get(key)
            if isinstance(value, (int, float)) and math.isfinite(value) and (key != "loss" or value != 0.0):
                self._last[key] = float(value)
        event = event_of_log(entry)
        if event is None or self._tripped:
            return
        if event in ("infinite-norm", "nan-gradient") and _scales(args, optimizer):
            return
        self._record(args, {"watch.event": event, "watch.step": state.global_step})
        if event == "infinite-norm":
            self._halted = True
            self._keep_from_saving(control)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Stop listening."""
        self._read_late(args, state, control, model)
        self._release()

    # --- the hot path ------------------------------------------------------------------------------------------------

    def _before(self, module: Any, arguments: Any, batch: dict[str, Any]) -> None:
        # Without gradients it is a reference model's pass or a generation, not the training step's.
        if not module.training or self._tripped or self._busy or not torch.is_grad_enabled():
            return
        size = bytes_of(batch)
        if len(self._batches) >= _KEPT_BATCHES or self._held + size > _KEPT_BYTES:
            self._batches, self._held = [], 0
        self._batches.append((self._micro, batch))
        self._held += size
        self._micro += 1

    def _after(self, module: Any, arguments: Any, output: Any) -> None:
        if not module.training or self._tripped or self._busy or not torch.is_grad_enabled():
            return
        loss = _loss_of(output)
        if loss is None:
            return
        if len(self._flags) >= _KEPT_FLAGS:
            device = self._flags[0][1].device
            self._flags = [(self._flags[0][0], torch.stack([flag.to(device) for _, flag in self._flags]).any())]
        self._flags.append((self._micro - 1, ~torch.isfinite(loss.detach()).all()))

    def _look(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, *, applied: bool) -> None:
        """Judge the step whose flags are there; ``applied`` when the weights have moved already."""
        if model is None or self._tripped:
            self._forget()
            return
        number = state.global_step - applied
        rate, scaled = _rate_of(optimizer), _scales(args, optimizer)
        flags = self._gradients.look(model, args, number, [flag for _, flag in self._flags])
        moves = True
        if flags is not None:
            shared, own = flags
            step = _Step(number, self._batches, self._flags, own, scaled, rate)
            if shared.device.type == "cpu" or getattr(args, "logging_nan_inf_filter", False):
                moves = not self._judge(shared.tolist(), args, control, model, step, applied=applied)
            else:
                self._read_late(args, state, control, model)
                self._late = (_to_host(shared), step)
        if not applied and moves:
            self._note_weights(model, number, rate)
        self._rate = rate
        self._shape = next((shape for _, batch in self._batches if (shape := shape_of(batch)) is not None), None)
        self._forget()

    def _judge(self, flags: list[bool], args: Any, control: Any, model: Any, step: _Step, *, applied: bool) -> bool:
        """Whether the step is bad or skipped; trips when nobody else sees to it."""
        loss, gradient, zero = flags
        own = bool(step.own[:2].any())
        if zero and not (loss or gradient):
            # All zero: nothing to learn, or clipping divided by an infinite norm. Once applied the gradients are gone,
            # and an infinite one has left its mark in a weight.
            gradient, own = any_bad_weight(model) if applied else self._gradients.any_bad(model)
        if not (loss or gradient):
            self._overflows = 0
            return False
        self._overflows += 1
        if loss or not step.scaled or self._overflows >= _OVERFLOWS:
            self._trip(args, control, model, step, loss=loss, own=own, applied=applied)
        return True

    def _forget(self) -> None:
        self._batches, self._flags, self._micro, self._held = [], [], 0, 0

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._forget()

    # --- the first bad step ------------------------------------------------------------------------------------------

    def _read_late(self, args: Any, state: Any, control: Any, model: Any) -> None:
        if self._late is None or self._tripped:
            return
        (flags, event), step = self._late
        self._late = None
        if event is not None:
            event.synchronize()
        self._judge(flags.tolist(), args, control, model, step, applied=True)

    def _trip(self, args: Any, control: Any, model: Any, step: _Step, *, loss: bool, own: bool, applied: bool) -> None:
        """``loss``: a loss was not finite, on some process; ``own``: this process saw something not finite."""
        event = "nan-loss" if loss else "nan-gradient"
        if self.stop:
            self._tripped = True
            control.should_training_stop = True
        elif event in self._seen:
            return
        facts: dict[str, Any] = {"watch.event": event, "watch.step": step.number}
        details: dict[str, Any] = {"weights_were_changed": applied, "learning_rate": step.rate}
        if step.scaled and not loss:
            details["skipped_by_the_loss_scaler"] = self._overflows
        bad = next((number for number, flag in step.losses if bool(flag)), None)
        numbers = dict(step.batches)
        number = bad if bad is not None else max(numbers, default=-1)
        alone = processes() == 1
        if not alone:
            details.update(rank=rank(), processes=processes(), bad_here=own)
        if own or alone:
            details["micro_batch"] = number
            facts.update(describe(numbers.get(number, {})))
        alone = alone and not is_sharded(model)
        if self.rerun and not alone:
            details["rerun"] = "not with several processes or sharded weights"
        having = [parameter for parameter in model.parameters() if parameter.grad is not None]
        aside = [parameter.grad for parameter in having] if not self.stop else []
        if self.rerun and own:
            if aside and alone:
                model.zero_grad(set_to_none=True)
            first = [numbers[number]] if number in numbers else []
            found = self._examined(model, [*first, *(one for at, one in step.batches if at != number)], alone, facts)
            details["problem"] = found.pop("problem", None)
            facts.update(found)
            for parameter, gradient in zip(having, aside, strict=False):
                parameter.grad = gradient
        if self.stop and not applied:
            _nothing_to_apply(model, having, keep=step.scaled or not alone)
        self._record(args, facts, details)

    def _examined(
        self, model: Any, batches: list[Mapping[str, Any]], again: bool, facts: dict[str, Any]
    ) -> dict[str, Any]:
        """What a second run of the batches, one after the other, says; ``again`` False only looks at what is there."""
        from envdoctor.watch.rerun import examine

        found: dict[str, Any] = {}
        self._busy = True
        try:
            for batch in batches or [{}]:
                found = examine(model, batch, _loss_of, again=again and bool(batch))
                if found.get("watch.where") not in ("nothing", "unknown", None):
                    facts.update(describe(batch))
                    break
        finally:
            self._busy = False
        return found

    def _keep_from_saving(self, control: Any) -> None:
        if (self._tripped or self._halted) and self.stop:
            control.should_save = False
            control.should_training_stop = True

    # --- what goes wrong quietly -------------------------------------------------------------------------------------

    def _check_memory(self, args: Any, state: Any) -> None:
        shape = self._shape
        if shape is None or not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return
        self.note_memory(args, state.global_step, shape, torch.cuda.memory_allocated())

    def note_memory(self, args: Any, step: int, shape: tuple[int, int], allocated: int) -> None:
        """Compare the bytes that tensors hold after a step with earlier steps of the same shape."""
        seen = self._growth.add(shape, allocated)
        if seen is not None:
            self._record(
                args,
                {
                    "watch.event": "memory-grows",
                    "watch.step": step,
                    "watch.batch_size": seen.shape[0],
                    "watch.length": seen.shape[1],
                    "watch.grown_gib": round(seen.grown / (1 << 30), 3),
                    "watch.visits": seen.visits,
                },
            )

    def _note_weights(self, model: Any, step: int, rate: float | None) -> None:
        """Every hundredth step, a sample of the largest half-precision weight, to see whether the step moves it; not
        during warm-up, whose learning rate is 0 or still rises."""
        self._still = None
        if step % _STILL_EVERY or self._tripped or rate == 0:
            return
        if rate is not None and self._rate is not None and rate > self._rate:
            return
        half = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None and parameter.dtype in (torch.bfloat16, torch.float16)
        ]
        if half:
            name, parameter = max(half, key=lambda entry: int(entry[1].numel()))
            moving = parameter.grad.detach().reshape(-1)[:_SAMPLE] != 0
            self._still = (name, parameter, (parameter.detach().reshape(-1)[:_SAMPLE].clone(), moving))

    def _check_weights(self, args: Any, state: Any) -> None:
        if self._still is None:
            return
        name, parameter, (before, moving) = self._still
        self._still = None
        pushed = int(moving.sum())
        moved = int(((parameter.detach().reshape(-1)[:_SAMPLE] != before) & moving).sum())
        if pushed >= 100 and moved == 0:
            self._record(
                args,
                {"watch.event": "weights-stand-still", "watch.step": state.global_step, "watch.parameter": name},
            )

    # --- telling -----------------------------------------------------------------------------------------------------

    def _record(self, args: Any, facts: dict[str, Any], details: Mapping[str, Any] | None = None) -> None:
        """Judge and tell once for each kind of event; nothing in here may end the run."""
        if facts["watch.event"] in self._seen or len(self.events) >= _EVENTS_KEPT:
            return
        self._seen.add(facts["watch.event"])
        self.events.append(facts)
        try:
            from envdoctor.watch.flight import tell

            folder = Path(self.folder or getattr(args, "output_dir", None) or ".")
            whose = {"rank": rank(), "processes": processes()} if processes() > 1 else {}
            known = {**whose, **(details or {}), "last_finite": dict(self._last)}
            tell(facts, known, args, folder, logger)
        except Exception as error:
            logger.warning("envdoctor.watch: the flight record could not be written: %s", type(error).__name__)


def _loss_of(output: Any) -> Any:
    """The loss in a model's output: ``.loss``, ``["loss"]``, or the first of a tuple when it is one number."""
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    if loss is None and isinstance(output, tuple) and output and hasattr(output[0], "numel") and output[0].numel() == 1:
        loss = output[0]
    if loss is None or not hasattr(loss, "detach"):
        return None
    return loss.mean() if loss.dim() else loss


def _scales(args: Any, optimizer: Any) -> bool:
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


def _not_compiled(hook: Any) -> Any:
    """The hook, kept out of what torch.compile traces: it has to see real batches and keep them."""
    if hasattr(torch, "compiler") and hasattr(torch.compiler, "disable"):
        return torch.compiler.disable(hook)
    dynamo = getattr(torch, "_dynamo", None)
    return dynamo.disable(hook) if dynamo is not None else hook


def _to_host(bad: Any) -> tuple[Any, Any]:
    """A copy on its way to the host, and the event that says when it is there."""
    if bad.device.type != "cuda":
        return bad, None
    host = torch.empty(bad.shape, dtype=torch.bool, pin_memory=True)
    host.copy_(bad, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event
