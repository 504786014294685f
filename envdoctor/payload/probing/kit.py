"""What every experiment is made of: rows of a table, how each is measured, and what an exception says about it.

Errors are measured against float64: relative, or in units of what rounding the exact result once would cost. A formula
in float64 gives the truth, never what is tested.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from itertools import islice
from typing import Any, Callable, Dict, NamedTuple  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..child import aside, give_back, is_out_of_memory, is_sticky

#: ``device``, ``suite``, ``dtype``, ``backend``, ``options``, ``model`` (a folder) and ``recipe``.
Job = Dict[str, Any]  # noqa: UP006
#: An experiment hands back one observation by calling it.
Emit = Callable[[Job], None]

#: The label of a token that does not count.
IGNORED = -100
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
    "Could not run 'aten::",  # an operator without a kernel for the device: grouped products on a CPU, torch 2.8
    "Expected attn_mask dtype",  # a float32 mask with half inputs, before torch 2.1
)


#: How often an operation is called again, on so many numbers at most: what is sick now and then shows more often.
_TIMES, _FEW = 4, 1 << 17
#: After so many rows what they leave behind is handed back.
_SOME = 100
#: How much further a part of a result may be off than all of it: a head, a sample, a block of rows. Healthy heads reach
#: 3.3 in bf16 where all are at 1.6 (quick grid, torch 2.13.0, one CPU).
_PART = 1.5
#: Units in which each number is judged by itself; of all but the first it must be exact, and gradients are whole.
_NUMBERS = ("element", "exact", "whole")
#: Rows of a result from which on its parts are judged: of fewer, a constant offset may cancel all but rounding, and
#: healthy kernels are 20 times off in one of 64 heads.
ENOUGH = 16


class Unavailable(Exception):
    """This release does not offer what the case is about; the message says what."""


class Case(NamedTuple):
    """A row of a table of experiments: its ``name``, what is done, the same in float64, with inputs of which shapes.

    ``function`` takes the inputs in ``dtype`` on the device, ``formula`` those numbers in float64 on the CPU (None: the
    function runs again, and must repeat itself). ``spread`` has deviation and mean of each input that is not a standard
    normal one, or what makes its numbers of normal ones; ``layouts`` what lays each out in memory; ``asks`` the places
    of those that have a gradient (None: all). The ``judge``
    "rounding" takes an output and its gradients, those in ``gate`` (none: all) against ``limit`` (pass, warn, why;
    None: those of the dtype), by the ``unit`` of :func:`compare`. "change" and "exact" take tensors by what is said of
    each when it is the worst, with {} for its error, as a share of the exact one or the largest difference, against the
    number ``limit``. ``params``, ``signature`` (the word for a violation) and ``kind`` are those of the observation.
    Without ``shapes`` the function takes nothing and gives what its judge takes. Errors as those of another release's
    interface are laid to the ``library``. The first row of a ``series`` has the plain setting: where it raises nothing,
    a setting that raises is not offered by this release.
    """

    name: str
    function: Any
    formula: Any = None
    shapes: tuple[tuple[int, ...], ...] = ()
    gate: str = "o"
    judge: str = "rounding"
    limit: Any = None
    dtype: str = "fp32"
    backend: str = "default"
    spread: Any = ()
    params: Any = ()
    signature: str = ""
    kind: str = "case"
    unit: str = "rms"
    layouts: Any = ()
    asks: Any = None
    library: str = ""
    series: str = ""


#: A row whose function compares two results itself.
pair = partial(Case, judge="change", backend="")


def of_rows(experiment: Callable[[Job], Iterable[Case]]) -> Callable[[Job, Emit], None]:
    """Make an experiment of a function that gives its rows."""

    @wraps(experiment)
    def run(job: Job, emit: Emit) -> None:
        run_rows(job, emit, experiment(job))

    return run


def in_parts(work: Callable[[Any], None], rows: Iterable[Any], size: int) -> None:
    """Do the work for so many rows after another, and hand back what each part leaves behind."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        aside(work, part)
        give_back()


def run_rows(job: Job, emit: Emit, rows: Iterable[Case]) -> None:
    """Emit one observation for each row, from the run's seed; one that cannot be measured says why."""
    in_parts(partial(_run_some, job, emit, {}), rows, _SOME)


