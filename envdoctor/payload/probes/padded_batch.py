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
from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "padded-batch",
    "title": "a padded batch against its samples one by one",
    "settles": ["padded-batch"],
    "needs": ["torch"],
    "suites": {
        "quick": [{"dtype": "bf16", "options": {"models": ["chatglm-like", "glm", "qwen2", "qwen3", "llama"]}}],
        "full": [
            {
                "dtype": "bf16",
                "options": {"attention": ["sdpa", "eager", "flash_attention_2"], "gains": [1, 12, "bias"]},
            },
            {"dtype": "fp16", "options": {"attention": ["sdpa", "eager"], "gains": [1, 12, "bias"]}},
            {"dtype": "bf16", "options": {"gains": [1, "bias"], "lengths": "long"}},
        ],
    },
    "seconds": {"cpu": 120, "cuda": 180},
    "memory_mib": 2000,
}

#: (padding, position_ids given, a sample of nothing but padding). Equal lengths first: that is the twin of the others.
_FORMS = (
    ("none", False, False),
    ("right", False, False),
    ("left", True, False),
    ("left", False, False),
    ("left", True, True),
)


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation for each model × attention × gain × form of the batch, for the judge ``batch``."""
    import torch

    from ..probing import batches, tiny_models

    torch.use_deterministic_algorithms(False)
    options, device = job["options"], job["device"]
    names = tiny_models.chosen(job.get("model"), options.get("models") or tiny_models.NAMES)
    lengths = batches.LENGTHS[options.get("lengths") or ("long" if device == "cuda" else "short")]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[job.get("dtype") or "bf16"]
    for name in names:
        for attention in options.get("attention") or ["sdpa"]:
            for gain in options.get("gains") or [1, "bias"]:
                try:
                    _one_model(job, emit, (name, attention, gain), lengths, dtype)
                except (torch.cuda.OutOfMemoryError, MemoryError):
                    raise
                except Exception as error:  # of one model: the others have theirs to tell
                    text = f"{type(error).__name__}: {error}"
                    if "out of memory" in text or "can't allocate memory" in text:
                        raise
                    called = tiny_models.label(name, job.get("model"))
                    case = {"case": f"{called} {attention} gain {gain}", "params": {"model": called}}
                    emit({**case, "backend": attention, "error": text[:500], "sticky": "CUDA error" in text})


def _one_model(
    job: dict[str, Any], emit: Callable[[dict[str, Any]], None], which: tuple[str, str, Any], lengths: Any, dtype: Any
) -> None:
    import torch

    from ..probing import batches, tiny_models

    name, attention, gain = which
    device = job["device"]
    called = tiny_models.label(name, job.get("model"))
    base = {"model": called, "gain": str(gain)}
    common: dict[str, Any] = {"judge": "batch", "backend": attention}
    try:
        if attention == "flash_attention_2" and device == "cpu":
            raise tiny_models.Unavailable("flash attention needs a GPU")
        try:
            model = tiny_models.build(name, attention, job.get("model"))
        except tiny_models.NoAttention:
            if attention != "sdpa" or name != "own" or "eager" in (job["options"].get("attention") or ()):
                raise
            attention = common["backend"] = "eager"  # what such a model trains with
            model = tiny_models.build(name, attention, job.get("model"))
        if not tiny_models.stress(model, gain):
            return  # no biases to move: gain 1 is the whole story
        low = model.to(dtype).to(device)
        high = _float64(low, name, attention, job)
    except tiny_models.Unavailable as reason:
        emit({**common, "case": f"{called} {attention}", "params": base, "skip": str(reason)})
        return
    equal = batches.samples((lengths[0],) * 2)
    unequal = batches.samples(lengths)
    truth = {}
    for label, made in (("equal", equal), ("unequal", unequal)):
        truth[label] = (
            _gradients(high, batches.one_by_one(made), "cpu"),
            _gradients(low, batches.one_by_one(made), device),
        )
    for padding, position_ids, empty in _FORMS:
        made = equal if padding == "none" else unequal
        exact, alone = truth["equal" if padding == "none" else "unequal"]
        batch = batches.padded(made, "right" if padding == "none" else padding, position_ids, empty)
        params = {
            **base,
            "padding": padding,
            "position_ids": position_ids,
            "empty": empty,
            "B": len(batch["input_ids"]),
            "S": batch["input_ids"].shape[1],
        }
        found = {**common, "case": _title((called, attention, gain), padding, position_ids, empty), "params": params}
        try:
            found.update(_compare(low, batch, device, exact, alone))
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            text = str(error)
            found.update({"error": text[:500], "sticky": "CUDA error" in text})
        if padding == "left" and not position_ids and name != "chatglm-like":
            # Rotary positions are shifted by the padding; weights times 12 and 40 gave up to 4.5 without a bug.
            found["limits"] = [6.0, 12.0, "positions shifted by the padding"]
        if attention == "eager" and dtype == torch.float16 and gain == "bias" and not _trains_fp16(job["recipe"]):
            found["kind"] = "info"  # by design, see the head of this file
        emit(found)


def _trains_fp16(recipe: dict[str, Any]) -> bool:
    return str(recipe.get("load_dtype")).lower() in ("fp16", "float16", "half")


def _title(which: tuple[str, str, Any], padding: str, position_ids: bool, empty: bool) -> str:
    name, attention, gain = which
    words = [name, attention, f"gain {gain}", "equal lengths" if padding == "none" else f"{padding}-padded"]
    words += ["position_ids"] if position_ids else []
    words += ["an empty sample"] if empty else []
    return " ".join(words)


def _float64(low: Any, name: str, attention: str, job: dict[str, Any]) -> Any:
    """The same weights, already rounded, in float64 and with eager attention, on the CPU."""
    from ..probing import tiny_models

    high = tiny_models.build(name, "eager", job.get("model"))
    if hasattr(high, "set_experts_implementation"):
        high.set_experts_implementation("eager")  # grouped products know no float64
    high.load_state_dict(copy.deepcopy(low.state_dict()))
    return high.double()


def _gradients(model: Any, singles: list[tuple[dict[str, Any], float]], device: str) -> Any:
    """The weighted sum of the gradients of all parameters, one sample at a time, as one float64 vector on the CPU."""
    import torch

    total: Any = 0
    for batch, weight in singles:
        model.zero_grad(set_to_none=True)
        model(**{key: value.to(device) for key, value in batch.items()}).loss.backward()
        total = total + weight * _vector(model)
    model.zero_grad(set_to_none=True)
    assert isinstance(total, torch.Tensor)
    return total


def _vector(model: Any) -> Any:
    import torch

    return torch.cat(
        [
            (parameter.grad if parameter.grad is not None else torch.zeros_like(parameter))
            .detach()
            .double()
            .cpu()
            .flatten()
            for parameter in model.parameters()
        ]
    )


def _compare(model: Any, batch: dict[str, Any], device: str, exact: Any, alone: Any) -> dict[str, Any]:
    import torch

    model.zero_grad(set_to_none=True)
    output = model(**{key: value.to(device) for key, value in batch.items()})
    output.loss.backward()
    together = _vector(model)
    model.zero_grad(set_to_none=True)
    live = batch["attention_mask"].bool()
    logits = output.logits.detach().cpu()
    lost = {
        "loss": int((~torch.isfinite(output.loss.detach())).sum()),
        "logits": int((~torch.isfinite(logits[live])).sum()),
        "gradients": int((~torch.isfinite(together)).sum()),
    }
    norm = exact.norm()
    return {
        "e1": float((alone - exact).norm() / norm),
        "eN": float((together - exact).norm() / norm),
        "nonfinite": {key: count for key, count in lost.items() if count},
        "pad_nonfinite": int((~torch.isfinite(logits[~live])).sum()) if bool((~live).any()) else 0,
        "detail": f"loss {float(output.loss.detach()):.4g}",
    }
