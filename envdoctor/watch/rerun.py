"""Running one batch again, with hooks, to name the module and the operation of the first number that is not finite."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from envdoctor.watch.batch import tensors_of
from envdoctor.watch.flags import local

__all__ = ["examine"]

#: "Function 'MulBackward0' returned nan values in its 0th output."
_ANOMALY = re.compile(r"Function '(\w+)' returned nan values")


def examine(
    model: Any, batch: Mapping[str, Any], loss_of: Callable[[Any], Any], *, again: bool = True
) -> dict[str, Any]:
    """The facts ``watch.where``, ``module``, ``module_class``, ``operation``, ``parameter`` and ``cured_by``.

    ``model`` is called with the batch up to three times, forward and backward; its gradients are overwritten and left
    empty, its weights, mode and random state are not touched. ``loss_of`` takes the model's output to the loss; an
    output without one is searched with a loss of its logits. ``again`` False calls nothing: batch and weights
    alone are looked at, and ``where`` is absent when they are finite. What goes wrong in here is said in ``where`` as
    ``failed``: a diagnosis must not end a run.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    try:
        found = _present(model, batch)
        if found or not again:
            return found
        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            return _examine(model, batch, loss_of)
    except Exception as error:
        return {"watch.where": "failed", "problem": f"{type(error).__name__}: {error}"[:300]}
    finally:
        if again:
            model.zero_grad(set_to_none=True)


