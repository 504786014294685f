"""What every experiment is made of: what it is given, how a case is measured, and what an exception says about it.

Errors are measured against float64: relative, or in units of what rounding the exact result once would cost.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Dict  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..child import is_out_of_memory, is_sticky

#: ``device``, ``suite``, ``dtype``, ``backend``, ``options``, ``model`` (a folder) and ``recipe``.
Job = Dict[str, Any]  # noqa: UP006
#: An experiment hands back one observation by calling it.
Emit = Callable[[Job], None]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_SPELLED = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp16": "fp16", "bf16": "bf16"}
#: Texts of an exception with which torch says that a backend, or an argument, is not for these inputs.
_DECLINED = (
    "No available kernel",
    "No viable backend",
    "unexpected keyword",
    "is not supported",
    "only supports",
    "not implemented for",  # half on a CPU, before torch 2.2
    "Expected attn_mask dtype",  # a float32 mask with half inputs, before torch 2.1
)


class Unavailable(Exception):
    """This release does not offer what the case is about; the message says what."""


def judged(judge: str, signature: str, tensors: list[str], **more: Any) -> dict[str, Any]:
    """The part of observations for the judges ``exact`` and ``change`` that is said before anything is measured: the
    word for a violation and what is compared; ``more`` are their dtype, their limit and the like."""
    return {"judge": judge, "signature": signature, "tensors": tensors, **more}


def loaded_dtype(job: Job) -> str | None:
    """The half dtype in which the recipe loads and trains weights, if it does."""
    return _SPELLED.get(str(job["recipe"].get("load_dtype")).lower())


def wanted_dtypes(job: Job, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The dtype of the job, or the usual ones."""
    return (job["dtype"],) if job["dtype"] else usual


def found_by(measure: Callable[[], dict[str, Any]], device: str, library: str = "") -> dict[str, Any]:
    """What is measured for an observation, or why it was not; ``library`` is what such errors as those of another
    release's interface are laid to."""
    try:
        return measure()
    except Unavailable as reason:
        return {"skip": str(reason)}
    except Exception as error:
        if library and isinstance(error, (ImportError, TypeError, AttributeError, ValueError, KeyError)):
            return {"error": f"{library} cannot run: {type(error).__name__}: {error}"[:500]}
        return failure(error, device)


