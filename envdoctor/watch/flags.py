"""Whether loss and gradients of a step are finite: four flags on the device, the same ones on every process."""

from collections.abc import Iterator
from typing import Any

import torch

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
