"""Do steps of the installed Trainer change a model as a plain loop over the same batches does?

Two epochs over five samples by two, the last batch of one sample included, with AdamW, weight decay of matrices and not
of norms, clipping, and a linear schedule with warm-up: the change of all parameters against a loop that is written
here. https://github.com/huggingface/transformers/issues/35663 (losses),
https://github.com/huggingface/transformers/pull/35438 (what a batch counts). A Llama in float32: seen equal to 1e-5.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch

from ..probing import batches, tiny_models
from ..probing.failure import cannot_run
from ..probing.job import Emit, Job, judged
from ..probing.plain_decoder import loss_of
from ..probing.rounding import relative, vector
from ..probing.trainers import arguments, in_order

PROBE = {
    "title": "steps of the installed Trainer against a plain loop",
    "needs": ["torch", "transformers", "accelerate"],
    "memory_mib": 2000,
}

_LENGTHS, _BATCH, _EPOCHS = (24, 17, 9, 33, 12), 2, 2
_RATE, _WARMUP, _DECAY, _NORM = 1e-2, 2, 0.5, 0.5
_LIMIT = 1e-2


def run(job: Job, emit: Emit) -> None:
    """One observation for the judge ``change``."""
    case = judged("change", "training-differs", ["parameters"], dtype="fp32", limit=_LIMIT, params={"batch": _BATCH})
    case["case"] = f"{_EPOCHS} epochs of {len(_LENGTHS)} samples by {_BATCH}"
    made = batches.samples(_LENGTHS)
    try:
        model = tiny_models.build("llama", "eager").to(job["device"])
        before = vector(model, "data")
        steps = _trained(model, made, job["device"])
        plain = tiny_models.build("llama", "eager").to(job["device"])
        _loop(plain, made)
        change, exact = vector(model, "data") - before, vector(plain, "data") - before
        times = float(change.norm() / exact.norm())
        told = f"{steps} steps, a change {times:.3g} times as long, off by {relative(change, exact):.2g} of it"
        emit({**case, "relative": relative(change, exact), "detail": told})
    except tiny_models.Unavailable as reason:
        emit({**case, "skip": str(reason)})
    except (ImportError, TypeError, AttributeError, ValueError) as error:
        emit({**case, **cannot_run("the Trainer", error)})


def _trained(model: Any, made: list[Any], device: str) -> int:
    """Train with the Trainer; how many steps it took."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        rate = {"learning_rate": _RATE, "lr_scheduler_type": "linear", "warmup_steps": _WARMUP}
        amount = {"per_device_train_batch_size": _BATCH, "num_train_epochs": _EPOCHS, "logging_steps": 100}
        limits = {"weight_decay": _DECAY, "max_grad_norm": _NORM}
        settings = arguments(device, output_dir=folder, **rate, **amount, **limits)
        trainer = in_order(model, settings, made, data_collator=lambda some: batches.padded(some, "right"))
        trainer.train()
        return int(trainer.state.global_step)


def _loop(model: Any, made: list[Any]) -> None:
    """The same without the Trainer."""
    device = next(model.parameters()).device
    groups = [
        {"params": [one for one in model.parameters() if (one.dim() > 1) is decays], "weight_decay": _DECAY * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=_RATE, betas=(0.9, 0.999), eps=1e-8)
    order = [made[place : place + _BATCH] for place in range(0, len(made), _BATCH)] * _EPOCHS
    for step, some in enumerate(order):
        share = step / _WARMUP if step < _WARMUP else (len(order) - step) / (len(order) - _WARMUP)
        for group in optimizer.param_groups:
            group["lr"] = _RATE * share
        batch = {key: value.to(device) for key, value in batches.padded(some, "right").items()}
        labels = batch.pop("labels")
        loss_of(model(**batch).logits, labels).backward()
        total = float(vector(model).norm())
        for parameter in model.parameters():
            parameter.grad *= min(1.0, _NORM / (total + 1e-6))
        optimizer.step()
        optimizer.zero_grad()