@contextmanager
def reported(emit: Emit, device: str, case: dict[str, Any], skipped: dict[str, Any]) -> Iterator[None]:
    """Emit a case with the reason why what is done inside gave up, ``skipped`` where it is not offered; the cases after
    it have theirs to tell. Only without memory the experiment ends."""
    try:
        yield
    except Unavailable as reason:
        emit({**skipped, "skip": str(reason)})
    except (torch.cuda.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        emit({**case, **failure(error, device)})


def failure(error: BaseException, device: str) -> dict[str, Any]:
    """The part of an observation that says why there is no measure: ``skip``, or ``error`` with what it means."""
    text = f"{type(error).__name__}: {error}"[:1000]
    if is_out_of_memory(error):
        return {"error": text, "oom": True}
    if device == "cuda" and is_sticky(error):
        return {"error": text, "sticky": True}
    if any(part in text for part in _DECLINED):
        return {"skip": str(error).strip().split("\n")[0][:300]}
    return {"error": text}


@contextmanager
def offered(what: str) -> Iterator[None]:
    """Raise :class:`Unavailable` for an exception that says that torch does not offer ``what`` here."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unavailable(f"{what} is not offered here: {error}"[:300]) from error


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 are computed in float32, whatever the settings are, which come back behind it."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def forward_backward(operation: Any, inputs: Any, upstream: Any = None) -> dict[str, Any]:
    """``o`` and the gradients ``d0``, ``d1``, … of an operation; ``upstream`` gives the output's gradient for its shape
    (None: the output is one number), which is cast to its dtype and device."""
    leaves = [value.detach().requires_grad_() for value in inputs]
    out = operation(*leaves)
    out.backward(None if upstream is None else upstream(out.shape).to(out.device, out.dtype))
    return {"o": out.detach(), **{f"d{number}": leaf.grad for number, leaf in enumerate(leaves)}}


def vector(model: Any, of: str = "grad") -> Any:
    """The gradients of all parameters of a model (or with ``of`` "data" these themselves) as one float64 vector on the
    CPU; zeros for a parameter that has none."""
    parts = [(parameter, getattr(parameter, of)) for parameter in model.parameters()]
    found = [torch.zeros_like(parameter) if part is None else part for parameter, part in parts]
    return torch.cat([part.detach().double().cpu().flatten() for part in found])


def relative(got: Any, exact: Any) -> float:
    """The norm of the error in units of the norm of the exact result."""
    got, exact = got.detach().double().cpu(), exact.detach().double().cpu()
    return float((got - exact).norm() / exact.norm())


def lost(tensor: Any) -> int:
    """How many values are not finite."""
    return int((~torch.isfinite(tensor.detach())).sum())


def compare(got: dict[str, Any], exact: dict[str, Any]) -> dict[str, Any]:
    """``ratio``, ``nonfinite`` and ``unjudged`` of an observation for the judge ``rounding``, from tensors by name.

    The unit is the rms error of the exact result rounded once.
    """
    found: dict[str, Any] = {"ratio": {}, "nonfinite": {}, "unjudged": []}
    for name, tensor in got.items():
        truth = exact[name].detach().double().cpu()
        note_error(found, name, tensor, (truth, truth.to(tensor.dtype).double()), tensor.dtype)
    return found


def note_error(found: dict[str, Any], name: str, tensor: Any, exact: tuple[Any, Any], dtype: Any) -> None:
    """Note the error of a tensor in units of the error that rounding alone must make (``ratio``), or how many of its
    values are ``nonfinite``, or that it is ``unjudged`` because its truth does not fit the dtype.

    ``exact`` are the truth and the truth with that error."""
    value, limits, (truth, rounded) = tensor.detach().to("cpu", torch.float64), torch.finfo(dtype), exact
    if truth.numel() == 0 or float(truth.abs().max()) > limits.max:
        found["unjudged"].append(name)
    elif lost(value):
        found["nonfinite"][name] = lost(value)
    else:
        found["ratio"][name] = round(rms(value - truth) / max(rms(rounded - truth), _least(rms(truth), dtype)), 3)


def part_ratio(value: Any, truth: Any, rounded: Any, dtype: Any) -> float:
    """The error of the worst matrix of a stack of them, in units of the error that rounding alone must make in it."""
    errors, units, sizes = ((part.square().mean((-1, -2)).sqrt()) for part in (value - truth, rounded - truth, truth))
    return float((errors / torch.maximum(units, _least(sizes, dtype))).max())


def _least(size: Any, dtype: Any) -> Any:
    """5 % of an ulp of a truth of this size, the least to divide by: an exact zero must make no verdict of noise."""
    return 0.05 * torch.finfo(dtype).eps * size + 1e-30


def rms(values: Any) -> float:
    """The root of the mean square."""
    return float(values.square().mean().sqrt())


def held_kib(device: str) -> float:
    """KiB of the tensors that are alive, after what circles hold was collected and the device has finished."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
    return (torch.cuda.memory_allocated() if device == "cuda" else _live_bytes()) / 1024.0


def _live_bytes() -> int:
    """Bytes of the storages of all tensors that are alive."""
    storages = {}
    for value in gc.get_objects():
        try:
            # type(), not isinstance(): deprecated stand-ins among the objects would warn when they are asked.
            if issubclass(type(value), torch.Tensor) and value.device.type == "cpu":
                storage = value.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        except (ReferenceError, RuntimeError, AttributeError, NotImplementedError):
            continue
    return sum(storages.values())
