"""Does the installed transformers Trainer take the steps, and report the losses, that a plain loop gives?

The functions cite the bugs that they exist for, such as https://github.com/huggingface/transformers/pull/35651.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import Any

import torch
import transformers

from ..probing import tiny_models
from ..probing.kit import Emit, Job, Unavailable, found_by, judged, relative, vector
from ..probing.plain_decoder import loss_of
from ..probing.trainers import arguments, in_order, one_step, tokenizer

PROBES = {
    "grad-accumulation": {
        "title": "gradient accumulation through the installed Trainer",
        "needs": ["torch", "transformers", "accelerate"],
        "seconds": {"cpu": 90, "cuda": 120},
        "memory_mib": 2000,
    },
    "trainer-evaluation": {
        "title": "evaluation through the installed Trainer, and its collators",
        "needs": ["torch", "transformers", "accelerate"],
        "memory_mib": 2000,
    },
    "trainer-training": {
        "title": "steps of the installed Trainer against a plain loop, and resumed",
        "needs": ["torch", "transformers", "accelerate"],
        "memory_mib": 2000,
    },
}

#: Relative error of a step, of one in half precision, and of a loss or what must be the same.
_STEP, _HALF_STEP, _LOSS = 1e-2, 0.1, 1e-3
_LENGTHS = (24, 17, 9, 33, 12)
#: Labels of each sample that count: of those that are accumulated, which have one length, and in evaluation.
_ACCUMULATED, _SAME_LENGTH, _EVALUATED = (36, 3, 20, 1), 40, 6
_BATCH, _EPOCHS, _SAVED = 2, 2, 4
_RATE, _WARMUP, _DECAY, _NORM = 1e-2, 2, 0.5, 0.5


def grad_accumulation(job: Job, emit: Emit) -> None:
    """Do n micro-batches of one give the step that one batch of n gives, through the installed transformers Trainer?

    transformers 4.48.0 multiplied loss and gradient by the number of accumulation steps, 4.45.2 and older averaged the
    averages of unequal samples. https://github.com/huggingface/transformers/pull/35651 (fixed in 4.48.1),
    https://github.com/huggingface/transformers/pull/34191, https://github.com/huggingface/transformers/issues/34263,
    https://github.com/huggingface/transformers/issues/37766.

    A one-layer Llama in float32 with SGD and learning rate 1 on four samples with 36, 3, 20 and 1 label tokens: the
    change of all parameters after one step of 4 x 1, 2 x 2 and 1 x 4 must be the same. Seen: 7.9 relative difference
    with 4.48.0, 1e-7 with releases that are right.
    """
    device = job["device"]
    steps = {size: found_by(partial(_accumulated, size, device), device, "the Trainer") for size in (4, 1, 2)}
    for size in (1, 2):
        case = judged("change", "accumulation-scale", ["loss", "gradients"], dtype="fp32", limit=_STEP)
        case["case"] = f"{4 // size} micro-batches of {size} against one batch of 4"
        case["params"] = {"micro_batches": 4 // size, "micro_batch_size": size}
        one, other = steps[4], steps[size]
        problem = next((step for step in (one, other) if "change" not in step), None)
        if problem is None:
            times = float(other["change"].norm() / one["change"].norm())
            told = f"the step is {times:.3g} times as long, loss {other['loss']:.4g} instead of {one['loss']:.4g}"
            case.update(relative=relative(other["change"], one["change"]), detail=told)
        emit({**case, **(problem or {})})


def trainer_evaluation(job: Job, emit: Emit) -> None:
    """Does ``evaluate()`` of the installed Trainer give the loss that the model has, on batches that collators made?

    Five samples with as many labels each, in batches of two, through a model with dropout: the loss must be the mean
    over them, with dropout off, also for the last batch, which is not full.
    https://github.com/huggingface/transformers/issues/41108, https://github.com/huggingface/transformers/issues/16716.
    And what the collators for language models pad must not count: labels of pads are ignored, labels that were ignored
    stay so, and nothing else is changed.
    """
    samples = []
    for tokens, labels in tiny_models.samples(_LENGTHS):
        labels[:-_EVALUATED] = tiny_models.IGNORED
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels})
    for name, more in (("DataCollatorForSeq2Seq", {"padding": True}), ("DataCollatorForTokenClassification", {})):
        case = judged("exact", "collator-differs", ["labels"], case=name, params={"collator": name})
        emit({**case, **found_by(partial(_collated, name, more, samples[:3]), job["device"])})
    case = judged("change", "evaluation-differs", ["loss"], dtype="fp32", limit=_LOSS, params={"batch": _BATCH})
    case["case"] = f"evaluate() on {len(samples)} samples by two"
    emit({**case, **found_by(partial(_evaluated, samples, job["device"]), job["device"], "the Trainer")})


def trainer_training(job: Job, emit: Emit) -> None:
    """Do steps of the installed Trainer change a model as a plain loop over the same batches does, and does a run that
    is resumed from a checkpoint go on as the one that was not stopped?

    Two epochs over five samples by two, the last batch of one sample included, with AdamW, weight decay of matrices and
    not of norms, clipping, and a linear schedule with warm-up: the change of all parameters against a loop that is
    written here. https://github.com/huggingface/transformers/issues/35663 (losses),
    https://github.com/huggingface/transformers/pull/35438 (what a batch counts). A Llama in float32: seen equal to
    1e-5; with ``bf16=True`` 0.014, and with ``fp16=True`` on a GPU. Resumed in the middle of the second epoch, with
    dropout, whose random numbers must be those of the run that went on
    (https://github.com/huggingface/transformers/issues/17032): seen bitwise equal.
    """
    device = job["device"]
    halves = ["bf16"] * (device == "cpu" or torch.cuda.is_bf16_supported()) + ["fp16"] * (device == "cuda")
    for half in ("", *halves):
        words = f"{half}=True: " if half else ""
        limit = _HALF_STEP if half else _STEP
        case = judged("change", "training-differs", ["parameters"], dtype=half or "fp32", limit=limit)
        case.update(case=f"{words}{_EPOCHS} epochs of {len(_LENGTHS)} samples by {_BATCH}", params={"batch": _BATCH})
        emit({**case, **found_by(partial(_trained, device, half, words), device, "the Trainer")})
    case = judged("change", "resume-differs", ["parameters"], dtype="fp32", limit=_LOSS, params={"batch": _BATCH})
    case["case"] = f"from the checkpoint of step {_SAVED}"
    emit({**case, **found_by(partial(_resumed, device), device, "the Trainer")})


def _accumulated(size: int, device: str) -> dict[str, Any]:
    """The logged loss and the change of all parameters of one optimizer step."""
    generator = torch.Generator().manual_seed(3)
    samples = []
    for labels in _ACCUMULATED:
        tokens = torch.randint(3, 97, (_SAME_LENGTH,), generator=generator)
        targets = tokens.clone()
        targets[: _SAME_LENGTH - labels] = tiny_models.IGNORED
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": targets})
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    more = {"vocab_size": 97, "num_hidden_layers": 1, "pad_token_id": 0, "attn_implementation": "eager"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **more))
    before = vector(model, "data")
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        trainer = in_order(model, arguments(device, output_dir=folder, **one_step(size, 4 // size)), samples)
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"loss": float(logged[0]) if logged else float("nan"), "change": vector(model, "data") - before}


def _collated(name: str, more: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Any]:
    lists = [{key: value.tolist() for key, value in sample.items()} for sample in samples]
    problem = _problem(getattr(transformers, name)(tokenizer(), **more)(lists), samples)
    return {"equal": not problem, "detail": problem or "what went in came out"}


def _problem(batch: Any, samples: list[dict[str, Any]]) -> str:
    """What is wrong with a padded batch; empty for nothing."""
    for row, sample in enumerate(samples):
        length = len(sample["input_ids"])
        live = batch["attention_mask"][row].bool()
        if int(live.sum()) != length:
            return f"the mask of sample {row} has {int(live.sum())} tokens of {length}"
        for key in ("input_ids", "labels"):
            if not torch.equal(batch[key][row][live], sample[key]):
                return f"{key} of sample {row} are not those that went in"
        if bool((batch["labels"][row][~live] != tiny_models.IGNORED).any()):
            return f"the padding of sample {row} has labels that count"
    return ""


def _evaluated(samples: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """``eval_loss`` of the Trainer against the mean over the labels, one sample at a time without dropout."""
    model = tiny_models.build("llama", "eager").to(device)
    tiny_models.stress(model, 12)
    losses = []
    with torch.no_grad():
        for sample in samples:
            logits = model.eval()(input_ids=sample["input_ids"][None].to(device)).logits.cpu()
            losses.append(float(loss_of(logits, sample["labels"][None])))
    tiny_models.drop_attention(model)
    model.train()

    def collate(some: list[dict[str, Any]]) -> dict[str, Any]:
        return tiny_models.padded([(sample["input_ids"], sample["labels"]) for sample in some], "right")

    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        settings = arguments(device, output_dir=folder, per_device_eval_batch_size=_BATCH)
        trainer = transformers.Trainer(model=model, args=settings, eval_dataset=samples, data_collator=collate)
        found = float(trainer.evaluate()["eval_loss"])
    exact = sum(losses) / len(losses)
    told = f"eval_loss {found:.5g} where the model's loss is {exact:.5g}"
    return {"relative": abs(found - exact) / exact, "detail": told}


def _trained(device: str, half: str, words: str) -> dict[str, Any]:
    """The change of all parameters by the Trainer against that by the loop."""
    made = tiny_models.samples(_LENGTHS)
    model, plain = (tiny_models.build("llama", "eager").to(device) for _ in range(2))
    before = vector(model, "data")
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        trainer = _trainer(model, made, device, folder, **({half: True} if half else {}))
        trainer.train()
    _loop(plain, made)
    words += f"{int(trainer.state.global_step)} steps"
    return tiny_models.step_error(vector(model, "data") - before, vector(plain, "data") - before, words)


def _trainer(model: Any, made: list[Any], device: str, folder: str, **chosen: Any) -> Any:
    """A Trainer with the settings that :func:`_loop` has."""
    settings: dict[str, Any] = {"learning_rate": _RATE, "lr_scheduler_type": "linear", "warmup_steps": _WARMUP}
    settings.update(per_device_train_batch_size=_BATCH, num_train_epochs=_EPOCHS, logging_steps=100)
    settings.update(weight_decay=_DECAY, max_grad_norm=_NORM, **chosen)
    padded = partial(tiny_models.padded, side="right")
    return in_order(model, arguments(device, output_dir=folder, **settings), made, data_collator=padded)


def _resumed(device: str) -> dict[str, Any]:
    """The change of all parameters by a run that was resumed against that by the run that wrote the checkpoint and went
    on; where they differ, what was not as it had been when the step after it began."""
    made = tiny_models.samples(_LENGTHS)
    changes, states = [], []
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        for checkpoint in (None, os.path.join(folder, f"checkpoint-{_SAVED}")):
            model = tiny_models.build("llama", "eager").to(device)
            tiny_models.drop_attention(model)
            before = vector(model, "data")
            trainer = _trainer(model, made, device, folder, save_strategy="steps", save_steps=_SAVED)
            seen = _Seen()
            trainer.add_callback(seen)
            try:
                trainer.train(resume_from_checkpoint=checkpoint)
            except ValueError as error:
                if "upgrade torch" in str(error):  # https://github.com/huggingface/transformers/pull/37785
                    raise Unavailable(f"this transformers does not resume with this torch: {error}"[:300]) from error
                raise
            changes.append(vector(model, "data") - before)
            states.append(seen.state)
    off = relative(changes[1], changes[0])
    lost = [name for name, value in states[0].items() if not torch.equal(value, states[1].get(name, value[:0]))]
    told = f", where not as saved: {', '.join(lost)}" if lost and off > _LOSS else ""
    return {"relative": off, "case": f"from the checkpoint of step {_SAVED}{told}"}


class _Seen(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
    """The state of a run when the step behind the checkpoint begins, as tensors by their names."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Keep it at that step."""
        if state.global_step == _SAVED:
            kept = given["optimizer"].state_dict()["state"].values()
            moments = [value.double().cpu().flatten() for one in kept for value in one.values()]
            rates = torch.tensor(given["lr_scheduler"].get_last_lr())
            self.state = {"weights": vector(given["model"], "data"), "learning rate": rates}
            self.state.update({"optimizer": torch.cat(moments) if moments else torch.zeros(0)})
            self.state["random numbers"] = torch.get_rng_state()


def _loop(model: Any, made: list[Any]) -> None:
    """The same without the Trainer."""
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
        batch = tiny_models.moved(tiny_models.padded(some, "right"), model)
        labels = batch.pop("labels")
        loss_of(model(**batch).logits, labels).backward()
        total = float(vector(model).norm())
        for parameter in model.parameters():
            parameter.grad *= min(1.0, _NORM / (total + 1e-6))
        optimizer.step()
        optimizer.zero_grad()
