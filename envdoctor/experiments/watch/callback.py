"""The watch: passes events of the Trainer or a plain loop's optimizer, and the model's own calls, to their judges."""

import inspect
import math
from collections import deque
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from envdoctor.experiments.watch.signatures import Memory, event_of_log

try:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
except ImportError as error:  # pragma: no cover - a training script has it
    raise ImportError(f"envdoctor.experiments.watch needs torch 2.0 or newer in this environment: {error}") from error
try:
    from transformers import TrainerCallback
except ImportError:  # a plain loop needs none
    TrainerCallback = object

from envdoctor.experiments.watch.losses import bytes_of, describe, loss_of, shape_of
from envdoctor.experiments.watch.rerun import is_sharded, processes
from envdoctor.experiments.watch.steps import Steps, Teller, WatchedRun, scales

# The losses of an evaluation, batch by batch, which the Trainer's log shows as one number that may hide them.

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
        self._waiting: deque[tuple[int, Mapping[str, Any], Any]] = deque(maxlen=_WAITING)
        self._count = 0

    def after(self, batch: Mapping[str, Any], output: Any) -> None:
        """Note the loss of a batch; a call without a loss (generation) is not a batch of an evaluation."""
        loss = loss_of(output)
        if loss is not None:
            self.shape = shape_of(batch)
            self._waiting.append((self._count, batch, loss.detach()))
            self._count += 1

    def look(self, run: WatchedRun, *, end: bool) -> None:
        """Record the first batch whose loss is not finite, by its number from 0. At the ``end`` read all waiting
        losses; the next batch is then the first of another evaluation."""
        waiting = list(self._waiting)
        due = end or (waiting and waiting[-1][2].device.type == "cpu") or len(waiting) >= _WAITING
        if not due and sum(bytes_of(batch) for _, batch, _ in waiting) < _BYTES:
            return
        self._waiting.clear()
        self._count = 0 if end else self._count
        losses = torch.stack([loss.float() for _, _, loss in waiting]).tolist() if waiting else []
        bad = [entry for entry, loss in zip(waiting, losses, strict=True) if not math.isfinite(loss)]
        if not bad or "nan-eval-loss" in self._teller.kinds:
            return
        number, batch, _ = bad[0]
        facts = {"watch.batch": number, **describe(batch)}
        if self._rerun and facts.get("watch.label_tokens") != 0:
            # In the evaluation's own mode and without gradients.
            facts |= self._teller.examine(run.model, batch, again=not is_sharded(run.model), backward=False)
        self._teller.record(run, "nan-eval-loss", run.state.global_step, facts)


#: transformers 4.38 to 4.45 have no event between clipping and the optimizer's step: a hook of the optimizer stands in.
_TOLD_BEFORE_STEP = hasattr(TrainerCallback, "on_pre_optimizer_step")
#: Where torch.compile and DistributedDataParallel keep the model that they call.
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module"}
#: Micro-batches of a plain loop without a step, after which a bad loss is judged all the same: a loss scaler that skips
#: every step never lets the optimizer begin one.
_UNSTEPPED = 64


class RunStopped(SystemExit):
    """The watch stopped the run: raised where training ends, so that no script goes on to save what is bad. A script
    that does not catch it ends with exit code 1 and, instead of a traceback, with this message: what was found, and
    the flight record."""


