"""Does ``evaluate()`` of the installed Trainer give the loss that the model has, on batches that collators made?

Five samples with as many labels each, in batches of two, through a model with dropout: the loss must be the mean over
them, with dropout off, also for the last batch, which is not full. https://github.com/huggingface/transformers/issues/41108,
https://github.com/huggingface/transformers/issues/16716. And what the collators for language models pad must not count:
labels of pads are ignored, labels that were ignored stay so, and nothing else is changed.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import transformers

from ..probing import batches, tiny_models
from ..probing.failure import cannot_run, failure
from ..probing.job import Emit, Job, judged
from ..probing.plain_decoder import loss_of
from ..probing.trainers import arguments, tokenizer

PROBE = {
    "title": "evaluation through the installed Trainer, and its collators",
    "needs": ["torch", "transformers", "accelerate"],
    "memory_mib": 2000,
}

_LENGTHS = (24, 17, 9, 33, 12)
_LABELS = 6


def run(job: Job, emit: Emit) -> None:
    """Observations for the judges ``change`` (the loss) and ``exact`` (the collators)."""
    samples = []
    for tokens, labels in batches.samples(_LENGTHS):
        labels[:-_LABELS] = batches.IGNORED
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels})
    padding = tokenizer()
    for name, make in (
        ("DataCollatorForSeq2Seq", lambda: transformers.DataCollatorForSeq2Seq(padding, padding=True)),
        ("DataCollatorForTokenClassification", lambda: transformers.DataCollatorForTokenClassification(padding)),
    ):
        case = judged("exact", "collator-differs", ["labels"], case=name, params={"collator": name})
        try:
            lists = [{key: value.tolist() for key, value in sample.items()} for sample in samples[:3]]
            problem = _collated(make()(lists), samples[:3])
            emit({**case, "equal": not problem, "detail": problem or "what went in came out"})
        except Exception as error:
            emit({**case, **failure(error, job["device"])})
    case = judged("change", "evaluation-differs", ["loss"], dtype="fp32", limit=1e-3)
    case.update(case=f"evaluate() on {len(samples)} samples by two", params={"batch": 2})
    try:
        found, exact = _evaluated(samples, job["device"])
        told = f"eval_loss {found:.5g} where the model's loss is {exact:.5g}"
        emit({**case, "relative": abs(found - exact) / exact, "detail": told})
    except (ImportError, TypeError, AttributeError, ValueError) as error:
        emit({**case, **cannot_run("the Trainer", error)})


def _collated(batch: Any, samples: list[dict[str, Any]]) -> str:
    """What is wrong with a padded batch; empty for nothing."""
    for row, sample in enumerate(samples):
        length = len(sample["input_ids"])
        live = batch["attention_mask"][row].bool()
        if int(live.sum()) != length:
            return f"the mask of sample {row} has {int(live.sum())} tokens of {length}"
        for key in ("input_ids", "labels"):
            if not torch.equal(batch[key][row][live], sample[key]):
                return f"{key} of sample {row} are not those that went in"
        if bool((batch["labels"][row][~live] != batches.IGNORED).any()):
            return f"the padding of sample {row} has labels that count"
    return ""


def _evaluated(samples: list[dict[str, Any]], device: str) -> tuple[float, float]:
    """(eval_loss of the Trainer, the mean over the labels, one sample at a time without dropout)."""
    model = tiny_models.build("llama", "eager").to(device)
    tiny_models.stress(model, 12)
    losses = []
    with torch.no_grad():
        for sample in samples:
            logits = model.eval()(input_ids=sample["input_ids"][None].to(device)).logits.cpu()
            losses.append(float(loss_of(logits, sample["labels"][None])))
    for module in model.modules():
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.5
    model.train()

    def collate(some: list[dict[str, Any]]) -> dict[str, Any]:
        return batches.padded([(sample["input_ids"], sample["labels"]) for sample in some], "right")

    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        settings = arguments(device, output_dir=folder, per_device_eval_batch_size=2)
        trainer = transformers.Trainer(model=model, args=settings, eval_dataset=samples, data_collator=collate)
        found = trainer.evaluate()["eval_loss"]
    return float(found), sum(losses) / len(losses)