def _run_some(job: Job, emit: Emit, plain: dict[str, Any], rows: list[Case]) -> None:
    for row in rows:
        fields = {name: getattr(row, name) for name in ("kind", "judge", "dtype", "backend", "signature")}
        tensors, limit = ("gate", "limits") if row.judge == "rounding" else ("tensors", "limit")
        fields.update({"case": row.name, tensors: row.gate.split(), limit: row.limit, "params": dict(row.params)})
        measures = attempt(partial(_tried, row, job) if row.shapes else row.function, job["device"], row.library)
        if row.series:
            measures = in_setting(measures, plain.setdefault(row.series, measures))
        emit({**{name: value for name, value in fields.items() if value not in (None, "")}, **measures})


def _tried(row: Case, job: Job) -> dict[str, Any]:
    try:
        return _measured(row, job)
    except AttributeError as error:
        raise Unavailable(f"this torch lacks it: {error}"[:300]) from error


def _measured(row: Case, job: Job) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(21 + 100_003 * seed_of(job))

    def normal(shape: Any) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float32)

    inputs = []
    for place, shape in enumerate(row.shapes):
        how = dict(row.spread).get(place, (1.0, 0.0))
        numbers = how(normal(shape)) if callable(how) else normal(shape) * how[0] + how[1]
        inputs.append(numbers.to(DTYPES[row.dtype]))
    layouts = [*row.layouts, *[lambda value: value] * len(inputs)]
    moved = [lay(value.to(job["device"])) for value, lay in zip(inputs, layouts)]
    if row.judge == "rounding":
        seed = generator.get_state()

        def upstream(shape: Any) -> Any:
            generator.set_state(seed)
            numbers = normal(shape)
            return numbers.round().clamp(-2, 2) if row.unit in _NUMBERS[1:] else numbers.to(torch.bfloat16)

        got = forward_backward(row.function, moved, upstream, row.asks)
        others = _others(row, moved, got["o"])
        del moved
        exact = (lay(value.double()).clone() for value, lay in zip(inputs, layouts))
        truth = forward_backward(row.formula, exact, upstream, row.asks)
        measures = compare({name: got[name] for name in row.gate.split() or got}, truth, row.unit)
        repeats = [compare({"o": other}, truth, row.unit) for other in others]
        for part in ("ratio", "nonfinite"):
            for repeat in repeats:
                if repeat[part].get("o", 0) > measures[part].get("o", 0):
                    measures[part]["o"] = repeat[part]["o"]
        if len(repeats) > 1:
            best = min(repeats, key=lambda repeat: [repeat[part].get("o", 0) for part in ("nonfinite", "ratio")])
            measures["again"] = {part: {**measures[part], **best[part]} for part in ("ratio", "nonfinite")}
            if "o" not in best["nonfinite"]:
                measures["again"]["nonfinite"].pop("o", None)
        return measures
    results = row.function(*moved)
    exact = row.formula(*(value.double() for value in inputs)) if row.formula else row.function(*moved).values()
    name, error = ("relative", relative) if row.judge == "change" else ("difference", _difference)
    errors = {detail: error(got, truth) for (detail, got), truth in zip(results.items(), exact)}
    worst = max(errors, key=lambda detail: (errors[detail] != errors[detail], errors[detail]))
    return {name: errors[worst], "detail": worst.format(f"{errors[worst]:.2g}")}


def _others(row: Case, inputs: list[Any], first: Any) -> list[Any]:
    """Return an output of the same call, without gradients, that is not the first one, and one of such a call that is
    not like it; nothing if all are alike. Calls with gradients and without may differ, two without may not."""
    last, untracked = None, torch.no_grad()(row.function)
    for _ in range(_TIMES if first.numel() <= _FEW else 1):
        out = untracked(*inputs)
        if not _alike(out, first):
            other = untracked(*inputs) if last is None else last
            return [out] if _alike(out, other) else [out, other]
        last = out
    return []


def _alike(first: Any, other: Any) -> bool:
    return bool(first.shape == other.shape and torch.equal(first, other))


def seed_of(job: Job) -> int:
    """Return the number that a run draws its shapes and inputs from; 0 where it was given none."""
    return int(job.get("seed") or 0)


def loaded_dtype(job: Job) -> str | None:
    """Return the half dtype in which the recipe loads and trains weights, if it does."""
    return _SPELLED.get(str(job["recipe"].get("load_dtype")).lower())


