"""Run one batch again, with hooks, to name the module and the operation of the first number that is not finite."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch

from envdoctor.experiments.watch.losses import StepLosses, loss_of, tensors_of

# Whether loss and gradients of a step are finite: some numbers on the device, read by all processes alike.

#: Without clipping there is no norm: each step looks at one in so many parameters, in turn.
_SHARE = 16
#: Weights that a record names.
_NAMED = 8
#: The root of the largest number of float32.
_ROOT = 1.8e19
INF = float("inf")


def processes() -> int:
    """Return how many processes train together; 1 without torch.distributed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    return 1


def local(tensor: Any) -> Any:
    """Return this process's part of a tensor that is spread over processes, without its history."""
    plain = tensor.detach()
    return plain.to_local() if hasattr(plain, "to_local") else plain


class Gradients:
    """A look at few gradients every step, and at all of them if those few look odd.

    A norm that is NaN makes every clipped gradient NaN, an infinite one makes every finite gradient 0 and only the
    infinite ones NaN: so one small gradient tells, unless it is 0 for reasons of its own.
    """

    def __init__(self) -> None:
        self._sentinel: Any = None

    def look(self, model: Any, args: Any, step: int, losses: StepLosses) -> tuple[Any, Any] | None:
        """Return (numbers of all processes, numbers of this one): the largest loss, the largest magnitude of each
        gradient that was looked at, and last the smallest loss. An unknown loss is 0. In the numbers of all processes
        what is not finite is infinite. None if there was nothing to look at.

        Every process calls this in every step, or the others wait for ever.
        """
        gradients, mean = self._few(model, args, step), losses.mean()
        if mean is None and not gradients and processes() == 1:
            return None
        device = _device(model, [*([] if mean is None else [mean]), *gradients])
        loss = torch.zeros((), device=device) if mean is None else mean.to(device)
        own = torch.stack([loss, *(gradient.abs().max().to(device) for gradient in gradients), loss])
        if processes() == 1:
            return own, own
        largest = own[1:-1].max() if gradients else torch.zeros_like(loss)
        shared = torch.stack([loss, largest, -loss]).float().nan_to_num(INF, INF, INF)
        torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
        return shared * torch.tensor([1, 1, -1], device=device), own

    def any_bad(self, model: Any, *, applied: bool) -> tuple[bool, bool, bool]:
        """Return (on some process, on this one) whether a gradient, or once the step is ``applied`` a weight, is not
        finite; and whether every process has gradients and all of them are 0. Reads the device, and takes a sentinel
        that is not zero, because the gradient that raised the doubt may always be 0."""
        by_size = sorted(_with_gradients(model).values(), key=lambda weight: int(weight.numel()))
        better = next((weight for weight in by_size if bool((local(weight.grad) != 0).any())), None)
        self._sentinel = better if better is not None else self._sentinel
        own = not all(map(_finite, model.parameters() if applied else (weight.grad for weight in by_size)))
        return on_any(model, own), own, not on_any(model, better is not None or applied or not by_size)

    @staticmethod
    def bad(model: Any) -> list[str]:
        """Return the first weights whose gradients are not finite; none if no gradient is finite (a norm was NaN)."""
        weights = _with_gradients(model)
        bad = [name for name, weight in weights.items() if not _finite(weight.grad)]
        return bad[:_NAMED] if len(bad) < len(weights) else []

    def _few(self, model: Any, args: Any, step: int) -> list[Any]:
        """Return one small gradient if the run clips, else a share of all gradients, in turn."""
        clips = bool(args.max_grad_norm and args.max_grad_norm > 0)
        if clips and self._sentinel is not None and self._sentinel.grad is not None:
            return [local(self._sentinel.grad)]
        weights = list(_with_gradients(model).values())
        if clips and weights:
            self._sentinel = min(weights, key=lambda tensor: int(tensor.numel()))
            weights = [self._sentinel]
        elif weights:
            weights = weights[step % _SHARE :: _SHARE] or weights[-1:]
        return [tensor for tensor in (local(parameter.grad) for parameter in weights) if tensor.numel()]