class Watch(TrainerCallback):
    """Stops a run on the first loss or gradient that is not finite, says where it came from, and records it.

    A callback of the Trainer; a plain loop gives its model and runs within::

        with envdoctor.Watch(model, optimizer):
            for batch in batches: ...

    The steps are those of the ``optimizer``, by default of the first one that has weights of the model.
    ``folder`` takes the flight records (default: the Trainer's ``output_dir``, else the working directory). ``stop``
    False only records: the gradients stay as they are and the watch goes on, telling each kind of event once a run;
    else the run ends with :class:`RunStopped`. ``rerun`` False leaves the second run of the bad batch out; with several
    processes there is none. Findings go to the logger ``envdoctor.watch``; ``events`` holds what was seen since
    training began last, as dictionaries of ``watch.*`` facts. Steps are counted from 1.

    Every step costs a few operations: on the loss of the model's output and, after clipping, on one small gradient,
    else on a share of all (see :class:`~envdoctor.experiments.watch.rerun.Gradients`). The numbers stay on the device.
    They are read at once where the Trainer waits for it anyway (``logging_nan_inf_filter``, its default) or there is
    none, and in a plain loop, so that the bad step is examined and skipped before it reaches the weights; otherwise one
    step later, and the record says so. A step that a loss scaler skips (fp16) is the scaler's business, until there are
    too many in a row. A batch without a label that counts has a NaN loss that teaches nothing and harms nothing: it is
    told, and the run goes on. Batches of evaluations are watched alike, and stop nothing.
    """

    def __init__(
        self,
        model: Any = None,
        optimizer: Any = None,
        *,
        folder: str | None = None,
        stop: bool = True,
        rerun: bool = True,
    ) -> None:
        self.folder, self.stop, self.rerun = folder, stop, rerun
        self._given = (model, optimizer)
        self._loop: WatchedRun | None = None
        self._model: Any = None
        self._names: list[str] = []
        self._handles: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        """Forget the run before."""
        self._teller = Teller(self.folder)
        self._steps = Steps(self._teller, stop=self.stop, rerun=self.rerun)
        self._evaluation = Evaluation(self._teller, rerun=self.rerun)
        self._memory = Memory()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the events since training last began."""
        return self._teller.events

    # --- a plain loop ------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Watch":
        """Listen to the model and to the optimizer's steps. Raises TypeError without a model."""
        model, optimizer = self._given
        if model is None:
            raise TypeError("a plain loop is watched by `with envdoctor.Watch(model, optimizer):`")
        while inner := _WRAPPERS.get(type(model).__name__):
            model = getattr(model, inner)
        args = SimpleNamespace(max_grad_norm=None, logging_nan_inf_filter=True)
        control = SimpleNamespace(should_training_stop=False, should_save=False, should_evaluate=False)
        self._begin()
        self._listen(model)
        self._loop = WatchedRun(args, SimpleNamespace(global_step=0), control, model, optimizer)
        self._handles += [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Remove the hooks from both. Raises :class:`RunStopped` when the last step was bad."""
        loop, self._loop = self._loop, None
        self._listen(None)
        if loop is not None and kind is None:
            self._evaluation.look(loop, end=True)
            self.on_train_end(*loop[:3])

    def _loop_of(self, optimizer: Any) -> WatchedRun | None:
        """Return the loop if this optimizer's steps count: the given one's, else the first's with our weights."""
        loop = self._loop
        if loop is None or self._teller.busy:
            return None
        if loop.optimizer is None:
            ours = {id(parameter) for parameter in loop.model.parameters()}
            if any(id(weight) in ours for group in optimizer.param_groups for weight in group["params"]):
                self._loop = loop = loop._replace(optimizer=optimizer)
        return loop if getattr(loop.optimizer, "optimizer", loop.optimizer) is optimizer else None

    def _before_step(self, optimizer: Any, arguments: Any, options: Any) -> Any:
        """Look before the weights move; if a closure makes the gradients (Lightning, LBFGS), look within the step."""
        loop = self._loop_of(optimizer)
        if loop is None:
            return None
        inputs = {**dict(zip(["closure"], arguments[1:], strict=False)), **options}
        make = inputs.get("closure")
        if make is None:
            self._look(loop)
            return None

        def closure() -> Any:
            loss = make()
            if not self._steps.kept.losses:
                self._steps.kept.after({"loss": loss})
            self._look(loop)
            return loss

        return arguments[:1], {**inputs, "closure": closure}

    def _look(self, loop: WatchedRun) -> None:
        """Judge the step of a plain loop. Raises :class:`RunStopped`."""
        self._evaluation.look(loop, end=True)
        self._steps.look(loop, applied=False)
        self._stop_here()

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        loop = self._loop_of(optimizer)
        if loop is not None:
            loop.state.global_step += 1
            self.on_step_end(*loop)

    # --- the Trainer's events ----------------------------------------------------------------------------------------

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Listen to the model already: evaluation needs no training."""
        self._listen(model)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **kwargs: Any) -> None:
        """Listen to the model's own calls, which have batch and loss."""
        self._begin()
        self._listen(model)
        if not _TOLD_BEFORE_STEP:
            self._loop = WatchedRun(args, state, control, model, optimizer)
            self._handles.append(register_optimizer_step_pre_hook(self._before_step))

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Look after clipping, before the weights move."""
        self._steps.look(WatchedRun(args, state, control, model, optimizer), applied=False)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **kwargs: Any) -> None:
        """Read the step's numbers before anything is saved."""
        run = WatchedRun(args, state, control, model, optimizer)
        steps, skipped = self._steps, bool(getattr(optimizer, "step_was_skipped", False))
        if steps.kept.count:  # nobody told before the step
            steps.look(run, applied=not skipped)
        if control.should_save or control.should_evaluate:
            steps.read_late()
        still = steps.stands_still(skipped=skipped)
        if still is not None:
            self._teller.record(run, "weights-stand-still", state.global_step, {"watch.parameter": still})
        if steps.shape is not None and _on_cuda():
            held, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
            self._note_growth(run, self._memory.step(steps.shape, held, reserved))
        self._keep_from_saving(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Read the last step's numbers: the Trainer may save here as well."""
        self._steps.read_late()
        self._keep_from_saving(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, optimizer: Any, **kwargs: Any) -> None:
        """Record faults that the log hides: see :func:`envdoctor.experiments.watch.signatures.event_of_log`."""
        self._steps.read_late()  # the step that is logged, with its cause
        entry = logs if isinstance(logs, Mapping) else {}
        for key in ("loss", "grad_norm", "eval_loss"):
            value = entry.get(key)
            if isinstance(value, (int, float)) and math.isfinite(value) and (key != "loss" or value != 0.0):
                self._teller.last_finite[key] = float(value)
        event = event_of_log(entry)
        if event is None or self._steps.tripped:
            return
        run = WatchedRun(args, state, control, optimizer=optimizer)
        if event in ("infinite-norm", "nan-gradient") and scales(run):
            return
        if event == "zero-loss-zero-norm" and "labels-masked" in self._teller.kinds:
            return
        more = self._steps.explain_norm(state.global_step) if event == "infinite-norm" else {}
        self._teller.record(run, event, state.global_step, more)
        if event == "infinite-norm" and self.stop:
            self._steps.tripped = True
            self._keep_from_saving(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Look after each batch of an evaluation."""
        run = WatchedRun(args, state, control, model)
        self._evaluation.look(run, end=False)
        shape = self._evaluation.shape
        if shape is not None and _on_cuda():
            held = torch.cuda.memory_allocated()
            self._note_growth(run, self._memory.add("evaluation-memory-grows", shape, held))

    def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Look at the last batches of an evaluation."""
        self._evaluation.look(WatchedRun(args, state, control, model), end=True)
        self._memory.forget("evaluation-memory-grows")

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Read the last step; end a run that was stopped. Raises :class:`RunStopped`."""
        self._steps.read_late()
        self._stop_here()

    # --- the model's own calls ---------------------------------------------------------------------------------------

    def _listen(self, model: Any) -> None:
        """Listen to this model alone: copies of it carry the hooks along and do not concern this watch."""
        for handle in self._handles:
            handle.remove()
        self._model, self._handles = model, []
        if model is not None:
            self._names = list(inspect.signature(model.forward).parameters)
            self._handles = [
                model.register_forward_pre_hook(_not_compiled(self._before), with_kwargs=True),
                model.register_forward_hook(_not_compiled(self._after), with_kwargs=True),
            ]

    def _trains(self, module: Any) -> bool:
        """Return whether the call is for a step: without gradients it is a reference model's pass or a generation."""
        ours = module is self._model and not self._teller.busy and not self._steps.tripped
        return ours and module.training and torch.is_grad_enabled()

    def _batch(self, arguments: Any, options: dict[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self._names, arguments, strict=False)), **options}

    def _before(self, module: Any, arguments: Any, options: dict[str, Any]) -> None:
        if self._trains(module):
            self._steps.kept.before(module, self._batch(arguments, options))

    def _after(self, module: Any, arguments: Any, options: dict[str, Any], output: Any) -> None:
        losses, loop = self._steps.kept, self._loop
        if self._trains(module):
            losses.after(output)
            due = bool(losses.losses) and not losses.count % _UNSTEPPED and processes() == 1
            if loop is not None and due and not losses.mean().isfinite():
                self._look(loop)
        elif module is self._model and not self._teller.busy and not module.training:
            self._evaluation.after(self._batch(arguments, options), output)
            if loop is not None:
                self._evaluation.look(loop, end=False)

    # --- what both do ------------------------------------------------------------------------------------------------

    def _stop_here(self) -> None:
        if self._steps.tripped:
            raise RunStopped(f"envdoctor.watch stopped the run: {self._teller.summary}")

    def _keep_from_saving(self, control: Any) -> None:
        if self._steps.tripped:
            control.should_save = False
            control.should_training_stop = True

    def _note_growth(self, run: WatchedRun, growth: tuple[str, dict[str, Any]] | None) -> None:
        if growth is not None:
            event, facts = growth
            self._teller.record(run, event, run.state.global_step, facts)


def _on_cuda() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def _not_compiled(hook: Any) -> Any:
    """Return the hook, hidden from torch.compile's tracing: it has to see real batches and keep them."""
    return getattr(torch, "compiler", torch._dynamo).disable(hook)