def attempt(measure: Callable[[], dict[str, Any]], device: str, library: str = "") -> dict[str, Any]:
    """Return what is measured for an observation, or why it was not; ``library`` is what errors as those of another
    release's interface are laid to."""
    try:
        return measure()
    except Unavailable as reason:
        return {"skip": str(reason)}
    except Exception as error:
        if library and isinstance(error, (ImportError, TypeError, AttributeError, ValueError, KeyError)):
            return {"error": f"{library} cannot run: {type(error).__name__}: {error}"[:500]}
        return failure(error, device)


def in_setting(measures: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Return what was found in a setting: an exception there says that this release does not offer it, where the
    ``plain`` setting of the same experiment raised none. What raises gives no wrong numbers."""
    if "error" not in measures or "error" in plain or measures.get("oom") or measures.get("sticky"):
        return measures
    return {"skip": f"not offered by this release, where the plain setting works: {measures['error']}"[:300]}


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
    """Return why an observation has no measure: ``skip``, or ``error`` with what it means."""
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
    """Compute products of float32 in float32, whatever the settings are; restore these afterwards."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def forward_backward(operation: Any, inputs: Any, upstream: Any = None, asks: Any = None) -> dict[str, Any]:
    """Return ``o`` and the gradients ``d0``, ``d1``, … of an operation, or those of the inputs in the places
    ``asks``; ``upstream`` gives the output's gradient for its shape (None: the output is one number)."""
    leaves = [value.detach().requires_grad_(asks is None or place in asks) for place, value in enumerate(inputs)]
    out = operation(*leaves)
    if out.requires_grad:
        out.backward(None if upstream is None else upstream(out.shape).to(out.device, out.dtype))
    gradients = {f"d{number}": leaf.grad for number, leaf in enumerate(leaves) if leaf.grad is not None}
    return {"o": out.detach(), **gradients}


def vector(model: Any, of: str = "grad") -> Any:
    """Return the gradients of all parameters of a model (or with ``of`` "data" these themselves) as one float64 vector
    on the CPU; zeros for a parameter that has none."""
    parts = [(parameter, getattr(parameter, of)) for parameter in model.parameters()]
    values = [torch.zeros_like(parameter) if part is None else part for parameter, part in parts]
    return torch.cat([part.detach().double().cpu().flatten() for part in values])


def relative(got: Any, exact: Any) -> float:
    """Return the norm of the error in units of the norm of the exact result; the norm itself where that result is 0."""
    got, exact = got.detach().double().cpu(), exact.detach().double().cpu()
    return float((got - exact).norm() / (exact.norm() if exact.any() else 1.0))


def _difference(got: Any, exact: Any) -> float:
    """Return the largest distance of two numbers."""
    return float((got.detach().double().cpu() - exact.detach().double().cpu()).abs().max())


def lost(tensor: Any) -> int:
    """Return how many values are not finite."""
    return int((~torch.isfinite(tensor.detach())).sum())


def compare(got: dict[str, Any], exact: dict[str, Any], unit: str = "rms") -> dict[str, Any]:
    """Return ``ratio``, ``nonfinite`` and ``unjudged`` for the judge ``rounding``, from tensors by name.

    The unit is the rms error of the exact result rounded once, or where each number is judged by itself ("element"; of
    "exact" and "whole" all tensors, of "element" the output) the step from one number of the dtype to the next.
    """
    measures: dict[str, Any] = {"ratio": {}, "nonfinite": {}, "unjudged": []}
    for name, tensor in got.items():
        truth = exact[name].detach().double().cpu()
        value = tensor.detach().double().cpu()
        if value.shape != truth.shape:
            measures["ratio"][name] = float(value.numel() + truth.numel())
        elif unit in _NUMBERS and (name == "o" or unit != "element"):
            _note_numbers(measures, name, value, truth.to(tensor.dtype).double(), tensor.dtype)
        elif name != "o" and truth.numel() < 2 * ENOUGH and tensor.dtype in (DTYPES["bf16"], DTYPES["fp16"]):
            measures["unjudged"].append(name)  # rounding of few numbers may cancel by chance
        else:
            note_error(measures, name, (value, truth, truth.to(tensor.dtype).double()), tensor.dtype)
            if name in measures["ratio"]:
                farthest = _farthest(value, truth, tensor.dtype)
                # Of few numbers the rounding of the exact result may be next to nothing by chance.
                few = truth.numel() < 2 * ENOUGH
                measures["ratio"][name] = 8 * farthest if few else max(measures["ratio"][name], farthest)
    return measures


def _note_numbers(measures: dict[str, Any], name: str, value: Any, truth: Any, dtype: Any) -> None:
    """Note the largest error of a number in steps of the dtype (1 for whole numbers); infinite ones must be alike."""
    finite = torch.isfinite(truth)
    if truth.numel() == 0:
        measures["unjudged"].append(name)
    elif lost(value[finite]):
        measures["nonfinite"][name] = lost(value[finite])
    else:
        step: Any = 1.0
        if dtype.is_floating_point:
            limits = torch.finfo(dtype)
            step = truth.abs().clamp_min_(max(limits.tiny, 1e-30)).mul_(limits.eps)
        off = (value - truth).abs_().div_(step)
        off[~finite] = (value != truth)[~finite].double() * 1e9
        measures["ratio"][name] = round(float(off.max()), 3)


def _farthest(value: Any, truth: Any, dtype: Any) -> float:
    """Return the error of the worst number, by which a single lost one shows among many: in units of eight steps at its
    own size, or at that of all where that is more."""
    limits = torch.finfo(dtype)
    size = truth.abs().clamp_min_(max(rms(truth), limits.tiny, 1e-30))
    worst = float((value - truth).abs_().div_(size).max())
    return round(worst / float(8 * limits.eps), 3)


def note_error(measures: dict[str, Any], name: str, numbers: tuple[Any, Any, Any], dtype: Any, block: int = 64) -> None:
    """Note the error of a tensor in units of the error that rounding alone must make (``ratio``), or how many of its
    values are ``nonfinite``, or that it is ``unjudged`` because its truth does not fit the dtype.

    ``numbers`` are those of the tensor, the truth, and the truth with that error, in float64. The ratio is that of the
    whole or, where that is more after a division by 1.5, that of its worst ``block`` of so many rows (0: none) in a
    sample and head: one wrong head of many is little in all of them together.
    """
    value, truth, rounded = numbers
    if truth.numel() == 0 or float(truth.abs().max()) > torch.finfo(dtype).max:
        measures["unjudged"].append(name)
    elif lost(value):
        measures["nonfinite"][name] = lost(value)
    else:
        squares = [(value - truth).square_(), (rounded - truth).square_(), truth.square()]
        ratio, size = _ratio([square.mean() for square in squares], dtype), rms(truth)
        if block and truth.dim() > 1 and truth.shape[-2] >= ENOUGH:
            count = max(1, truth.shape[-2] // block)
            rows = [square.mean(-1).tensor_split(count, -1) for square in squares]
            blocks = [torch.stack([block.mean(-1) for block in split]) for split in rows]
            ratio = max(ratio, _ratio(blocks, dtype, size) / _PART)
        measures["ratio"][name] = round(ratio, 3)


def _ratio(squares: list[Any], dtype: Any, least: float = 0.0) -> float:
    """Return the largest rms error in units of rounding, from mean squares of error, rounding and truth.

    5 % of an ulp of the truth, whose size is at ``least`` that of all of it, is the least to divide by: an exact zero
    must make no verdict of noise, nor must a block of zeros, as dq has where a row sees one key alone.
    """
    error, unit, size = (square.sqrt() for square in squares)
    return float((error / torch.maximum(unit, 0.05 * torch.finfo(dtype).eps * size.clamp_min(least) + 1e-30)).max())


def rms(values: Any) -> float:
    """Return the root of the mean square."""
    return float(values.square().mean().sqrt())


def growth(work: Callable[[int], None], cycles: Iterable[Iterable[int]], device: str) -> dict[str, Any]:
    """Return ``kib`` of an observation for the judge ``growth``: what is held after each cycle of work with lengths."""
    kib = []
    for lengths in cycles:
        for length in lengths:
            work(length)
        kib.append(_held_kib(device))
    return {"kib": kib}


def _held_kib(device: str) -> float:
    """Return KiB of the live tensors, after cycles were collected and the device has finished."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
    return (torch.cuda.memory_allocated() if device == "cuda" else _live_bytes()) / 1024.0


def _live_bytes() -> int:
    """Return bytes of the storages of all tensors that are alive."""
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