def is_sharded(model: Any) -> bool:
    """Return whether a call of the model needs other processes: FSDP's tensors or DeepSpeed's ZeRO."""
    return any(hasattr(parameter, "to_local") or hasattr(parameter, "ds_id") for parameter in model.parameters())


def oversized_weight(model: Any) -> str | None:
    """Return the largest weight's name if its square is infinite in float32."""
    largest = {name: float(local(data).abs().max()) for name, data in model.named_parameters() if local(data).numel()}
    name = max(largest, key=largest.__getitem__, default=None)
    return name if name is not None and INF > largest[name] > _ROOT else None


def on_any(model: Any, flag: bool) -> bool:
    """Return whether the flag is set on some process. Every process calls this, or the others wait for ever."""
    if processes() == 1:
        return flag
    shared = torch.tensor(int(flag), device=_device(model, []))
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
    return bool(shared)


def _with_gradients(model: Any) -> dict[str, Any]:
    """Return the parameters with gradients by name; sparse gradients are left out."""
    pairs = ((name, weight) for name, weight in model.named_parameters() if weight.grad is not None and weight.numel())
    return {name: weight for name, weight in pairs if not weight.grad.is_sparse}


def _device(model: Any, tensors: list[Any]) -> Any:
    """Return the device for the numbers: one where processes can exchange them, else the one where they are."""
    if processes() > 1 and "nccl" in str(torch.distributed.get_backend()) and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if tensors:
        return tensors[0].device
    first = next(iter(model.parameters()), None)
    return first.device if first is not None else torch.device("cpu")


#: "Function 'MulBackward0' returned nan values in its 0th output."
_ANOMALY = re.compile(r"Function '(\w+)' returned nan values")
_FUSED = re.compile(r"Sdpa|Flash")


def examine(model: Any, batch: Mapping[str, Any], *, again: bool = True, backward: bool = True) -> dict[str, Any]:
    """Return the facts ``watch.where``, ``module``, ``module_class``, ``operation``, ``parameter`` and ``cured_by``.

    ``model`` is called with the batch some times, forward and backward; its gradients are overwritten and left
    empty, its weights, mode and random state are not touched. For an output without a loss, a loss of its logits stands
    in. ``backward`` False stays with the forward pass and leaves gradients alone, as an evaluation does. ``again``
    False calls nothing: only batch and weights are looked at, and ``where`` is absent if they are finite. After a
    failure in here ``where`` is ``failed``: a diagnosis must not end a run.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    try:
        facts = _present(model, batch)
        if facts or not again:
            return facts
        with torch.random.fork_rng(devices=devices), torch.set_grad_enabled(backward):
            facts = _trace(model, batch, backward)
            if facts["watch.where"] in ("forward", "backward"):
                cures = _cures(model)
                clean = [name for name, cure in cures if _runs_clean(model, batch, cure, backward)]
                facts["watch.cured_by"] = clean
        return facts
    except Exception as error:
        return {"watch.where": "failed", "problem": f"{type(error).__name__}: {error}"[:300]}
    finally:
        if again and backward:
            model.zero_grad(set_to_none=True)


def _present(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data or weights that are not finite before anything is computed."""
    tensors = {name: value for name, value in tensors_of(batch).items() if value.is_floating_point()}
    for name, value in tensors.items():
        # A mask that is added to logits hides a key by -inf.
        if not _finite(value.clamp(min=-1.0) if "mask" in name else value):
            return {"watch.where": "data", "watch.module": name}
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            owner = model.get_submodule(name.rpartition(".")[0])
            place = {"watch.module": name.rpartition(".")[0], "watch.module_class": type(owner).__name__}
            return {"watch.where": "weights", "watch.parameter": name, **place}
    return {}


def _objective(output: Any) -> tuple[Any, bool]:
    """Return the tensor that the backward pass starts from, and whether it is the model's own loss. Without such a loss
    (label smoothing, a loss function of the Trainer's) it is the mean square of the logits, whose gradient goes through
    the same operations; None without logits."""
    loss = loss_of(output)
    if loss is not None:
        return loss, True
    logits = getattr(output, "logits", None)
    if logits is None:
        logits = next((tensor for tensor in _tensors(output) if tensor.requires_grad), None)
    return (None if logits is None else logits.float().pow(2).mean()), False