def _present(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What is not finite before anything is computed: data or weights."""
    bad = [name for name, value in tensors_of(batch).items() if value.is_floating_point() and not _finite(value)]
    if bad:
        return {"watch.where": "data", "watch.module": bad[0]}
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            owner = model.get_submodule(name.rpartition(".")[0])
            return {
                "watch.where": "weights",
                "watch.parameter": name,
                "watch.module": name.rpartition(".")[0],
                "watch.module_class": type(owner).__name__,
            }
    return {}


def _examine(model: Any, batch: Mapping[str, Any], loss_of: Callable[[Any], Any]) -> dict[str, Any]:
    objective = _Objective(loss_of)
    found = _trace(model, batch, objective)
    if found["watch.where"] in ("forward", "backward"):
        found["watch.cured_by"] = [
            name for name, context in _cures(model) if _runs_clean(model, batch, objective, context)
        ]
    return found


class _Objective:
    """What the backward pass starts from: the model's loss, or where it gives none (label smoothing, a loss function
    of the Trainer's) the mean square of its logits, whose gradient goes through the same operations."""

    def __init__(self, loss_of: Callable[[Any], Any]) -> None:
        self._loss_of = loss_of
        self.own = True

    def __call__(self, output: Any) -> Any:
        loss = self._loss_of(output)
        if loss is not None:
            return loss
        self.own = False
        logits = getattr(output, "logits", None)
        if logits is None:
            logits = next((one for one in _tensors(output) if one.requires_grad), None)
        return None if logits is None else logits.float().pow(2).mean()


def _finite(tensor: Any) -> bool:
    return bool(torch.isfinite(local(tensor)).all())


class _Trace:
    """Forward order of what is not finite, and of gradients in the order of the backward pass."""

    def __init__(self) -> None:
        self.forward: list[tuple[str, Any]] = []
        self.bad_out: set[str] = set()
        self.good_gradient_out: set[str] = set()
        self.backward: list[tuple[str, Any]] = []


def _trace(model: Any, batch: Mapping[str, Any], loss_of: _Objective) -> dict[str, Any]:
    trace = _Trace()
    handles = [module.register_forward_hook(_forward_hook(trace, name)) for name, module in model.named_modules()]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            owner = name.rpartition(".")[0]
            handles.append(parameter.register_hook(_gradient_hook(trace, owner, model.get_submodule(owner), "in")))
    model.zero_grad(set_to_none=True)  # what the bad step left would be taken for this pass's
    try:
        loss = loss_of(model(**batch))
        if loss is not None and not trace.forward and _finite(loss):
            loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    if trace.forward or (loss_of.own and not _finite(loss)):
        return {"watch.where": "forward", **_module(trace.forward, model)}
    if loss is None:
        return {"watch.where": "unknown", "problem": "the model's output holds neither a loss nor logits"}
    if all(parameter.grad is None or _finite(parameter.grad) for parameter in model.parameters()):
        if loss_of.own:
            return {"watch.where": "nothing"}
        problem = "the loss is computed outside the model, whose logits and their gradients are finite"
        return {"watch.where": "unknown", "problem": problem}
    if not trace.backward:  # a hook of the user's on a weight, or a path around all modules
        bad = next(name for name, one in model.named_parameters() if one.grad is not None and not _finite(one.grad))
        named: dict[str, Any] = {"problem": f"no module was seen making it; the gradient of {bad} is not finite"}
    else:
        named = _module(trace.backward, model)
    return {
        "watch.where": "backward",
        **named,
        **_operation(model, batch, loss_of),
    }


def _operation(model: Any, batch: Mapping[str, Any], loss_of: Callable[[Any], Any]) -> dict[str, str]:
    """The operation that autograd's anomaly mode names, in a backward pass of its own."""
    import warnings

    model.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.autograd.detect_anomaly(check_nan=True):
                loss_of(model(**batch)).backward()
        except RuntimeError as error:
            match = _ANOMALY.search(str(error))
            return {"watch.operation": match[1]} if match else {}
    return {}


def _forward_hook(trace: _Trace, name: str) -> Callable[..., None]:
    def hook(module: Any, arguments: Any, output: Any) -> None:
        inputs, outputs = list(_tensors(arguments)), list(_tensors(output))
        if not all(map(_finite, outputs)) and all(map(_finite, inputs)):
            trace.forward.append((name, module))
        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(_gradient_hook(trace, name, module, "out"))
        for tensor in inputs:
            if tensor.requires_grad:
                tensor.register_hook(_gradient_hook(trace, name, module, "in"))

    return hook


def _gradient_hook(trace: _Trace, name: str, module: Any, side: str) -> Callable[[Any], None]:
    """Notes a module whose outgoing gradient was finite and whose incoming one (of an input or a parameter) is not."""

    def hook(gradient: Any) -> None:
        if side == "out":
            if _finite(gradient):
                trace.good_gradient_out.add(name)
            else:
                trace.bad_out.add(name)
        elif name in trace.good_gradient_out and name not in trace.bad_out and not _finite(gradient):
            trace.backward.append((name, module))

    return hook


def _tensors(value: Any) -> Iterator[Any]:
    """Floating-point tensors in nested outputs."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _module(found: list[tuple[str, Any]], model: Any) -> dict[str, Any]:
    """The first that was noted: hooks of a part run before those of what contains it."""
    name, module = found[0] if found else ("", model)
    return {"watch.module": name or "the model itself", "watch.module_class": type(module).__name__}


def _cures(model: Any) -> list[tuple[str, Any]]:
    cures: list[tuple[str, Any]] = []
    if torch.cuda.is_available() and hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        cures.append(("cudnn-off", _without_cudnn()))
    config: Any = getattr(model, "config", None)
    if getattr(config, "_attn_implementation", "eager") != "eager" and hasattr(model, "set_attn_implementation"):
        cures.append(("eager", _eager(model, config._attn_implementation)))
    return cures


@contextlib.contextmanager
def _without_cudnn() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextlib.contextmanager
def _eager(model: Any, before: str) -> Iterator[None]:
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _runs_clean(model: Any, batch: Mapping[str, Any], loss_of: Callable[[Any], Any], context: Any) -> bool:
    """Whether loss and gradients are finite in the context; what cannot be run in it cures nothing."""
    model.zero_grad(set_to_none=True)
    try:
        with context:
            loss = loss_of(model(**batch))
            if loss is None or not _finite(loss):
                return False
            loss.backward()
        return all(parameter.grad is None or _finite(parameter.grad) for parameter in model.parameters())
    except Exception:
        return False
