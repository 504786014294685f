"""Short checks of single operations around a training step: optimizers, clipping, GradScaler, rms_norm, float32
products, the same numbers twice. The functions cite the bugs that they exist for, such as
https://github.com/pytorch/pytorch/pull/134106."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch.nn import functional

from ..probing.kit import Case, Job, Unavailable, full_precision, loaded_dtype, of_rows, offered, seed_of
from ..probing.shapes import HIDDEN, SIZES, drawn, each

PROBES = {
    "grad-clip": {"title": "gradient clipping in half precision"},
    "grad-scaler": {"title": "GradScaler, with gradients that are finite and not"},
    "optimizer-step": {"title": "optimizer steps against float64"},
    "repeatable": {"title": "the same numbers twice", "attention": "sdpa"},
    "rms-norm": {"title": "rms_norm at large inputs and with its default epsilon"},
    "tf32": {"title": "precision of float32 products"},
}

#: Gradients of 2048 x 2048 elements of standard deviation 44.7 have a norm of 91,500.
_SIZE, _DEVIATION = 2048, 44.7
#: Scale of a GradScaler, and what it becomes after an inf (torch.amp.GradScaler: backoff_factor).
_SCALE, _BACKOFF = 1024.0, 0.5
#: Relative error of a product of 512 terms: float32 gives some 1e-7, TF32 and bf16 passes 1e-4 and more.
_EXACT = 1e-5
#: How many tensors, and elements of the largest: below and above what those that step over many at once take into one
#: launch (aten/src/ATen/native/cuda/MultiTensorApply.cuh: 65,536 elements, 30 to 110 tensors).
_TENSORS: dict[str, Any] = {
    "tensors": (range(2, 24), range(32, 64), range(111, 130)),
    "largest": (range(17, 300), range(2049, 9000), range(65537, 90000)),
}
#: Deviations of the gradients of these tensors, one after another.
_GRADIENTS = (1e-2, 1e-6, 1e-3, 1.0, 10.0, 0.1)
#: What each step takes the gradients times; before the third the state is saved and loaded.
_FACTORS, _RESUMED = (1.0, -0.5, 2.0, 0.25, 1.5), 2
_STEPS = len(_FACTORS)
_RATE, _DECAY, _EPSILON, _BETAS, _MOMENTUM = 1e-2, 0.1, 1e-8, (0.9, 0.95), 0.9
#: Of the change of a parameter; seen: 1e-5, from rounding the parameter itself.
_STEP_LIMIT = 1e-3


change = partial(Case, judge="change")


@of_rows
def grad_clip(job: Job) -> Iterator[Case]:
    """Does clipping keep the direction of large gradients, in the dtype that the recipe trains in?

    A norm is computed in the gradients' dtype: in fp16 one above 65504 is inf although every gradient is finite, and
    ``clip_grad_norm_`` then writes 0 everywhere without a word: https://github.com/pytorch/pytorch/issues/46849. By
    design, and so information unless the recipe trains fp16 weights; in bf16 and fp32 the clipped gradients must have
    the norm that was asked for. And all of them are clipped: a model's matrices, norms and biases by the same factor,
    one by one and many at once (``foreach``), against float64: https://github.com/pytorch/pytorch/issues/140066.
    """

    def clipped(*values: Any, **how: Any) -> tuple[Any, list[Any]]:
        weights = [torch.nn.Parameter(torch.zeros_like(value)) for value in values]
        for weight, value in zip(weights, values):
            weight.grad = value.clone()  # clipping works in place
        return torch.nn.utils.clip_grad_norm_(weights, 1.0, **how), [weight.grad for weight in weights]

    def large(values: Any) -> dict[str, Any]:
        norm, (gradient,) = clipped(values)
        return {f"norm {float(norm):g}, afterwards {float(after := gradient.double().norm()):g}": after}

    def many(*values: Any, foreach: bool) -> dict[str, Any]:
        norm, after = clipped(*values, foreach=foreach)
        return {f"the norm, {float(norm):.6g}, is off by {{}}": norm, **_by_parameter("the gradient of", after)}

    def exact(*values: Any) -> list[Any]:
        total = torch.cat([value.flatten() for value in values]).norm()
        return [total, *(value / total for value in values)]

    size = round(_SIZE * _DEVIATION)
    title = f"a norm of {size} clipped to 1"
    once = change(title, large, lambda values: [torch.ones(())], ((_SIZE, _SIZE),), "gradients", limit=0.05)
    once = once._replace(spread={0: (_DEVIATION, 0.0)}, params={"norm": size}, signature="norm-overflows")
    by_design = "case" if loaded_dtype(job) == "fp16" else "info"
    for name in ("bf16", "fp32", "fp16"):
        yield once._replace(dtype=name, kind=by_design if name == "fp16" else "case")
    for sizes in drawn(seed_of(job), foreach=each(False, True), **_TENSORS):
        foreach, shapes = sizes["foreach"], _shapes(sizes)
        title = f"{len(shapes)} parameters up to {sizes['largest']}, " + ("at once" if foreach else "one by one")
        row = change(title, partial(many, foreach=foreach), exact, shapes, "gradients", limit=1e-4)
        backend = "foreach" if foreach else "default"
        yield row._replace(backend=backend, params={"foreach": foreach}, signature="clipping-differs")


@of_rows
def grad_scaler(job: Job) -> Iterator[Case]:
    """Does GradScaler keep its promises: gradients of the right size, no step with lost ones, a scale that falls?

    Training in fp16 multiplies the loss, divides the gradients again before clipping and the step, and leaves a step
    out when one of them is inf. https://docs.pytorch.org/docs/stable/notes/amp_examples.html; fused optimizers once
    stepped all the same: https://github.com/pytorch/pytorch/pull/96106.
    """
    kind = getattr(torch.amp, "GradScaler", None)

    def steps(value: Any, way: str) -> dict[str, Any]:
        if kind is None and job["device"] == "cpu":
            raise Unavailable("this torch has no GradScaler for a CPU (2.3 brought it)")
        weight = torch.nn.Parameter(value.clone())
        with offered(f"{way} AdamW"):
            optimizer = torch.optim.AdamW([weight], lr=1e-2, **{way: True})
        scaler: Any = kind(job["device"], init_scale=_SCALE) if kind else torch.cuda.amp.GradScaler(init_scale=_SCALE)

        def backward(factor: float) -> None:
            scaler.scale((weight**3).sum() * factor).backward()

        backward(1.0)
        scaler.unscale_(optimizer)
        gradient = weight.grad.clone()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        before, scale = weight.detach().clone(), float(scaler.get_scale())
        backward(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        after = float(scaler.get_scale())
        return {
            "gradients after unscale_ are off by {} of those of the loss": gradient,
            "a step with an inf is not left out: the parameters moved by {}": weight.detach() - before,
            f"the scale is {scale:g} before an inf and {after:g} after it": torch.tensor(after / scale),
        }

    def promised(value: Any) -> list[Any]:
        return [3 * value**2, torch.zeros_like(value), torch.tensor(_BACKOFF)]

    for way in ("foreach", "fused"):
        name = f"GradScaler with AdamW ({way})"
        row = change(name, partial(steps, way=way), promised, ((64,),), "gradients parameters", limit=1e-4, backend=way)
        yield row._replace(params={"optimizer": way}, signature="scaler")


@of_rows
def optimizer_step(job: Job) -> Iterator[Case]:
    """Do the optimizers of torch take the step that their papers say, for every parameter?

    Five steps of Adam, AdamW and SGD with momentum over few and many tensors, the largest small or of more elements
    than one launch takes, with gradients from 1e-6 to 10, as a loop, many at once (``foreach``) and fused, each against
    the formulas in float64; the last three after the state was saved and loaded again. A fused AdamW that learned worse
    than the others: https://github.com/pytorch/pytorch/issues/96755; one that took the weight decay of the other rule:
    https://github.com/flagos-ai/FlagGems/issues/4988.
    """
    adam = {"betas": _BETAS, "eps": _EPSILON}
    formulas: dict[str, tuple[Any, dict[str, Any]]] = {
        "AdamW": (partial(_adam, decoupled=True), adam),
        "Adam": (partial(_adam, decoupled=False), adam),
        "SGD": (_sgd, {"momentum": _MOMENTUM}),
    }

    def steps(*values: Any, name: str, way: str) -> dict[str, Any]:
        start, gradients = _split(values)
        weights = [torch.nn.Parameter(value.clone()) for value in start]
        how = {"foreach": False} if way == "loop" else {way: True}
        make = partial(getattr(torch.optim, name), weights, lr=_RATE, weight_decay=_DECAY, **formulas[name][1], **how)
        with offered(f"{way} {name}"):
            optimizer = make()
            for number, factor in enumerate(_FACTORS):
                if number == _RESUMED:
                    saved, optimizer = copy.deepcopy(optimizer.state_dict()), make()
                    optimizer.load_state_dict(saved)
                for place, (weight, gradient) in enumerate(zip(weights, gradients)):
                    weight.grad = None if _waits(place, number) else gradient * factor
                optimizer.step()
        return _by_parameter("the change of", [weight.detach() - value for weight, value in zip(weights, start)])

    def exact(*values: Any, formula: Any) -> list[Any]:
        start, gradients = _split(values)
        return [
            formula(value, [raw * factor for number, factor in enumerate(_FACTORS) if not _waits(place, number)])
            - value
            for place, (value, raw) in enumerate(zip(start, gradients))
        ]

    ways = each(*product(formulas, ("loop", "foreach", "fused")))
    for sizes in drawn(seed_of(job), way=ways, **_TENSORS):  # each way of each optimizer with each kind of sizes
        (name, way), shapes = sizes["way"], _shapes(sizes)
        title = f"{name} ({way}), {_STEPS} steps of {len(shapes)} tensors up to {sizes['largest']}"
        formula = partial(exact, formula=formulas[name][0])
        scales = [0.1 for _ in shapes] + [_GRADIENTS[place % 6] for place, _ in enumerate(shapes)]
        row = change(title, partial(steps, name=name, way=way), formula, shapes * 2, "parameters", limit=_STEP_LIMIT)
        row = row._replace(spread={place: (scale, 0.0) for place, scale in enumerate(scales)}, backend=way)
        yield row._replace(params={"optimizer": name.lower()}, signature="step-differs")


@of_rows
def repeatable(job: Job) -> Iterator[Case]:
    """Does the same computation give the same numbers twice?

    On the CPU a difference means a race (https://github.com/pytorch/pytorch/issues/188792: the first call of a vector
    maths library). On a GPU atomics in backward kernels may differ by right, and on most cards do: that is information.
    But the forward pass of attention must repeat, for out-of-bounds reads show there first
    (https://github.com/pytorch/pytorch/pull/171627: lengths that are no multiple of 128).
    """
    for length in (192, 261):
        for part, tensors in (("forward", "o"), ("backward", "gradients")):
            kind = "info" if job["device"] != "cpu" and part == "backward" else "case"
            shapes = ((2, 2, length, 64),) * 3 + ((64,),)
            row = Case(f"{part} twice, length {length}", partial(_once, part=part), None, shapes, tensors, "exact", 0.0)
            yield row._replace(dtype="bf16", params={"S": length}, signature="not-repeatable", kind=kind)


@of_rows
def rms_norm(job: Job) -> Iterator[Case]:
    """Is ``torch.nn.functional.rms_norm`` right for large inputs and with its own epsilon?

    Up to 2.5.1 it computed in the input's dtype: fp16 inputs of 300 give an error 4,800 times that of rounding
    (https://github.com/pytorch/pytorch/pull/134106, https://github.com/pytorch/pytorch/pull/147203), and its default
    epsilon was the dtype's, 0.0078 in bf16, which scales small activations by half
    (https://github.com/pytorch/pytorch/issues/189581). Gradients of weights that drop features, on some ROCm cards:
    https://github.com/pytorch/pytorch/issues/183861.
    """
    norm = getattr(functional, "rms_norm", None)
    if norm is None:
        yield Case("rms_norm", lambda: {"skip": "this torch has no rms_norm (2.4 brought it)"})
        return

    def exact(x: Any, weight: Any, epsilon: float = 1e-6) -> Any:
        return x * (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt() * weight

    axes: dict[str, Any] = {"dtype": each("bf16", "fp16"), "scale": each(1.0, 300.0), "rows": SIZES}
    axes["width"] = (*SIZES, *HIDDEN, range(4099, 8198))
    for sizes in drawn(seed_of(job), **axes):
        name, scale, rows, width = sizes.values()
        rows = min(rows, (1 << 17) // width)  # is quick
        title = f"{name} inputs x {scale:g}, {rows} rows of {width}"
        row = Case(
            title, lambda x, w: norm(x, w.shape, w, 1e-6), exact, ((rows, width), (width,)), "o d0 d1", dtype=name
        )
        yield row._replace(spread={0: (scale, 0.0), 1: (0.1, 1.0)}, params={"scale": scale})
    epsilon = torch.finfo(torch.float32).eps  # of every dtype
    for name in ("bf16", "fp16"):
        title = f"{name} default epsilon against fp32"
        row = change(title, lambda x: {"off by {}": norm(x, x.shape[-1:])}, lambda x: [exact(x, 1.0, epsilon)])
        row = row._replace(shapes=((8, 32),), spread={0: (0.05, 0.0)}, limit=0.05, dtype=name)
        yield row._replace(params={"epsilon": "default"}, signature="wrong-scale")


@of_rows
def tf32(job: Job) -> Iterator[Case]:
    """What do products of float32 really compute with, and do the switches agree with it?

    TF32 keeps 10 bits of the mantissa: harmless in most training, an explanation of many "float32 does not reproduce"
    reports, and a wrong reference for everybody who compares with float32. Not a bug: information, except when a switch
    says one thing and the numbers another. https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    detail = f"{torch.get_float32_matmul_precision()}: relative error {{}}"
    row = change("as set", lambda x, y: {detail: x @ y}, lambda x, y: [x @ y], ((512, 512),) * 2, limit=_EXACT)
    yield row._replace(kind="info")
    row = row._replace(name="float32 products at the highest precision", function=full_precision()(row.function))
    yield row._replace(params={"operation": "matmul"}, signature="inaccurate")


def _shapes(sizes: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Return shapes like those of a model: the largest first, then matrices, vectors and single numbers in turn."""
    small = ((33, 17), (64,), (1,), (5, 3), (0, 4), (9,))
    return ((sizes["largest"],), *(small[place % 6] for place in range(sizes["tensors"] - 1)))


def _waits(place: int, number: int) -> bool:
    """Return whether a parameter has no gradient at a step, as an expert that no token was sent to."""
    return number == 1 and place % 3 == 1


def _once(*inputs: Any, part: str) -> dict[str, Any]:
    q, k, v, weight = (value.clone().requires_grad_() for value in inputs)
    length = q.shape[2]
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()[None, None]
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    normed = functional.layer_norm(out, (64,), weight)
    product = functional.silu(normed.flatten(0, 2) @ normed.flatten(0, 2)[:64].T)
    if part == "forward":
        return {"attention is off by {}": out, "a product is off by {}": product}
    product.float().pow(2).mean().backward()
    return {f"the gradient of {name} is off by {{}}": leaf.grad for name, leaf in zip("qkvw", (q, k, v, weight))}


def _by_parameter(what: str, tensors: Iterable[Any]) -> dict[str, Any]:
    """Return the tensors by what is said of each parameter if it is the worst."""
    return {
        f"{what} parameter {place}, of shape {tuple(tensor.shape)}, is off by {{}}": tensor
        for place, tensor in enumerate(tensors)
    }


def _split(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return parameters and their gradients."""
    return values[: len(values) // 2], values[len(values) // 2 :]


def _adam(value: Any, gradients: list[Any], decoupled: bool) -> Any:
    """Return a parameter after steps of Adam (https://arxiv.org/abs/1711.05101, algorithm 2), decoupled or not."""
    first = second = torch.zeros_like(value)
    for number, raw in enumerate(gradients, 1):
        gradient = raw.double() if decoupled else raw.double() + _DECAY * value
        first = _BETAS[0] * first + (1 - _BETAS[0]) * gradient
        second = _BETAS[1] * second + (1 - _BETAS[1]) * gradient**2
        bound = (second / (1 - _BETAS[1] ** number)).sqrt() + _EPSILON
        kept = value * (1 - _RATE * _DECAY) if decoupled else value
        value = kept - _RATE * first / (1 - _BETAS[0] ** number) / bound
    return value


def _sgd(value: Any, gradients: list[Any]) -> Any:
    moved: Any = None
    for raw in gradients:
        gradient = raw.double() + _DECAY * value
        moved = gradient if moved is None else _MOMENTUM * moved + gradient
        value = value - _RATE * moved
    return value
