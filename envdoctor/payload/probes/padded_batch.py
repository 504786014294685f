"""Does a padded batch give the gradients that its samples give one by one?

Batch size 1 and a padded batch run different kernels: without padding no mask is passed and attention is causal by a
flag, with it an explicit mask goes in and fused kernels may decline. "Fine at batch size 1, NaN at 2" is therefore the
mask's path far more often than the batch itself, and a batch of equal lengths tells them apart.

Bugs that it exists for: https://github.com/zai-org/GLM-4/issues/724 (batch size 1 fine, 2 NaN),
https://github.com/pytorch/pytorch/issues/196678 and https://github.com/huggingface/trl/issues/7181 (NaN query gradients
with a mask), https://github.com/NVIDIA-NeMo/Automodel/issues/1883 (local batch size 2),
https://github.com/huggingface/transformers/issues/32390 (Gemma 2, sdpa and padding), fully padded rows:
https://github.com/pytorch/pytorch/issues/110213.

Eager attention in fp16 adds the lowest number of fp16 to the logits of masked keys: with logits that are low already,
as trained biases make them, the sum is -inf for every key of a pad row, and its softmax NaN. So by design, and reported
to a recipe that loads fp16 weights (``recipe.load_dtype``), as information otherwise.

Tiny models with random weights from the installed transformers (the user's own config, shrunk, when a model is given).
The gradient of all parameters as one batch, and one sample at a time without padding, each against float64.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch

from ..probing import tiny_models
from ..probing.kit import DTYPES, Emit, Job, Unavailable, attempt, loaded_dtype, lost, relative, reported, vector

PROBES = {
    "padded-batch": {
        "title": "a padded batch against its samples one by one",
        "attention": "backend",
        "suites": {
            "quick": [{"dtype": "bf16", "models": ["chatglm-like", "glm", "qwen2", "qwen3", "llama"]}],
            "full": [
                {"dtype": "bf16", "attention": ["sdpa", "eager", "flash_attention_2"], "gains": [1, 12, "bias"]},
                {"dtype": "fp16", "attention": ["sdpa", "eager"], "gains": [1, 12, "bias"]},
                {"dtype": "bf16", "gains": [1, "bias"], "lengths": "long"},
            ],
        },
        "seconds": {"cpu": 120, "cuda": 180},
        "memory_mib": 2000,
    }
}

#: Relative error of the gradient of one sample at a time that the dtype allows with plain weights: 0.004 to 0.008 on
#: healthy machines. A batch that is no worse than its samples says nothing where both are wrong.
_MOST = 0.03

#: (padding, position_ids given, a sample of nothing but padding). Equal lengths first: that is the twin of the others.
_FORMS = (
    ("none", False, False),
    ("right", False, False),
    ("left", True, False),
    ("left", False, False),
    ("left", True, True),
)


def padded_batch(job: Job, emit: Emit) -> None:
    """Emit one observation for each model × attention × gain × form of the batch, for the judge ``batch``."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(0)
    try:
        _all_models(job, emit)
    finally:
        torch.set_deterministic_debug_mode(mode)


def _all_models(job: Job, emit: Emit) -> None:
    options = job["options"]
    for name in tiny_models.chosen(job["model"], options.get("models") or tiny_models.NAMES):
        called = tiny_models.label(name, job["model"])
        for attention in options.get("attention") or ["sdpa"]:
            for gain in options.get("gains") or [1, "bias"]:
                title, params = f"{called} {attention}", {"model": called, "gain": str(gain)}
                case = {"case": f"{title} gain {gain}", "params": params, "backend": attention}
                with reported(emit, job["device"], case, {**case, "case": title}):
                    _one_model(job, emit, (name, called, attention, gain))


