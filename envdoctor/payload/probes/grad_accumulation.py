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
from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "grad-accumulation",
    "title": "gradient accumulation through the installed Trainer",
    "settles": ["grad-accumulation"],
    "needs": ["torch", "transformers", "accelerate"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 90, "cuda": 120},
    "memory_mib": 2000,
}

_LIMIT = 1e-2
_LENGTH, _LABELS = 40, (36, 3, 20, 1)


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation for 4 x 1 and one for 2 x 2, for the judge ``change``, and the norms and losses as details."""
    whole = _step(4, 1, job["device"])
    for size, steps in ((1, 4), (2, 2)):
        case: dict[str, Any] = {
            "case": f"{steps} micro-batches of {size} against one batch of 4",
            "judge": "change",
            "dtype": "fp32",
            "signature": "accumulation-scale",
            "tensors": ["loss", "gradients"],
            "params": {"micro_batches": steps, "micro_batch_size": size},
            "limit": _LIMIT,
        }
        if isinstance(whole, str):
            emit({**case, "error": whole})
            continue
        parts = _step(size, steps, job["device"])
        if isinstance(parts, str):
            emit({**case, "error": parts})
            continue
        (loss, change), (its_loss, its_change) = whole, parts
        times = float(its_change.norm() / change.norm())
        emit(
            {
                **case,
                "relative": float((its_change - change).norm() / change.norm()),
                "detail": f"the step is {times:.3g} times as long, loss {its_loss:.4g} instead of {loss:.4g}",
            }
        )


def _step(size: int, accumulate: int, device: str) -> Any:
    """(logged loss, change of all parameters) of one optimizer step; a text when the Trainer cannot run."""
    import torch
    import transformers

    generator = torch.Generator().manual_seed(3)
    samples = []
    for labels in _LABELS:
        tokens = torch.randint(3, 97, (_LENGTH,), generator=generator)
        targets = tokens.clone()
        targets[: _LENGTH - labels] = -100
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": targets})
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=0,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config)
    before = _vector(model)

    class InOrder(transformers.Trainer):
        """The same four samples whatever the batch size."""

        def _get_train_sampler(self, *arguments: Any, **kwargs: Any) -> Any:
            return torch.utils.data.SequentialSampler(samples)

    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        chosen: dict[str, Any] = {
            "output_dir": folder,
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": accumulate,
            "max_steps": 1,
            "learning_rate": 1.0,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "remove_unused_columns": False,
        }
        try:
            settings = _arguments(transformers.TrainingArguments, chosen, device)
            trainer = InOrder(model=model, args=settings, train_dataset=samples)
            trainer.train()
        except (ImportError, TypeError, AttributeError, ValueError) as error:
            return f"the Trainer cannot run: {type(error).__name__}: {error}"[:500]
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return float(logged[0]) if logged else float("nan"), _vector(model) - before


def _arguments(kind: Any, chosen: dict[str, Any], device: str) -> Any:
    """TrainingArguments; the way to ask for the CPU has two names."""
    if device == "cuda":
        return kind(**chosen)
    try:
        return kind(use_cpu=True, **chosen)
    except TypeError:
        return kind(no_cuda=True, **chosen)


def _vector(model: Any) -> Any:
    import torch

    return torch.cat([parameter.detach().double().cpu().flatten() for parameter in model.parameters()])
