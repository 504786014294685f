"""Do the models of the installed transformers compute what is published of them, by every way through attention?

In float32, where the way through the code decides and not the rounding: logits and gradients of a padded batch with
sdpa and with eager attention, each against a decoder written in plain torch in float64 that shares no code with them
(Llama, Qwen2, Qwen3 and Mistral), or against each other where there is none. What only sdpa gets wrong has a cure,
which was tried here: eager. The loss that the model gives, also under autocast to bf16, is compared with the mean over
the labels that count, of the same logits. And the norms in bf16: one that sums in half precision is off by one factor
for a whole row, which the rounding of single values hides: https://github.com/pytorch/pytorch/pull/134106.

Bugs that it exists for: masks and sdpa (https://github.com/huggingface/transformers/issues/32390), losses that count
labels otherwise (https://github.com/huggingface/transformers/pull/34191).
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..probing import tiny_models
from ..probing.kit import Emit, Job, full_precision, judged, lost, relative, rms, vector
from ..probing.plain_decoder import can_follow, logits_of, loss_of

PROBE = {
    "title": "models of transformers against a decoder in plain torch",
    "suites": {
        "quick": [{"models": ["llama", "qwen2", "qwen3", "glm"]}],
        "full": [{"models": ["llama", "qwen2", "qwen3", "glm", "glm4", "mistral", "gemma3", "phi3"]}],
    },
    "memory_mib": 2000,
}

#: Relative error in float32 of what is right: 3e-6 at most; of a scale that is 2 % off, 1e-2.
_LIMIT = 1e-3
#: Weights of q and k, times this, make attention depend on the tokens.
_GAIN = 12
_WAYS = ("sdpa", "eager")
_WIDTH, _ROWS = 2048, 64


def run(job: Job, emit: Emit) -> None:
    """Observations for each model for the judge ``change``, and one for its norm for ``rounding``."""
    with full_precision():
        tiny_models.each_chosen(job, emit, "llama", lambda name, called: _one_model(job, emit, name, called))


def _one_model(job: Job, emit: Emit, name: str, called: str) -> None:
    device, models = job["device"], {}
    for way in _WAYS:
        try:
            models[way] = tiny_models.build(name, way, job["model"]).to(device)
        except tiny_models.NoAttention:
            continue
        tiny_models.stress(models[way], _GAIN)
    if not models:
        raise tiny_models.Unavailable(f"{name} has neither sdpa nor eager attention")
    model = next(iter(models.values()))
    common = {"dtype": "fp32", "params": {"model": called}}
    for side in ("right", "left"):
        batch = tiny_models.padded(tiny_models.samples(tiny_models.LENGTHS["short"]), side, position_ids=side == "left")
        gave = {way: _seen(one, batch) for way, one in models.items()}
        for way, error in _errors(model, batch, gave).items():
            both = len(gave) > 1 and way == "every"
            words = {"sdpa": "sdpa", "eager": "eager", "every": " and ".join(gave)}[way]
            outcome = "model-differs" if way == "every" else f"{way}-path-differs"
            case = judged("change", outcome, ["logits", "gradients"], dtype="fp32", relative=error, limit=_LIMIT)
            case["backend"] = "eager" if both else way if way != "every" else next(iter(gave))
            params = {"model": called, "padding": side}
            emit({**case, "case": f"{called} {words}, {side}-padded", "params": params})
        _judge_loss(emit, common, called, batch, next(iter(gave.values())))
    batch = tiny_models.padded(tiny_models.samples((24, 24)), "right")  # no padding: masks in bf16 are another matter
    with torch.autocast(device, torch.bfloat16), torch.no_grad():
        output = model(**tiny_models.moved(batch, model))
    rough = {"loss": float(output.loss), "logits": output.logits.double().cpu()}
    _judge_loss(emit, common, f"{called} under autocast", batch, rough)
    _judge_norm(emit, called, model, device)


def _seen(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """What the model gives for a batch: its loss, its logits, and the gradient of the plain loss of these logits."""
    model.zero_grad(set_to_none=True)
    given = tiny_models.moved(batch, model)
    output = model(**given)
    loss_of(output.logits, given["labels"]).backward()
    logits = output.logits.detach().double().cpu()
    return {"loss": float(output.loss.detach()), "logits": logits, "gradients": vector(model)}


def _errors(model: Any, batch: dict[str, Any], gave: dict[str, dict[str, Any]]) -> dict[str, float]:
    """How far each way is off, by way; one that is off alike with all is called "every"."""
    live = batch["attention_mask"].bool()
    if not can_follow(model.config):
        if len(gave) < 2:
            return {}
        return {"sdpa": _distance(gave["sdpa"], gave["eager"], live)}
    weights = {name: value.detach().double().cpu().requires_grad_() for name, value in model.named_parameters()}
    positions = batch.get("position_ids", torch.arange(live.shape[1])[None].expand(live.shape))
    logits = logits_of(weights, model.config, batch["input_ids"], batch["attention_mask"], positions)
    loss_of(logits, batch["labels"]).backward()
    parts = [torch.zeros_like(value) if value.grad is None else value.grad for value in weights.values()]
    exact = {"logits": logits.detach(), "gradients": torch.cat([part.flatten() for part in parts])}
    errors = {way: _distance(found, exact, live) for way, found in gave.items()}
    wrong = [way for way, error in errors.items() if not error <= _LIMIT]
    return {"every": max(errors.values())} if len(wrong) == len(errors) else errors


def _distance(found: dict[str, Any], exact: dict[str, Any], live: Any) -> float:
    pairs = [(found["logits"][live], exact["logits"][live]), (found["gradients"], exact["gradients"])]
    if any(lost(one) for one, _ in pairs):
        return float("nan")
    return max(relative(*pair) for pair in pairs)


def _judge_loss(emit: Emit, common: Any, called: str, batch: dict[str, Any], found: dict[str, Any]) -> None:
    exact = float(loss_of(found["logits"], batch["labels"]))
    told = f"loss {found['loss']:.4g}, where the mean over the labels that count is {exact:.4g}"
    case = judged("change", "loss-differs", ["loss"], relative=abs(found["loss"] - exact) / exact, limit=1e-3)
    emit({**common, **case, "case": f"{called}: the loss of its logits", "detail": told})


def _judge_norm(emit: Emit, called: str, model: Any, device: str) -> None:
    """A fresh norm of the model's class on a wide row: the factor of each row, in units of what rounding the values
    one by one leaves of it."""
    kinds = {type(module) for module in model.modules() if type(module).__name__.endswith("RMSNorm")}
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        try:
            norm = copy.deepcopy(kind(_WIDTH, eps=1e-6)).to(device, torch.bfloat16)
        except TypeError:
            continue
        values = (3.7 * torch.randn(_ROWS, _WIDTH, generator=torch.Generator().manual_seed(8))).bfloat16()
        with torch.no_grad():
            found = norm(values.to(device)).double().cpu()
        wide = values.double()
        exact = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        factor = (found * exact).sum(-1) / exact.pow(2).sum(-1) - 1
        rounded = (exact.bfloat16().double() * exact).sum(-1) / exact.pow(2).sum(-1) - 1
        case = {"case": f"{kind.__name__} on rows of {_WIDTH}", "judge": "rounding", "dtype": "bf16"}
        emit({**case, "params": {"model": called}, "ratio": {"o": rms(factor) / rms(rounded)}, "gate": ["o"]})
