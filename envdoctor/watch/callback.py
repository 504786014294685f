"""The TrainerCallback: cheap flags on the device every step, everything else on the first bad one."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envdoctor.watch.batch import bytes_of, describe, shape_of
from envdoctor.watch.growth import Growth
from envdoctor.watch.signatures import event_of_log

try:
    import torch
    from transformers import TrainerCallback
except ImportError as error:  # pragma: no cover - a training script has both
    raise ImportError(f"envdoctor.watch needs torch and transformers in this environment: {error}") from error

__all__ = ["Watch"]

logger = logging.getLogger("envdoctor.watch")

#: Batches of one optimizer step are kept for a second run up to this many bytes; of larger ones only the last.
_KEPT_BYTES = 64 << 20
#: Without clipping nobody computes a norm: each step looks at every so many parameters in turn.
_SHARE = 16
#: Every so many steps a sample of half-precision weights is compared with itself.
_STILL_EVERY = 100
_SAMPLE = 1024
_EVENTS_KEPT = 64


class Watch(TrainerCallback):
    """Stops a run on the first loss or gradient that is not finite, says where it came from, and records it.

    ``folder`` takes the flight records (default: the Trainer's ``output_dir``). ``stop`` False only records. ``rerun``
    False leaves the second run of the bad batch out. Findings go to the logger ``envdoctor.watch``; ``events`` holds
    what was seen, as dictionaries of ``watch.*`` facts.

    Every step costs a few operations on single numbers: the loss of the model's output and, after the Trainer has
    clipped, one small gradient (a norm that is NaN makes every clipped gradient NaN). The flags stay on the device.
    They are read at once where the Trainer waits for the device anyway (``logging_nan_inf_filter``, its default) or
    there is none, so that the bad step can be examined and skipped before it reaches the weights; otherwise one step
    later, and the record says so.
    """

    def __init__(self, folder: str | None = None, *, stop: bool = True, rerun: bool = True) -> None:
        self.folder = folder
        self.stop = stop
        self.rerun = rerun
        self.events: list[dict[str, Any]] = []
        self._seen: set[str] = set()
        self._handles: list[Any] = []
        self._batches: list[Mapping[str, Any]] = []
        self._flags: list[Any] = []
        self._late: tuple[Any, int, list[Mapping[str, Any]], list[Any]] | None = None
        self._growth = Growth()
        self._still: tuple[str, Any, Any] | None = None
        self._shape: tuple[int, int] | None = None
        self._sentinel: Any = None
        self._last: dict[str, float] = {}
        self._tripped = False

    # --- the Trainer's events ----------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Listen to the model's own calls: that is where batch and loss are."""
        self._release()
        self._sentinel = None
        if model is None:
            return
        self._handles = [
            model.register_forward_pre_hook(self._before, with_kwargs=True),
            model.register_forward_hook(self._after),
        ]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """After clipping, before the weights move."""
        if model is None or self._tripped:
            self._forget()
            return
        bad = self._bad(model, args, state.global_step)
        if bad is not None and self._reads_at_once(args, bad):
            if bool(bad):
                flags = [bool(flag) for flag in self._flags]
                self._trip(args, state, control, model, (self._batches, flags))
                model.zero_grad(set_to_none=True)  # the step that follows has nothing to apply
        elif bad is not None:
            self._read_late(args, state, control, model)
            self._late = (_to_host(bad), state.global_step, self._batches, self._flags)
        self._note_weights(model, state.global_step)
        self._remember_shape()
        self._forget()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Before anything is saved the flags must be known."""
        if control.should_save or control.should_evaluate:
            self._read_late(args, state, control, model)
        self._check_weights(args, state)
        self._check_memory(args, state)
        self._keep_from_saving(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The Trainer may save here as well."""
        self._read_late(args, state, control, model)
        self._keep_from_saving(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """What the log hides: see :mod:`envdoctor.watch.signatures`."""
        entry = logs if isinstance(logs, Mapping) else {}
        for key in ("loss", "grad_norm", "eval_loss"):
            value = entry.get(key)
            if isinstance(value, (int, float)) and math.isfinite(value) and (key != "loss" or value != 0.0):
                self._last[key] = float(value)
        event = event_of_log(entry)
        if event is not None and not self._tripped:
            self._record(args, {"watch.event": event, "watch.step": state.global_step})

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Stop listening."""
        self._read_late(args, state, control, model)
        self._release()

    # --- the hot path ------------------------------------------------------------------------------------------------

    def _before(self, module: Any, arguments: Any, batch: dict[str, Any]) -> None:
        if not module.training or self._tripped:
            return
        if self._batches and sum(map(bytes_of, self._batches)) + bytes_of(batch) > _KEPT_BYTES:
            self._batches = [{} for _ in self._batches]
        self._batches.append(batch)

    def _after(self, module: Any, arguments: Any, output: Any) -> None:
        if not module.training or self._tripped:
            return
        loss = _loss_of(output)
        if loss is not None:
            self._flags.append(~torch.isfinite(loss.detach()).all())

    def _bad(self, model: Any, args: Any, step: int) -> Any:
        """A one-element boolean on the device: a loss of this step or a gradient that was looked at is not finite."""
        flags = list(self._flags)
        for gradient in self._sentinels(model, args, step):
            flags.append(~torch.isfinite(gradient).all())
        if not flags:
            return None
        bad = torch.stack([flag.to(flags[0].device) for flag in flags]).any()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # All ranks stop at the same step, or those that go on wait for ever.
            shared = bad.to(torch.int32)
            torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
            bad = shared.bool()
        return bad

    def _sentinels(self, model: Any, args: Any, step: int) -> list[Any]:
        """Gradients to look at: with clipping one small one, without it a share of all, in turn."""
        clipped = args.max_grad_norm and args.max_grad_norm > 0
        if clipped and self._sentinel is not None and self._sentinel.grad is not None:
            return [self._sentinel.grad]
        with_gradient = [
            parameter
            for parameter in model.parameters()
            if parameter.grad is not None and parameter.grad.numel() and not parameter.grad.is_sparse
        ]
        if not with_gradient:
            return []
        if clipped:
            self._sentinel = min(with_gradient, key=lambda parameter: int(parameter.numel()))
            return [self._sentinel.grad]
        gradients = [parameter.grad for parameter in with_gradient]
        return gradients[step % _SHARE :: _SHARE] or gradients[-1:]

    def _reads_at_once(self, args: Any, bad: Any) -> bool:
        return bad.device.type == "cpu" or bool(getattr(args, "logging_nan_inf_filter", False))

    def _forget(self) -> None:
        self._batches, self._flags = [], []

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._forget()

    # --- the first bad step ------------------------------------------------------------------------------------------

    def _read_late(self, args: Any, state: Any, control: Any, model: Any) -> None:
        if self._late is None or self._tripped:
            return
        (bad, event), step, batches, flags = self._late
        self._late = None
        if event is not None:
            event.synchronize()
        if bool(bad):
            known = [bool(flag) for flag in flags]
            self._trip(args, state, control, model, (batches, known), changed_since=step)

    def _trip(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any,
        seen: tuple[list[Mapping[str, Any]], list[bool]],
        *,
        changed_since: int | None = None,
    ) -> None:
        """``seen`` are the step's micro-batches and whether the loss of each was bad. ``changed_since`` is the step in
        question when the weights have moved since, None when the step has not been applied."""
        batches, flags = seen
        self._tripped = True
        number = flags.index(True) if True in flags else len(batches) - 1
        batch = batches[number] if 0 <= number < len(batches) else {}
        facts: dict[str, Any] = {
            "watch.event": "nan-loss" if True in flags else "nan-gradient",
            "watch.step": state.global_step if changed_since is None else changed_since,
            **describe(batch),
        }
        details: dict[str, Any] = {"weights_were_changed": changed_since is not None, "micro_batch": number}
        if self.rerun and batch and model is not None:
            from envdoctor.watch.rerun import examine

            for handle in self._handles:
                handle.remove()
            self._handles = []
            for candidate in (batch, *(other for other in batches if other and other is not batch)):
                found = examine(model, candidate, _loss_of)
                if found.get("watch.where") != "nothing":
                    facts.update(describe(candidate))
                    break
            details["problem"] = found.pop("problem", None)
            facts.update(found)
        if self.stop:
            control.should_training_stop = True
        self._record(args, facts, details)

    def _keep_from_saving(self, control: Any) -> None:
        if self._tripped and self.stop:
            control.should_save = False
            control.should_training_stop = True

    # --- what goes wrong quietly -------------------------------------------------------------------------------------

    def _remember_shape(self) -> None:
        self._shape = next((shape for batch in self._batches if (shape := shape_of(batch)) is not None), None)

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

    def _note_weights(self, model: Any, step: int) -> None:
        """Every hundredth step, a sample of the largest half-precision weight, to see whether the step moves it."""
        self._still = None
        if step % _STILL_EVERY or self._tripped:
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
        # Warm-up steps have a learning rate of zero.
        rate = next(
            (entry.get("learning_rate") for entry in reversed(state.log_history) if "learning_rate" in entry), 1
        )
        if pushed >= 100 and moved == 0 and rate:
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
            tell(facts, {**(details or {}), "last_finite": dict(self._last)}, args, folder, logger)
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


def _to_host(bad: Any) -> tuple[Any, Any]:
    """A copy on its way to the host, and the event that says when it is there."""
    if bad.device.type != "cuda":
        return bad, None
    host = torch.empty((), dtype=torch.bool, pin_memory=True)
    host.copy_(bad, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event
