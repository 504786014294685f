"""Short checks of single operations around a training step: optimizers, clipping, GradScaler, ignored labels, rms_norm,
float32 products, the same numbers twice. The functions cite the bugs that they exist for, such as
https://github.com/pytorch/pytorch/pull/134106."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from ..probing.kit import (
    DTYPES,
    Emit,
    Job,
    Unavailable,
    compare,
    forward_backward,
    full_precision,
    judged,
    loaded_dtype,
    lost,
    offered,
    relative,
)

PROBES = {
    "grad-clip": {"title": "gradient clipping in half precision"},
    "grad-scaler": {"title": "GradScaler, with gradients that are finite and not"},
    "label-mask": {"title": "samples whose labels are all ignored"},
    "optimizer-step": {"title": "optimizer steps against float64"},
    "repeatable": {"title": "the same numbers twice", "attention": "sdpa"},
    "rms-norm": {"title": "rms_norm at large inputs and with its default epsilon"},
    "tf32": {"title": "precision of float32 products"},
}

#: Gradients of 2048 x 2048 elements of standard deviation 44.7 have a norm of 91,500.
_SIZE, _DEVIATION = 2048, 44.7
#: Like those of a model: an embedding, a matrix and its bias, a norm, one number.
_SHAPES = ((97, 33), (33, 65), (65,), (33,), (1,))
#: A norm of a small model is as wide; fused kernels take another way than for rows of 64.
_SCALE, _WIDTH = 1024.0, 2048
#: Relative error of a product of 512 terms: float32 gives some 1e-7, TF32 and bf16 passes 1e-4 and more.
_EXACT = 1e-5
#: What optimizers step over: parameters of these shapes, with gradients of these sizes.
#: More tensors, and one of more elements, than optimizers that step over many at once take into one launch
#: (aten/src/ATen/native/cuda/MultiTensorApply.cuh: 65,536 elements, 30 to 110 tensors).
_PARAMETERS = (((33, 17), 1e-6), ((64,), 1e-3), ((5, 3), 1.0), ((1,), 10.0), ((300, 300), 1e-2), *[((9,), 0.1)] * 36)
_STEPS, _RESUMED = 5, 2
_RATE, _DECAY, _EPSILON, _BETAS, _MOMENTUM = 1e-2, 0.1, 1e-8, (0.9, 0.95), 0.9
#: Of the change of a parameter; seen: 1e-5, from rounding the parameter itself.
_STEP_LIMIT = 1e-3


def grad_clip(job: Job, emit: Emit) -> None:
    """Does clipping keep the direction of large gradients, in the dtype that the recipe trains in?

    A norm is computed in the gradients' dtype: in fp16 one above 65504 is inf although every gradient is finite, and
    ``clip_grad_norm_`` then writes 0 everywhere without a word: https://github.com/pytorch/pytorch/issues/46849. By
    design, and so information unless the recipe trains fp16 weights; in bf16 and fp32 the clipped gradients must have
    the norm that was asked for. And all of them are clipped: a model's matrices, norms and biases by the same factor,
    one by one and many at once (``foreach``), against float64: https://github.com/pytorch/pytorch/issues/140066.
    """
    values = _normal(2, (_SIZE, _SIZE))[0] * _DEVIATION
    for name in ("bf16", "fp32", "fp16"):
        weight = torch.nn.Parameter(torch.zeros(_SIZE, _SIZE, dtype=DTYPES[name], device=job["device"]))
        weight.grad = values.to(DTYPES[name]).to(job["device"]).clone()  # clipping works in place
        true = float(weight.grad.double().norm())
        norm = float(torch.nn.utils.clip_grad_norm_([weight], 1.0))
        after = float(weight.grad.double().norm())
        case = judged("change", "norm-overflows", ["gradients"], dtype=name, backend="default", limit=0.05)
        case.update(case=f"a norm of {true:.0f} clipped to 1", params={"norm": round(true)})
        if name == "fp16" and loaded_dtype(job) != "fp16":
            case["kind"] = "info"
        emit({**case, "relative": abs(after - 1.0), "detail": f"norm {norm:g}, afterwards {after:g}"})
    drawn = _normal(9, *_SHAPES)
    total = torch.cat([value.double().flatten() for value in drawn]).norm()
    for foreach in (False, True):
        weights = [torch.nn.Parameter(torch.zeros_like(value, device=job["device"])) for value in drawn]
        for weight, value in zip(weights, drawn):
            weight.grad = value.clone().to(job["device"])
        said = torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=foreach)
        errors = [relative(weight.grad, value.double() / total) for weight, value in zip(weights, drawn)]
        case = judged("change", "clipping-differs", ["gradients"], dtype="fp32", limit=1e-4)
        case.update(case=f"{len(drawn)} parameters, " + ("at once" if foreach else "one by one"))
        case.update(params={"foreach": foreach}, backend="foreach" if foreach else "default")
        told = f"a norm of {float(said):.6g} where it is {float(total):.6g}; off by {max(errors):.2g}"
        emit({**case, "relative": max(abs(float(said) / float(total) - 1), *errors), "detail": told})


def grad_scaler(job: Job, emit: Emit) -> None:
    """Does torch's GradScaler keep its promises: gradients of the right size, no step with lost ones, a scale that
    falls?

    Training in fp16 multiplies the loss, divides the gradients again before clipping and the step, and leaves a step
    out when one of them is inf. https://docs.pytorch.org/docs/stable/notes/amp_examples.html; fused optimizers once
    stepped all the same: https://github.com/pytorch/pytorch/pull/96106.
    """
    made = getattr(torch.amp, "GradScaler", None)
    if made is None and job["device"] == "cpu":
        emit({"case": "GradScaler", "skip": "this torch has no GradScaler for a CPU (2.3 brought it)"})
        return
    for way in ("foreach", "fused"):
        weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 64, device=job["device"]))
        common: dict[str, Any] = {"dtype": "fp32", "backend": way, "signature": "scaler", "params": {"optimizer": way}}
        try:
            with offered(f"{way} AdamW"):
                optimizer = torch.optim.AdamW([weight], lr=1e-2, **{way: True})
        except Unavailable as reason:
            emit({"case": f"AdamW ({way})", "skip": str(reason), **common})
            continue
        scaler: Any = made(job["device"], init_scale=_SCALE) if made else torch.cuda.amp.GradScaler(init_scale=_SCALE)
        _backward(scaler, weight, 1.0)
        scaler.unscale_(optimizer)
        case = {"judge": "change", "tensors": ["gradients"], "limit": 1e-4, "detail": "not those of the loss"}
        case["relative"] = relative(weight.grad, 3 * weight.detach() ** 2)
        emit({**common, "case": f"gradients after unscale_ ({way})", **case})
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        before, scale = weight.detach().clone(), float(scaler.get_scale())
        _backward(scaler, weight, float("inf"))
        scaler.step(optimizer)
        scaler.update()
        kept, fallen = torch.equal(before, weight.detach()), float(scaler.get_scale())
        common.update(judge="exact", tensors=["parameters"])
        told = "they stayed" if kept else "the parameters moved"
        emit({**common, "case": f"a step with an inf is left out ({way})", "equal": kept, "detail": told})
        told = f"{scale:g} before, {fallen:g} after"
        emit({**common, "case": f"the scale falls after an inf ({way})", "equal": fallen < scale, "detail": told})


def label_mask(job: Job, emit: Emit) -> None:
    """What does a sample without a single label that counts do to the loss?

    The mean of a cross entropy over ignored labels is 0/0 = NaN, by design since torch 1.11
    (https://github.com/pytorch/pytorch/issues/70348, https://github.com/pytorch/pytorch/issues/116349). Its gradient is
    0, so a batch of its own is lost silently, which is information; beside others it must not matter. That is what is
    checked: the batch's loss and gradients stay finite and those of the other sample.
    """
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(2, 12, 97, generator=generator).to(job["device"])
    labels = torch.randint(0, 97, (2, 12), generator=generator).to(job["device"])
    labels[1] = -100

    def masked_loss(samples: slice) -> Any:
        def loss(given: Any) -> Any:
            return functional.cross_entropy(given.flatten(0, 1), labels[samples].flatten(), ignore_index=-100)

        found = forward_backward(loss, [logits[samples]])
        return found["o"], found["d0"]

    loss, gradient = masked_loss(slice(None))
    _, alone = masked_loss(slice(1))
    difference = relative(gradient[:1], alone) + float(gradient[1].abs().sum())
    case = judged("change", "label-mask", ["loss", "gradients"], dtype="fp32", backend="default", limit=1e-5)
    case.update(case="beside a sample with labels", params={"labels": "one sample of two"})
    emit({**case, "relative": "nan" if lost(loss) or lost(gradient) else difference})
    loss, gradient = masked_loss(slice(1, None))
    told = f"loss {float(loss)}, sum of gradients {float(gradient.abs().sum())}: NaN and 0 by design"
    emit({"kind": "info", "case": "a batch of such samples alone", "dtype": "fp32", "detail": told})


def optimizer_step(job: Job, emit: Emit) -> None:
    """Do the optimizers of torch take the step that their papers say, for every parameter?

    Five steps of Adam, AdamW and SGD with momentum over matrices, vectors and one number, with gradients from 1e-6 to
    10, as a loop, many at once (``foreach``) and fused, each against the formulas in float64; the last three after the
    state was saved and loaded again. A fused AdamW that learned worse than the others:
    https://github.com/pytorch/pytorch/issues/96755; one that took the weight decay of the other rule:
    https://github.com/flagos-ai/FlagGems/issues/4988.
    """
    generator = torch.Generator().manual_seed(61)
    start = [0.1 * torch.randn(*shape, generator=generator) for shape, _ in _PARAMETERS]
    gradients = [
        [size * torch.randn(*shape, generator=generator) for shape, size in _PARAMETERS] for _ in range(_STEPS)
    ]
    for name, formula, settings in (
        ("AdamW", partial(_adam, decoupled=True), {"betas": _BETAS, "eps": _EPSILON}),
        ("Adam", partial(_adam, decoupled=False), {"betas": _BETAS, "eps": _EPSILON}),
        ("SGD", _sgd, {"momentum": _MOMENTUM}),
    ):
        exact = [formula(value.double(), [step[place] for step in gradients]) for place, value in enumerate(start)]
        for way in ("loop", "foreach", "fused"):
            case = judged("change", "step-differs", ["parameters"], dtype="fp32", backend=way, limit=_STEP_LIMIT)
            case.update(case=f"{name} ({way}), {_STEPS} steps", params={"optimizer": name.lower()})
            chosen = {"foreach": False} if way == "loop" else {way: True}
            make = partial(getattr(torch.optim, name), lr=_RATE, weight_decay=_DECAY, **settings, **chosen)
            weights = [torch.nn.Parameter(value.clone().to(job["device"])) for value in start]
            try:
                with offered(f"{way} {name}"):
                    _step(partial(make, weights), weights, gradients)
            except Unavailable as reason:
                emit({**case, "skip": str(reason)})
                continue
            changes = [weight.detach().cpu().double() - first for weight, first in zip(weights, start)]
            errors = [relative(change, last - first) for change, first, last in zip(changes, start, exact)]
            worst = max(range(len(errors)), key=lambda place: errors[place])
            shape = tuple(_PARAMETERS[worst][0])
            told = f"the change of a parameter of shape {shape} is off by {errors[worst]:.2g} of it"
            emit({**case, "relative": "nan" if sum(errors) != sum(errors) else errors[worst], "detail": told})


def repeatable(job: Job, emit: Emit) -> None:
    """Does the same computation give the same numbers twice?

    On the CPU a difference means a race (https://github.com/pytorch/pytorch/issues/188792: the first call of a vector
    maths library). On a GPU atomics in backward kernels may differ by right, and on most cards do: that is information.
    But the forward pass of attention must repeat, for out-of-bounds reads show there first
    (https://github.com/pytorch/pytorch/pull/171627: lengths that are no multiple of 128). Attention, a layer norm and a
    product, forward and backward.
    """
    device = job["device"]
    for length in (192, 261):
        first, second = _once(length, device), _once(length, device)
        for part, tensors in (("forward", ["o"]), ("backward", ["gradients"])):
            case = judged("exact", "not-repeatable", tensors, dtype="bf16", backend="default", params={"S": length})
            by_right = device != "cpu" and part == "backward"
            case.update(case=f"{part} twice, length {length}", kind="info" if by_right else "case")
            emit({**case, "equal": all(map(torch.equal, first[part], second[part]))})


def rms_norm(job: Job, emit: Emit) -> None:
    """Is ``torch.nn.functional.rms_norm`` right for large inputs and with its own epsilon?

    Up to 2.5.1 it computed in the input's dtype: fp16 inputs of 300 give an error 4,800 times that of rounding
    (https://github.com/pytorch/pytorch/pull/134106, https://github.com/pytorch/pytorch/pull/147203), and its default
    epsilon was the dtype's, 0.0078 in bf16, which scales small activations by half
    (https://github.com/pytorch/pytorch/issues/189581). Gradients of weights that drop features, on some ROCm cards:
    https://github.com/pytorch/pytorch/issues/183861.
    """
    norm = getattr(functional, "rms_norm", None)
    if norm is None:
        emit({"case": "rms_norm", "skip": "this torch has no rms_norm (2.4 brought it)"})
        return
    device = job["device"]
    for name in ("bf16", "fp16"):
        common = {"dtype": name, "backend": "default"}
        for size, width in ((1.0, 64), (300.0, 64), (1.0, _WIDTH)):
            values, upstream = _normal(4, (64, width), (64, width))
            weight = 1 + 0.1 * _normal(5, (width,))[0]
            given = [value.to(DTYPES[name]) for value in (values * size, weight)]
            gradient = upstream.to(DTYPES[name])
            low = _named(lambda x, w: norm(x, w.shape, w, 1e-6), [value.to(device) for value in given], gradient)
            high = _named(_exact_norm, [value.double() for value in given], gradient)
            title = f"{name} inputs x {size:g}" + (f", rows of {width}" if width == _WIDTH else "")
            case = {"case": title, "judge": "rounding", "params": {"scale": size}}
            emit({**common, **case, **compare(low, high)})
        tiny = (_normal(6, (8, 32))[0] * 0.05).to(DTYPES[name])
        difference = relative(norm(tiny.to(device), (32,)), norm(tiny.float().to(device), (32,)))
        case = judged("change", "wrong-scale", ["o"], params={"epsilon": "default"}, relative=difference, limit=0.05)
        emit({**common, **case, "case": f"{name} default epsilon against fp32"})


def tf32(job: Job, emit: Emit) -> None:
    """What do products of float32 really compute with, and do the switches agree with it?

    TF32 keeps 10 bits of the mantissa: harmless in most training, an explanation of many "float32 does not reproduce"
    reports, and a wrong reference for everybody who compares with float32. Not a bug: information, except when a switch
    says one thing and the numbers another. https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    told = f"{torch.get_float32_matmul_precision()}: relative error {_product_error(job['device']):.2g}"
    emit({"kind": "info", "case": "as set", "dtype": "fp32", "detail": told})
    with full_precision():
        error = _product_error(job["device"])
    case = judged("change", "inaccurate", ["o"], dtype="fp32", backend="default", limit=_EXACT)
    case.update(case="float32 products at the highest precision", params={"operation": "matmul"})
    emit({**case, "relative": error})


def _normal(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    """Normal numbers on the CPU, a tensor a shape, all from one generator."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def _backward(scaler: Any, weight: Any, factor: float) -> None:
    """Of a loss whose gradient is 3 · factor · weight²."""
    loss = (weight**3).sum() * factor
    scaler.scale(loss).backward()


def _once(length: int, device: str) -> dict[str, list[Any]]:
    drawn = _normal(31, *[(2, 2, length, 64)] * 3, (64,))
    q, k, v, weight = (value.to(torch.bfloat16).to(device).requires_grad_() for value in drawn)
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    normed = functional.layer_norm(out, (64,), weight)
    product = functional.silu(normed.flatten(0, 2) @ normed.flatten(0, 2)[:64].T)
    product.float().pow(2).mean().backward()
    return {"forward": [out.detach(), product.detach()], "backward": [leaf.grad for leaf in (q, k, v, weight)]}


def _exact_norm(x: Any, weight: Any) -> Any:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def _named(operation: Any, given: list[Any], upstream: Any) -> dict[str, Any]:
    return dict(zip(("o", "dx", "dw"), forward_backward(operation, given, lambda shape: upstream).values()))


def _product_error(device: str) -> float:
    left, right = _normal(41, (512, 512), (512, 512))
    return relative(left.to(device) @ right.to(device), left.double() @ right.double())


def _step(make: Any, weights: list[Any], gradients: list[list[Any]]) -> None:
    """The steps, with the state saved and loaded on the way."""
    optimizer = make()
    for number, step in enumerate(gradients):
        if number == _RESUMED:
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = make()
            optimizer.load_state_dict(saved)
        for weight, gradient in zip(weights, step):
            weight.grad = gradient.to(weight.device)
        optimizer.step()


def _adam(value: Any, gradients: list[Any], decoupled: bool) -> Any:
    """https://arxiv.org/abs/1711.05101, algorithm 2, with its weight decay decoupled or in the gradient."""
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