def _one_model(job: Job, emit: Emit, which: tuple[str, str, str, Any]) -> None:
    name, called, attention, gain = which
    device, dtype = job["device"], DTYPES[job["dtype"] or "bf16"]
    if attention == "flash_attention_2" and device == "cpu":
        raise Unavailable("flash attention needs a GPU")
    try:
        model = tiny_models.build(name, attention, job["model"])
    except tiny_models.NoAttention:
        if attention != "sdpa" or name != "own" or "eager" in (job["options"].get("attention") or ()):
            raise
        attention = "eager"  # what such a model trains with
        model = tiny_models.build(name, attention, job["model"])
    if not tiny_models.stress(model, gain):
        return  # no biases to move: gain 1 is the whole story
    low = model.to(dtype).to(device)
    high = _float64(low, name, job["model"])
    lengths = tiny_models.LENGTHS[job["options"].get("lengths") or ("long" if device == "cuda" else "short")]
    pairs = {"equal": tiny_models.samples((lengths[0],) * 2), "unequal": tiny_models.samples(lengths)}
    torch.set_default_dtype(torch.float64)  # a mask that begins in float32 cannot hold the lowest number of float64
    truth = {label: _gradients(high, tiny_models.one_by_one(group)) for label, group in pairs.items()}
    torch.set_default_dtype(torch.float32)
    alone = {label: _gradients(low, tiny_models.one_by_one(group)) for label, group in pairs.items()}
    for padding, position_ids, empty in _FORMS:
        kind = "equal" if padding == "none" else "unequal"
        batch = tiny_models.padded(pairs[kind], "right" if padding == "none" else padding, position_ids, empty)
        words = [called, attention, f"gain {gain}", "equal lengths" if padding == "none" else f"{padding}-padded"]
        words += ["position_ids"] * position_ids + ["an empty sample"] * empty
        rows, length = batch["input_ids"].shape
        params = {"model": called, "gain": str(gain), "padding": padding, "position_ids": position_ids}
        observation: dict[str, Any] = {"case": " ".join(words), "judge": "batch", "backend": attention}
        observation["params"] = {**params, "empty": empty, "B": rows, "S": length}
        if gain == 1:
            observation["most"] = _MOST
        observation.update(attempt(partial(_compare, low, batch, truth[kind], alone[kind]), device))
        if padding == "left" and not position_ids and name != "chatglm-like":
            # Rotary positions are shifted by the padding; weights times 12 and 40 gave up to 4.5 without a bug.
            observation["limits"] = [6.0, 12.0, "positions shifted by the padding"]
        if attention == "eager" and dtype == torch.float16 and gain == "bias" and loaded_dtype(job) != "fp16":
            observation["kind"] = "info"  # by design, see the head of this file
        emit(observation)


def _float64(low: Any, name: str, folder: Any) -> Any:
    """Return the same weights, already rounded, in float64 and with eager attention, on the CPU."""
    high = tiny_models.build(name, "eager", folder)
    if hasattr(high, "set_experts_implementation"):
        high.set_experts_implementation("eager")  # grouped products know no float64
    high.load_state_dict(copy.deepcopy(low.state_dict()))
    return high.double()


def _gradients(model: Any, singles: list[tuple[dict[str, Any], float]]) -> Any:
    """Return the weighted sum of all gradients, one sample at a time, as one float64 vector on the CPU."""
    total: Any = 0
    for batch, weight in singles:
        model.zero_grad(set_to_none=True)
        model(**tiny_models.moved(batch, model)).loss.backward()
        total = total + weight * vector(model)
    model.zero_grad(set_to_none=True)
    return total


def _compare(model: Any, batch: dict[str, Any], exact: Any, alone: Any) -> dict[str, Any]:
    model.zero_grad(set_to_none=True)
    output = model(**tiny_models.moved(batch, model))
    output.loss.backward()
    together = vector(model)
    model.zero_grad(set_to_none=True)
    live = batch["attention_mask"].bool()
    logits = output.logits.detach().cpu()
    bad = {"loss": lost(output.loss), "logits": lost(logits[live]), "gradients": lost(together)}
    return {
        "e1": relative(alone, exact),
        "eN": relative(together, exact),
        "nonfinite": {key: count for key, count in bad.items() if count},
        "pad_nonfinite": lost(logits[~live]),
        "detail": f"loss {float(output.loss.detach()):.4g}",
    }
