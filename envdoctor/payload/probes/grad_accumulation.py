"""Do n micro-batches of one give the step that one batch of n gives, through the installed transformers Trainer?

transformers 4.48.0 multiplied loss and gradient by the number of accumulation steps, 4.45.2 and older averaged the
averages of unequal samples. https://github.com/huggingface/transformers/pull/35651 (fixed in 4.48.1),
https://github.com/huggingface/transformers/pull/34191, https://github.com/huggingface/transformers/issues/34263,
https://github.com/huggingface/transformers/issues/37766.

A one-layer Llama in float32 with SGD and learning rate 1 on four samples with 36, 3, 20 and 1 label tokens: the change
of all parameters after one step of 4 x 1, 2 x 2 and 1 x 4 must be the same. Seen: 7.9 relative difference with 4.48.0,
1e-7 with releases that are right.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import transformers

from ..probing.failure import cannot_run
from ..probing.job import Emit, Job, judged
from ..probing.rounding import relative, vector
from ..probing.trainers import arguments, in_order, one_step

PROBE = {
    "title": "gradient accumulation through the installed Trainer",
    "needs": ["torch", "transformers", "accelerate"],
    "seconds": {"cpu": 90, "cuda": 120},
    "memory_mib": 2000,
}

_LIMIT = 1e-2
_LENGTH, _LABELS = 40, (36, 3, 20, 1)


def run(job: Job, emit: Emit) -> None:
    """One observation for 4 x 1 and one for 2 x 2, for the judge ``change``, and the norms and losses as details."""
    found: dict[int, Any] = {}
    for size in (4, 1, 2):
        try:
            found[size] = _step(size, 4 // size, job["device"])
        except (ImportError, TypeError, AttributeError, ValueError) as error:
            found[size] = cannot_run("the Trainer", error)
    for size in (1, 2):
        case = judged("change", "accumulation-scale", ["loss", "gradients"], dtype="fp32", limit=_LIMIT)
        case["case"] = f"{4 // size} micro-batches of {size} against one batch of 4"
        case["params"] = {"micro_batches": 4 // size, "micro_batch_size": size}
        problem = next((one for one in (found[4], found[size]) if isinstance(one, dict)), None)
        if problem is not None:
            emit({**case, **problem})
            continue
        (loss, change), (its_loss, its_change) = found[4], found[size]
        times = float(its_change.norm() / change.norm())
        told = f"the step is {times:.3g} times as long, loss {its_loss:.4g} instead of {loss:.4g}"
        emit({**case, "relative": relative(its_change, change), "detail": told})


def _step(size: int, accumulate: int, device: str) -> tuple[float, Any]:
    """(logged loss, change of all parameters) of one optimizer step."""
    generator = torch.Generator().manual_seed(3)
    samples = []
    for labels in _LABELS:
        tokens = torch.randint(3, 97, (_LENGTH,), generator=generator)
        targets = tokens.clone()
        targets[: _LENGTH - labels] = -100
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": targets})
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    more = {"vocab_size": 97, "num_hidden_layers": 1, "pad_token_id": 0, "attn_implementation": "eager"}
    config = transformers.LlamaConfig(**shape, **more)
    model = transformers.LlamaForCausalLM(config)
    before = vector(model, "data")

    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        settings = arguments(device, output_dir=folder, **one_step(size, accumulate))
        trainer = in_order(model, settings, samples)
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return float(logged[0]) if logged else float("nan"), vector(model, "data") - before