def _finite(tensor: Any) -> bool:
    return bool(torch.isfinite(local(tensor)).all())


def _trace(model: Any, batch: Mapping[str, Any], backward: bool) -> dict[str, Any]:
    if backward:
        model.zero_grad(set_to_none=True)  # what the bad step left would be taken for this pass's
    with _noted(model, backward) as (bad_forward, bad_backward):
        loss, own = _objective(model(**batch))
        if backward and loss is not None and not bad_forward and _finite(loss):
            loss.backward()
    if bad_forward or (own and not _finite(loss)):
        return {"watch.where": "forward", **_module(bad_forward, model)}
    if loss is None:
        return {"watch.where": "unknown", "problem": "the model's output holds neither a loss nor logits"}
    gradients = {name: weight.grad for name, weight in _with_gradients(model).items()}
    bad = next((name for name, gradient in gradients.items() if not _finite(gradient)), None)
    if not backward or bad is None:
        norms = {name: torch.linalg.vector_norm(local(gradient)).cpu() for name, gradient in gradients.items()}
        if backward and norms and not _finite(torch.linalg.vector_norm(torch.stack(list(norms.values())))):
            return {"watch.where": "backward", "watch.parameter": max(norms, key=lambda name: float(norms[name]))}
        if own:
            return {"watch.where": "nothing"}
        problem = "the loss is computed outside the model, whose logits and their gradients are finite"
        return {"watch.where": "outside", "problem": problem}
    if not bad_backward:  # a hook of the user's on a weight, or a path around all modules
        place: dict[str, Any] = {"problem": f"no module was seen making it; the gradient of {bad} is not finite"}
    else:
        place = _module(bad_backward, model)
    return {"watch.where": "backward", **place, **_operation(model, batch)}


@contextmanager
def _noted(model: Any, backward: bool) -> Iterator[tuple[list[tuple[str, Any]], list[tuple[str, Any]]]]:
    """Yield two lists of modules that turn finite values into others: in the order of the forward pass the modules
    whose output is not finite, and in the order of the backward pass those that get a finite gradient and give a
    gradient of an input or a parameter that is not."""
    bad_forward: list[tuple[str, Any]] = []
    bad_backward: list[tuple[str, Any]] = []
    good_in: set[str] = set()
    good_gradient_out: dict[str, bool] = {}

    def went(name: str, gradient: Any) -> None:
        good_gradient_out[name] = good_gradient_out.get(name, True) and _finite(gradient)

    def arrived(name: str, module: Any, gradient: Any) -> None:
        if good_gradient_out.get(name) and not _finite(gradient):
            bad_backward.append((name, module))

    def runs(name: str, module: Any, arguments: Any, options: Any) -> Any:
        """Give the module its inputs as views of its own. Then each of the modules that share an input (q, k and v) has
        its own gradient, not the sum of all."""

        def own(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.requires_grad:
                value = value.view_as(value)
                if value.requires_grad:  # not in the first pass of gradient checkpointing
                    value.register_hook(partial(arrived, name, module))
            return value

        # A mask among them hides by -inf.
        good = all(_finite(tensor.clamp(min=-1.0)) for tensor in _tensors([arguments, options]))
        (good_in.add if good else good_in.discard)(name)
        return tuple(map(own, arguments)), {key: own(value) for key, value in options.items()}

    def ran(name: str, module: Any, arguments: Any, output: Any) -> None:
        outputs = list(_tensors(output))
        if name in good_in and not all(map(_finite, outputs)):
            bad_forward.append((name, module))
        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(partial(went, name))

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(runs, name), with_kwargs=True))
        handles.append(module.register_forward_hook(partial(ran, name)))
    uses = Counter(id(weight) for module in model.modules() for weight in module._parameters.values())
    for name, parameter in model.named_parameters():
        # The gradient of a weight that modules share is a sum: it does not tell whose part is bad.
        if parameter.requires_grad and backward and uses[id(parameter)] == 1:
            owner = name.rpartition(".")[0]
            handles.append(parameter.register_hook(partial(arrived, owner, model.get_submodule(owner))))
    try:
        yield bad_forward, bad_backward
    finally:
        for handle in handles:
            handle.remove()


