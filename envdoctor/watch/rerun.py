"""Running one batch again, with hooks, to name the module and the operation of the first number that is not finite."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch

from envdoctor.watch.losses import loss_of, tensors_of

# Whether loss and gradients of a step are finite: four flags on the device, the same ones on every process.

#: Without clipping nobody computes a norm: each step looks at every so many parameters in turn.
_SHARE = 16
#: Gradients that are asked for a better sentinel.
_CANDIDATES = 16


def processes() -> int:
    """How many processes train together; 1 without torch.distributed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    return 1


def rank() -> int:
    """This process among them."""
    return int(torch.distributed.get_rank()) if processes() > 1 else 0


def local(tensor: Any) -> Any:
    """This process's part of a tensor that is spread over several, without its history."""
    plain = tensor.detach()
    return plain.to_local() if hasattr(plain, "to_local") else plain


class Gradients:
    """Looks at few gradients every step, and at all of them when those few look odd.

    A norm that is NaN makes every clipped gradient NaN, an infinite one makes every finite gradient 0 and only the
    infinite ones NaN: so one small gradient tells, unless it is 0 for reasons of its own.
    """

    def __init__(self) -> None:
        self._sentinel: Any = None

    def look(self, model: Any, args: Any, step: int, losses: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
        """(flags of all processes, flags of this one), each (a loss, a gradient that was looked at is not finite;
        the sentinel is zero; the loss is in order or not known); None when there was nothing to look at. ``losses``
        are the first and the last of them.

        Every process calls this in every step, or the others wait for ever.
        """
        looked = self._few(model, args, step)
        if losses is None and not looked and processes() == 1:
            return None
        device = _device(model, [*(losses or ()), *looked])
        off = torch.zeros((), dtype=torch.bool, device=device)
        loss, calm = (flag.to(device) for flag in losses) if losses is not None else (off, ~off)
        gradient = _any(model, looked).to(device)
        zero = (looked[0] == 0).all().to(device) if looked and _clips(args) and looked[0].numel() else off
        own = torch.stack([loss, gradient, zero, calm])
        return _of_all(own), own

    def any_bad(self, model: Any) -> tuple[bool, bool]:
        """Whether any gradient is not finite: (on some process, on this one). Reads the device, and takes a sentinel
        that is not zero, for the one that made somebody ask may never be anything else."""
        own = _any(model, [one for _, one in _all(model)])
        by_size = sorted(_all(model), key=lambda entry: int(entry[0].numel()))
        better = (parameter for parameter, one in by_size[:_CANDIDATES] if bool((one != 0).any()))
        self._sentinel = next(better, self._sentinel)
        return bool(_of_all(own)), bool(own)

    def _few(self, model: Any, args: Any, step: int) -> list[Any]:
        """With clipping one small gradient, without it a share of all, in turn."""
        if _clips(args) and self._sentinel is not None and self._sentinel.grad is not None:
            return [local(self._sentinel.grad)]
        found = list(_all(model))
        if not found:
            return []
        if _clips(args):
            self._sentinel, gradient = min(found, key=lambda entry: int(entry[0].numel()))
            return [gradient]
        gradients = [gradient for _, gradient in found]
        return gradients[step % _SHARE :: _SHARE] or gradients[-1:]


def is_sharded(model: Any) -> bool:
    """Whether a single call of the model makes processes talk: FSDP's tensors or DeepSpeed's ZeRO."""
    return any(hasattr(parameter, "to_local") or hasattr(parameter, "ds_id") for parameter in model.parameters())


def any_bad_weight(model: Any) -> tuple[bool, bool]:
    """Whether a weight is not finite: (on some process, on this one)."""
    own = _any(model, [local(parameter) for parameter in model.parameters()])
    return bool(_of_all(own)), bool(own)


def on_any(model: Any, found: bool) -> bool:
    """Whether it was found on some process. Every process calls this, or the others wait for ever."""
    return bool(_of_all(torch.tensor(found, device=_device(model, []))))


def _any(model: Any, tensors: list[Any]) -> Any:
    """A flag: whether one of the tensors is not finite."""
    device = _device(model, tensors)
    flags = [(~torch.isfinite(one).all()).to(device) for one in tensors]
    return torch.stack(flags).any() if flags else torch.zeros((), dtype=torch.bool, device=device)


def _clips(args: Any) -> bool:
    return bool(args.max_grad_norm and args.max_grad_norm > 0)


def _all(model: Any) -> Iterator[tuple[Any, Any]]:
    """Parameters and this process's part of their gradients; sparse gradients are left out."""
    for parameter in model.parameters():
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse and parameter.numel():
            yield parameter, local(gradient)


def _device(model: Any, tensors: list[Any]) -> Any:
    """Where the flags are put: where processes can exchange them, where the numbers are otherwise."""
    if processes() > 1 and "nccl" in str(torch.distributed.get_backend()) and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if tensors:
        return tensors[0].device
    first = next(iter(model.parameters()), None)
    return first.device if first is not None else torch.device("cpu")


def _of_all(flags: Any) -> Any:
    """All processes stop at the same step, or those that go on wait for ever."""
    if processes() == 1:
        return flags
    shared = flags.to(torch.int32)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
    return shared.bool()


#: "Function 'MulBackward0' returned nan values in its 0th output."
_ANOMALY = re.compile(r"Function '(\w+)' returned nan values")
_FUSED = re.compile(r"Sdpa|Flash")


def examine(model: Any, batch: Mapping[str, Any], *, again: bool = True, backward: bool = True) -> dict[str, Any]:
    """The facts ``watch.where``, ``module``, ``module_class``, ``operation``, ``parameter`` and ``cured_by``.

    ``model`` is called with the batch some times, forward and backward; its gradients are overwritten and left
    empty, its weights, mode and random state are not touched. An output without a loss is searched with a loss of its
    logits. ``backward`` False stays with the forward pass and leaves gradients alone, as an evaluation does. ``again``
    False calls nothing: batch and weights alone are looked at, and ``where`` is absent when they are finite. What goes
    wrong in here is said in ``where`` as ``failed``: a diagnosis must not end a run.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    try:
        found = _present(model, batch)
        if found or not again:
            return found
        objective = _Objective()
        with torch.random.fork_rng(devices=devices), torch.set_grad_enabled(backward):
            found = _trace(model, batch, objective, backward)
            if found["watch.where"] in ("forward", "backward"):
                cures = _cures(model)
                clean = [name for name, cure in cures if _runs_clean(model, batch, objective, cure, backward)]
                found["watch.cured_by"] = clean
        return found
    except Exception as error:
        return {"watch.where": "failed", "problem": f"{type(error).__name__}: {error}"[:300]}
    finally:
        if again and backward:
            model.zero_grad(set_to_none=True)


def _present(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What is not finite before anything is computed: data or weights."""
    given = {name: value for name, value in tensors_of(batch).items() if value.is_floating_point()}
    for name, value in given.items():
        # A mask that is added to logits hides a key by -inf.
        if not _finite(value.clamp(min=-1.0) if "mask" in name else value):
            return {"watch.where": "data", "watch.module": name}
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            owner = model.get_submodule(name.rpartition(".")[0])
            place = {"watch.module": name.rpartition(".")[0], "watch.module_class": type(owner).__name__}
            return {"watch.where": "weights", "watch.parameter": name, **place}
    return {}


class _Objective:
    """What the backward pass starts from: the model's loss, or where it gives none (label smoothing, a loss function
    of the Trainer's) the mean square of its logits, whose gradient goes through the same operations."""

    def __init__(self) -> None:
        self.own = True

    def __call__(self, output: Any) -> Any:
        loss = loss_of(output)
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


def _trace(model: Any, batch: Mapping[str, Any], objective: _Objective, backward: bool) -> dict[str, Any]:
    trace = _Trace()
    handles = [module.register_forward_hook(partial(_ran, trace, name)) for name, module in model.named_modules()]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and backward:
            owner = name.rpartition(".")[0]
            handles.append(parameter.register_hook(partial(_arrived, trace, owner, model.get_submodule(owner), "in")))
    if backward:
        model.zero_grad(set_to_none=True)  # what the bad step left would be taken for this pass's
    try:
        loss = objective(model(**batch))
        if backward and loss is not None and not trace.forward and _finite(loss):
            loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    if trace.forward or (objective.own and not _finite(loss)):
        return {"watch.where": "forward", **_module(trace.forward, model)}
    if loss is None:
        return {"watch.where": "unknown", "problem": "the model's output holds neither a loss nor logits"}
    if not backward or all(one.grad is None or _finite(one.grad) for one in model.parameters()):
        if objective.own:
            return {"watch.where": "nothing"}
        problem = "the loss is computed outside the model, whose logits and their gradients are finite"
        return {"watch.where": "unknown", "problem": problem}
    if not trace.backward:  # a hook of the user's on a weight, or a path around all modules
        bad = next(name for name, one in model.named_parameters() if one.grad is not None and not _finite(one.grad))
        named: dict[str, Any] = {"problem": f"no module was seen making it; the gradient of {bad} is not finite"}
    else:
        named = _module(trace.backward, model)
    return {"watch.where": "backward", **named, **_operation(model, batch, objective)}


def _operation(model: Any, batch: Mapping[str, Any], objective: _Objective) -> dict[str, str]:
    """The operation that autograd's anomaly mode names, in a backward pass of its own."""
    import warnings

    model.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.autograd.detect_anomaly(check_nan=True):
                objective(model(**batch)).backward()
        except RuntimeError as error:
            match = _ANOMALY.search(str(error))
            return {"watch.operation": match[1]} if match else {}
    return {}


def _ran(trace: _Trace, name: str, module: Any, arguments: Any, output: Any) -> None:
    """Hook: the module has made its output of its arguments."""
    inputs, outputs = list(_tensors(arguments)), list(_tensors(output))
    if not all(map(_finite, outputs)) and all(map(_finite, inputs)):
        trace.forward.append((name, module))
    for side, tensors in (("out", outputs), ("in", inputs)):
        for tensor in tensors:
            if tensor.requires_grad:
                tensor.register_hook(partial(_arrived, trace, name, module, side))


def _arrived(trace: _Trace, name: str, module: Any, side: str, gradient: Any) -> None:
    """Hook: note a module whose outgoing gradient was finite and whose incoming one (of an input or a parameter) is
    not."""
    if side == "out":
        (trace.good_gradient_out if _finite(gradient) else trace.bad_out).add(name)
    elif name in trace.good_gradient_out and name not in trace.bad_out and not _finite(gradient):
        trace.backward.append((name, module))


def _tensors(value: Any) -> Iterator[Any]:
    """Floating-point tensors in nested outputs."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _module(found: list[tuple[str, Any]], model: Any) -> dict[str, Any]:
    """The first that was noted: hooks of a part run before those of what contains it."""
    name, module = found[0] if found else ("", model)
    return {"watch.module": name or "the model itself", "watch.module_class": type(module).__name__}


def _runs_clean(model: Any, batch: Mapping[str, Any], objective: _Objective, cure: Any, backward: bool) -> bool:
    """Whether loss and gradients are finite with the cure; what cannot be run, or was not in force, cures nothing."""
    if backward:
        model.zero_grad(set_to_none=True)
    try:
        with cure() as in_force:
            loss = objective(model(**batch))
            if loss is None or not _finite(loss):
                return False
            if backward:
                loss.backward()
            tried = in_force()
        return tried and (not backward or all(one.grad is None or _finite(one.grad) for one in model.parameters()))
    except Exception:
        return False


def _cures(model: Any) -> list[tuple[str, Callable[[], AbstractContextManager[Callable[[], bool]]]]]:
    """The cures that can be tried here before they are advised, by the words of the fact ``watch.cured_by``: attention
    without cuDNN, eager attention.

    Releases of transformers choose the attention in two ways: since 4.48 from the configuration at every call, before
    that by the class of the attention module when it is built (``LlamaSdpaAttention`` beside ``LlamaAttention``). Both
    are changed for one call, and whether that took the fused kernel out of it is counted, not believed.
    Each opens a context in which the model runs with it; what the context gives says afterwards whether it was in
    force."""
    found: list[tuple[str, Any]] = []
    if torch.cuda.is_available() and hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        found.append(("cudnn-off", _without_cudnn))
    if any(getattr(config, "_attn_implementation", "eager") not in ("eager", None) for config in _configs(model)):
        found.append(("eager", lambda: _eager(model)))
    return found


@contextmanager
def _without_cudnn() -> Iterator[Callable[[], bool]]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield lambda: before
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextmanager
def _eager(model: Any) -> Iterator[Callable[[], bool]]:
    chosen = [(config, config._attn_implementation) for config in _configs(model)]
    flags = [
        (module, name)
        for module in model.modules()
        for name in ("_use_sdpa", "_use_flash_attention_2")
        if module.__dict__.get(name) is True
    ]
    classes = [(module, type(module)) for module in model.modules() if _plain_class(type(module)) is not None]
    calls = 0
    fused = torch.nn.functional.scaled_dot_product_attention

    def counted(*arguments: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return fused(*arguments, **kwargs)

    torch.nn.functional.scaled_dot_product_attention = counted
    try:
        for config, _ in chosen:
            config._attn_implementation = "eager"
        for module, name in flags:
            setattr(module, name, False)
        for module, kind in classes:
            module.__class__ = _plain_class(kind)
        yield lambda: calls == 0
    finally:
        torch.nn.functional.scaled_dot_product_attention = fused
        for module, kind in classes:
            module.__class__ = kind
        for module, name in flags:
            setattr(module, name, True)
        for config, before in reversed(chosen):
            config._attn_implementation = before


def _configs(model: Any) -> list[Any]:
    """Configurations of the model and of its parts, each once."""
    found = [getattr(module, "config", None) for module in model.modules()]
    return list({id(config): config for config in found if hasattr(config, "_attn_implementation")}.values())


def _plain_class(kind: type) -> type | None:
    """The class that computes attention plainly where this one takes a fused kernel; None for every other module."""
    if "Attention" not in kind.__name__ or not _FUSED.search(kind.__name__):
        return None
    parents = (one for one in kind.__mro__[1:] if "Attention" in one.__name__ and not _FUSED.search(one.__name__))
    return next(parents, None)