def _operation(model: Any, batch: Mapping[str, Any]) -> dict[str, str]:
    """Return the operation that autograd's anomaly mode names, in a backward pass of its own."""
    import warnings

    model.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.autograd.detect_anomaly(check_nan=True):
                _objective(model(**batch))[0].backward()
        except RuntimeError as error:
            match = _ANOMALY.search(str(error))
            return {"watch.operation": match[1]} if match else {}
    return {}


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the floating-point tensors in nested outputs."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _module(modules: list[tuple[str, Any]], model: Any) -> dict[str, Any]:
    """Return the first of the modules: the hooks of a part run before those of the module around it."""
    name, module = modules[0] if modules else ("", model)
    return {"watch.module": name or "the model itself", "watch.module_class": type(module).__name__}


def _runs_clean(model: Any, batch: Mapping[str, Any], cure: Any, backward: bool) -> bool:
    """Return whether loss and gradients are finite with the cure; a cure that does not run or take effect fails."""
    if backward:
        model.zero_grad(set_to_none=True)
    try:
        with cure() as in_force:
            loss, _ = _objective(model(**batch))
            if loss is None or not _finite(loss):
                return False
            if backward:
                loss.backward()
            effect = in_force()
        return effect and (not backward or all(part.grad is None or _finite(part.grad) for part in model.parameters()))
    except Exception:
        return False


def _cures(model: Any) -> list[tuple[str, Callable[[], AbstractContextManager[Callable[[], bool]]]]]:
    """Return the cures to try before they are advised, by their words in ``watch.cured_by``.

    Releases of transformers choose the attention in two ways: since 4.48 from the configuration at every call, before
    that by the class of the attention module when it is built (``LlamaSdpaAttention`` beside ``LlamaAttention``). Both
    are changed for one call, and its calls of the fused kernel are counted.
    Each cure opens a context in which the model runs with it; the function that the context yields returns afterwards
    whether the cure was in force."""
    cures: list[tuple[str, Any]] = []
    if torch.cuda.is_available() and hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        cures.append(("cudnn-off", _without_cudnn))
    if any(getattr(config, "_attn_implementation", "eager") not in ("eager", None) for config in _configs(model)):
        cures.append(("eager", lambda: _eager(model)))
    return cures


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
    calls = 0
    fused = torch.nn.functional.scaled_dot_product_attention

    def counted(*arguments: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return fused(*arguments, **kwargs)

    changes: list[tuple[Any, str, Any]] = [(torch.nn.functional, "scaled_dot_product_attention", counted)]
    changes += [(config, "_attn_implementation", "eager") for config in _configs(model)]
    for module in model.modules():
        flags = (name for name in ("_use_sdpa", "_use_flash_attention_2") if module.__dict__.get(name) is True)
        changes += [(module, name, False) for name in flags]
        plain = _plain_class(type(module))
        changes += [(module, "__class__", plain)] if plain is not None else []
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    try:
        for place, name, value in changes:
            setattr(place, name, value)
        yield lambda: calls == 0
    finally:
        for place, name, value in reversed(before):
            setattr(place, name, value)


def _configs(model: Any) -> list[Any]:
    """Return the configurations of the model and of its parts, each once."""
    configs = [getattr(module, "config", None) for module in model.modules()]
    return list({id(config): config for config in configs if hasattr(config, "_attn_implementation")}.values())


def _plain_class(kind: type) -> type | None:
    """Return the class that computes attention plainly if this one takes a fused kernel; None for other modules."""
    if "Attention" not in kind.__name__ or not _FUSED.search(kind.__name__):
        return None
    parents = (base for base in kind.__mro__[1:] if "Attention" in base.__name__ and not _FUSED.search(base.__name__))
    return next(parents, None)
