"""Does the installed transformers Trainer take the steps, and report the losses, that a plain loop gives?

The functions cite the bugs that they exist for, such as https://github.com/huggingface/transformers/pull/35651.
"""

from __future__ import annotations

import inspect
import math
import os
import tempfile
from collections.abc import Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

import torch
import transformers

from ..probing import tiny_models
from ..probing.kit import IGNORED, Case, Emit, Job, Unavailable, of_rows, pair, relative, run_rows, seed_of, vector
from ..probing.plain_decoder import loss_of
from ..probing.shapes import drawn, each

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

#: A row about the Trainer, to which errors of its interface are laid.
of_trainer = partial(pair, library="the Trainer")
#: Relative error of a step, of one in half precision, and of a loss or what must be the same.
_STEP, _HALF_STEP, _LOSS = 1e-2, 0.1, 1e-3
_LENGTHS = (24, 17, 9, 33, 12)
#: Labels of each sample that count: of those that are accumulated, which have one length, and in evaluation.
_ACCUMULATED, _SAME_LENGTH, _EVALUATED = (36, 3, 20, 1), 40, 6
_BATCH, _EPOCHS = 2, 2
_WARMUP, _DECAY, _NORM, _SMOOTHED = 2, 0.5, 0.5, 0.1
#: What else is usual: the settings of a run that a row of axes changes.
_USUAL = {"model": "llama", "labels": "behind a prompt", "loss": "own", "windows": 1, "optim": "adamw_torch"}
_USUAL.update(schedule="linear", norm=_NORM, half="", recomputed=False, dropped=False, evaluated=False, batch=_BATCH)
_RATES = {"adamw_torch": 1e-2, "adamw_torch_fused": 1e-2, "sgd": 0.3}
#: What a run is made of; each two values of two axes meet in a run.
_AXES = {
    "model": each("llama", "LoRA", "frozen"),
    "labels": each("behind a prompt", "all", "scattered", "one sample without"),
    "loss": each("own", "smoothed", "a function"),
    "windows": each(1, 2, 3),
    "optim": each("adamw_torch", "adamw_torch_fused", "sgd"),
    "schedule": each("linear", "cosine", "constant_with_warmup"),
    "norm": each(_NORM, 0.0),
    "recomputed": each(False, True),
    "dropped": each(False, True),
    "evaluated": each(False, True),
    "batch": each(1, 2, 3),
}
_ASKED = ("evaluate", "predict")
#: The collators for language models, and how they are made.
_COLLATORS: dict[str, dict[str, Any]] = {
    "DataCollatorForSeq2Seq": {"padding": True},
    "DataCollatorForTokenClassification": {},
    "DataCollatorForLanguageModeling": {"mlm": False},
    "DataCollatorWithFlattening": {},
}
#: The same of a run that is stopped after some of its steps and resumed.
_STOPPED = {
    "model": each("llama", "LoRA"),
    "saved": each(1, "an epoch", "an epoch and a step"),
    "windows": each(1, 2),
    "optim": each("adamw_torch", "sgd"),
    "schedule": each("linear", "cosine"),
}


@tiny_models.lightly
@of_rows
def grad_accumulation(job: Job) -> Iterator[Case]:
    """Do n micro-batches of one give the step that one batch of n gives, through the installed transformers Trainer?

    transformers 4.48.0 multiplied loss and gradient by the number of accumulation steps, 4.45.2 and older averaged the
    averages of unequal samples. https://github.com/huggingface/transformers/pull/35651 (fixed in 4.48.1),
    https://github.com/huggingface/transformers/pull/34191, https://github.com/huggingface/transformers/issues/34263,
    https://github.com/huggingface/transformers/issues/37766.

    A Llama in float32 with SGD on four samples with 36, 3, 20 and 1 label tokens: the change of all parameters after
    one step of 4 x 1, 2 x 2 and 1 x 4 must be the same. Seen: a difference of 7.9 with 4.48.0, of 1e-7 with others.
    """
    device, pairs = job["device"], tiny_models.samples((_SAME_LENGTH,) * len(_ACCUMULATED), seed=3)
    pairs = [
        (tokens, tokens.clone().index_fill_(0, torch.arange(_SAME_LENGTH - labels), IGNORED))
        for (tokens, _), labels in zip(pairs, _ACCUMULATED)
    ]
    once = {**_USUAL, "optim": "sgd", "schedule": "constant_with_warmup", "norm": 0.0}
    once.update(epochs=1, warmup=0, decay=0.0)  # nothing but the gradient is in the step

    @lru_cache(maxsize=3)  # Python 3.8 has no functools.cache
    def step(size: int) -> dict[str, Any]:
        return _run(device, {**once, "batch": size, "windows": 4 // size}, pairs)

    def compared(size: int) -> dict[str, Any]:
        whole, parts = step(4), step(size)
        times = float(parts["change"].norm() / whole["change"].norm())
        loss, right = (result["losses"][0] if result["losses"] else math.nan for result in (parts, whole))
        detail = f"the step is {times:.3g} times as long, loss {loss:.4g} instead of {right:.4g}"
        return {"relative": relative(parts["change"], whole["change"]), "detail": detail}

    for size in (1, 2):
        title = f"{4 // size} micro-batches of {size} against one batch of 4"
        row = of_trainer(title, partial(compared, size), gate="loss gradients", limit=_STEP)
        params = {"micro_batches": 4 // size, "micro_batch_size": size}
        yield row._replace(params=params, signature="accumulation-scale")


@tiny_models.lightly
@of_rows
def trainer_evaluation(job: Job) -> Iterator[Case]:
    """Does the installed Trainer give the loss and the logits that the model has, on batches that collators made?

    Five samples with as many labels each, in batches, through a model with dropout: the loss must be the mean over
    them, with dropout off, also for the last batch, which is not full and whose loss is far from that of the others.
    https://github.com/huggingface/transformers/issues/41108, https://github.com/huggingface/transformers/issues/16716.
    And what the collators for language models pad must not count: labels of pads are ignored, labels that were ignored
    stay so, nothing else is changed, and where samples are joined the first token of each is no label.
    """
    device, samples = job["device"], []
    for tokens, labels in tiny_models.samples(_LENGTHS):
        labels[:-_EVALUATED] = IGNORED
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels})
    whole = [{**samples[0], "labels": samples[0]["input_ids"]}, *samples[1:3]]
    axes = {"name": each(*_COLLATORS), "side": each("right", "left"), "multiple": each(None, 8)}
    for row in drawn(seed_of(job), **axes):
        name = row["name"]
        case = of_trainer(name, partial(_collated, row, whole), gate="labels", judge="exact", dtype="")
        yield case._replace(params={"collator": name}, signature="collator-differs", library="the collator")
    axes = {"model": _AXES["model"], "loss": each("own", "smoothed"), "batch": each(2, 3, 4), "asked": each(*_ASKED)}
    for row in drawn(seed_of(job), **axes):
        title = f"{row['asked']}() on {len(samples)} samples by {row['batch']}{_words(row)}"
        case = of_trainer(title, partial(_evaluated, row, samples, device), gate="loss", limit=_LOSS)
        yield case._replace(params={"batch": row["batch"]}, signature="evaluation-differs")


@tiny_models.lightly
def trainer_training(job: Job, emit: Emit) -> None:
    """Do steps of the installed Trainer change a model as a plain loop over the same batches does, and does a run that
    is resumed from a checkpoint go on as the one that was not stopped?

    Two epochs over five samples, the last batch not full, whatever the model, its labels and its loss, the number of
    batches of a step, optimizer and schedule: the change of all parameters, and the losses that are logged, against a
    loop that is written here, which gets the samples in the Trainer's order; each epoch must have all of them.
    https://github.com/huggingface/transformers/issues/35663 (losses),
    https://github.com/huggingface/transformers/pull/35438 (what a batch counts). In float32: seen equal to 1e-5; with
    ``bf16=True`` 0.014, and with ``fp16=True`` on a GPU. Resumed within an epoch and between two, with dropout, whose
    random numbers must be those of the run that went on (https://github.com/huggingface/transformers/issues/17032), and
    with the samples in its order: seen bitwise equal.
    """
    device, seed = job["device"], seed_of(job)
    halves = ["bf16"] * (device == "cpu" or torch.cuda.is_bf16_supported()) + ["fp16"] * (device == "cuda")
    rows: list[Case] = []
    shuffled: set[bool] = set()
    settings = [{**_USUAL, "half": half} for half in ("", *halves)]
    for row in [*settings, *({**_USUAL, **row} for row in drawn(seed, **_AXES))]:
        half = row["half"]
        words = f"{half}=True: " if half else ""
        title = f"{words}{_EPOCHS} epochs of {len(_LENGTHS)} samples by {row['batch']}{_words(row)}"
        case = of_trainer(title, partial(_trained, device, row, seed, shuffled), gate="parameters", series="steps")
        case = case._replace(params={"batch": row["batch"]}, signature="training-differs", dtype=half or "fp32")
        rows.append(case._replace(limit=_HALF_STEP if half else _STEP))
    run_rows(job, emit, rows)
    if shuffled:
        detail = "another than that of the first" if True in shuffled else "in all runs that of the first"
        order: Any = partial(dict, equal=True in shuffled, detail=detail)
        case = pair("the order of the second epoch", order, gate="parameters", judge="exact")
        run_rows(job, emit, [case._replace(params={"batch": _BATCH}, signature="training-differs")])
    rows = []
    for row in [{"saved": 1}, *drawn(seed, **_STOPPED)]:
        title = f"from the checkpoint of {row['saved']}{_words(row)}"
        measure = partial(_resumed, device, {**_USUAL, **row}, title)
        case = of_trainer(title, measure, gate="parameters", limit=_LOSS, series="resumed")
        rows.append(case._replace(params={"batch": _BATCH}, signature="resume-differs"))
    run_rows(job, emit, rows)


def _words(row: dict[str, Any]) -> str:
    """Return the settings of a row that are not usual."""
    return "".join(
        f", {name} {value}"
        for name, value in row.items()
        if name in _AXES and value != _USUAL[name] and name != "batch"
    )


def _model(row: dict[str, Any], device: str) -> Any:
    """Return a model whose attention is computed in plain torch; with adapters, or with its first weights frozen."""
    model = tiny_models.build("llama", "eager")
    if row["model"] == "LoRA":
        if find_spec("peft") is None:
            raise Unavailable("peft is not installed")
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        layers = ["q_proj", "v_proj", "down_proj"]
        settings = {"r": 4, "lora_alpha": 8, "target_modules": layers, "task_type": "CAUSAL_LM"}
        model = get_peft_model(model, LoraConfig(**settings, init_lora_weights=False))
    elif row["model"] == "frozen":
        for part in (model.model.embed_tokens, model.model.layers[0]):
            part.requires_grad_(False)
    return model.to(device)


def _labelled(how: str, seed: int = 7) -> list[Any]:
    """Return samples whose labels are ignored in this way."""
    pairs = tiny_models.samples(_LENGTHS, seed)
    for place, (tokens, labels) in enumerate(pairs):
        if how != "behind a prompt":
            labels.copy_(tokens)
        if how == "scattered":
            labels[place % 3 :: 3] = IGNORED
        elif how == "one sample without" and place == 1:
            labels[:-1] = IGNORED
    return pairs


def _criterion(row: dict[str, Any], logits: Any, labels: Any) -> Any:
    """Return the mean loss over the labels that count, as the settings have it."""
    loss = loss_of(logits, labels)
    if row["loss"] == "own":
        return loss
    predictions = logits[:, :-1][labels[:, 1:] != IGNORED]
    if row["loss"] == "smoothed":
        return (1 - _SMOOTHED) * loss + _SMOOTHED * (predictions.logsumexp(-1) - predictions.mean(-1)).mean()
    return loss + 0.1 * predictions.logsumexp(-1).square().mean()


def _trainer(model: Any, row: dict[str, Any], pairs: list[Any], device: str, folder: str, **changes: Any) -> Any:
    """Return a Trainer with the settings of the row over samples that are only their numbers, and the batches that it
    takes, which grow while it runs."""
    batches: list[list[int]] = []

    def collate(entries: list[dict[str, int]]) -> dict[str, Any]:
        numbers = [entry["number"] for entry in entries]
        if "evaluated" not in entries[0]:
            batches.append(numbers)
        return tiny_models.padded([pairs[number] for number in numbers], "right")

    def weighed(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        count = tiny_models.counted(labels)
        return _criterion(row, outputs.logits, labels) * count / (num_items_in_batch or count)

    rate = _RATES[row["optim"]]
    settings: dict[str, Any] = {"learning_rate": rate, "lr_scheduler_type": row["schedule"], "optim": row["optim"]}
    settings.update(warmup_steps=row.get("warmup", _WARMUP), num_train_epochs=row.get("epochs", _EPOCHS))
    settings.update(per_device_train_batch_size=row["batch"], gradient_accumulation_steps=row["windows"])
    settings.update(weight_decay=row.get("decay", _DECAY), max_grad_norm=row["norm"])
    settings.update(logging_steps=1, label_names=["labels"])
    settings.update(dataloader_drop_last=row["dropped"], per_device_eval_batch_size=row["batch"])
    if row["half"]:
        settings[row["half"]] = True
    if row["loss"] == "smoothed":
        settings["label_smoothing_factor"] = _SMOOTHED
    if row["recomputed"]:
        settings.update(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})
    more: dict[str, Any] = {"compute_loss_func": weighed} if row["loss"] == "a function" else {}
    data = [{"number": number} for number in range(len(pairs))]
    if row["evaluated"]:
        name = "eval_strategy" if hasattr(transformers.TrainingArguments, "eval_strategy") else "evaluation_strategy"
        settings.update({name: "steps", "eval_steps": 1})
        more["eval_dataset"] = [{**entry, "evaluated": 1} for entry in data]
    settings.update(changes, output_dir=folder, remove_unused_columns=False)
    run_settings = tiny_models.arguments(transformers.TrainingArguments, device, **settings)
    return transformers.Trainer(model, run_settings, collate, data, **more), batches


def _run(device: str, row: dict[str, Any], pairs: list[Any], seed: int = 0) -> dict[str, Any]:
    """Return the change of all parameters, the ``losses`` that were logged, and the numbers of each batch."""
    model = _model(row, device)
    before = vector(model, "data")
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        trainer, batches = _trainer(model, row, pairs, device, folder, seed=seed)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"change": vector(model, "data") - before, "losses": losses, "batches": batches}


def _trained(device: str, row: dict[str, Any], seed: int, shuffled: set[bool]) -> dict[str, Any]:
    """Compare the change of all parameters by the Trainer with that by the loop, and the losses. ``shuffled`` takes
    whether the second epoch has another order than the first."""
    takes = inspect.signature(transformers.trainer_pt_utils.LabelSmoother.__call__).parameters
    if row["loss"] == "smoothed" and "num_items_in_batch" not in takes:
        row = {**row, "windows": 1}  # a mean of means, as it was before
    pairs = _labelled(row["labels"])
    if "_loss_shifts_labels" not in inspect.getsource(transformers.Trainer.__init__):
        for _, labels in pairs:
            labels[0] = IGNORED  # https://github.com/huggingface/transformers/pull/46204
    run = _run(device, row, pairs, seed)
    size = len(pairs) // row["batch"] if row["dropped"] else math.ceil(len(pairs) / row["batch"])
    epochs = [run["batches"][place : place + size] for place in range(0, len(run["batches"]), size)]
    orders = [[number for batch in epoch for number in batch] for epoch in epochs]
    count = size * row["batch"] if row["dropped"] else len(pairs)
    if len(epochs) != _EPOCHS or any(len(set(order)) != count or len(order) != count for order in orders):
        return {"relative": 1.0, "signature": "epochs-differ", "detail": f"the epochs have the samples {orders}"[:200]}
    plain = _model(row, device)
    before = vector(plain, "data")
    losses = _loop(plain, pairs, epochs, row)
    change = tiny_models.step_error(run["change"], vector(plain, "data") - before, f"{len(losses)} steps")
    logged = max((abs(value - other) / other for value, other in zip(run["losses"], losses)), default=1.0)
    if len(run["losses"]) != len(losses) or not logged <= change["relative"]:
        change["detail"] += f", losses {run['losses'][:3]} where they are {[round(loss, 4) for loss in losses[:3]]}"
        change["relative"] = logged if len(run["losses"]) == len(losses) else 1.0
    shuffled.add(orders[0] != orders[1])
    return change


def _loop(model: Any, pairs: list[Any], epochs: list[list[list[int]]], row: dict[str, Any]) -> list[float]:
    """Train without the Trainer; return the loss of each step."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in trained if (weight.dim() > 1) is decays], "weight_decay": _DECAY * decays}
        for decays in (True, False)
    ]
    rate = _RATES[row["optim"]]
    adam = {"betas": (0.9, 0.999), "eps": 1e-8}
    optimizer = (
        torch.optim.SGD(groups, lr=rate) if row["optim"] == "sgd" else torch.optim.AdamW(groups, lr=rate, **adam)
    )
    number = row["windows"]
    windows = [epoch[place : place + number] for epoch in epochs for place in range(0, len(epoch), number)]
    losses = []
    for step, window in enumerate(windows):
        left = (step - _WARMUP) / (len(windows) - _WARMUP) if len(windows) > _WARMUP else 0.0
        shares = {"linear": 1 - left, "cosine": 0.5 + 0.5 * math.cos(math.pi * left), "constant_with_warmup": 1.0}
        for group in optimizer.param_groups:
            group["lr"] = rate * (step / _WARMUP if step < _WARMUP else shares[row["schedule"]])
        batches = [tiny_models.moved(tiny_models.padded([pairs[at] for at in ids], "right"), model) for ids in window]
        total, loss = sum(tiny_models.counted(batch["labels"]) for batch in batches), 0.0
        for batch in batches:
            labels = batch.pop("labels")
            part = _criterion(row, model(**batch).logits, labels) * tiny_models.counted(labels) / total
            part.backward()
            loss += float(part.detach())
        norm = float(vector(model).norm())
        for parameter in trained if row["norm"] else ():
            parameter.grad *= min(1.0, row["norm"] / (norm + 1e-6))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return losses


def _resumed(device: str, row: dict[str, Any], title: str) -> dict[str, Any]:
    """Compare the change of all parameters by a resumed run with that by the run that wrote the checkpoint and went on.
    If they differ, name what was not as it had been when the next step began."""
    pairs = _labelled(row["labels"])
    steps = math.ceil(math.ceil(len(pairs) / row["batch"]) / row["windows"])
    saved = {1: 1, "an epoch": steps, "an epoch and a step": steps + 1}[row["saved"]]
    changes, states = [], []
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        for checkpoint in (None, os.path.join(folder, f"checkpoint-{saved}")):
            model = _model(row, device)
            tiny_models.drop_attention(model)
            before = vector(model, "data")
            trainer, batches = _trainer(model, row, pairs, device, folder, save_strategy="steps", save_steps=saved)
            watcher = _StateAtStep(saved)
            trainer.add_callback(watcher)
            try:
                trainer.train(resume_from_checkpoint=checkpoint)
            except ValueError as error:
                if "upgrade torch" in str(error):  # https://github.com/huggingface/transformers/pull/37785
                    raise Unavailable(f"this transformers does not resume with this torch: {error}"[:300]) from error
                raise
            changes.append(vector(model, "data") - before)
            if trainer.state.global_step < saved:  # before transformers 4.52 a step that is not full counts otherwise
                raise Unavailable(f"this release ends after {trainer.state.global_step} steps, before step {saved}")
            left = batches[saved * row["windows"] :] if checkpoint is None else batches
            states.append({**watcher.state, "order of samples": torch.tensor([at for batch in left for at in batch])})
    off = relative(changes[1], changes[0])
    lost = [name for name, value in states[0].items() if not torch.equal(value, states[1].get(name, value[:0]))]
    suffix = f", where not as saved: {', '.join(lost)}" if lost and off > _LOSS else ""
    return {"relative": off, "case": title + suffix}


class _StateAtStep(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
    """The state of a run when the step behind the checkpoint begins, as tensors by their names."""

    def __init__(self, saved: int) -> None:
        self.saved = saved
        self.state: dict[str, Any] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Keep it at that step."""
        if state.global_step == self.saved:
            slots = objects["optimizer"].state_dict()["state"].values()
            values = [value for slot in slots for value in slot.values() if value is not None]
            moments = [value.double().cpu().flatten() for value in values]
            rates = torch.tensor(objects["lr_scheduler"].get_last_lr())
            self.state = {"weights": vector(objects["model"], "data"), "learning rate": rates}
            self.state.update({"optimizer": torch.cat(moments) if moments else torch.zeros(0)})
            self.state["random numbers"] = torch.get_rng_state()


def _collated(row: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is wrong with a batch of a collator; the samples come with labels or without."""
    name, words = row["name"], tiny_models.tokenizer()
    if not hasattr(transformers, name):
        raise Unavailable(f"this transformers has no {name}")
    words.padding_side = row["side"]
    settings = dict(_COLLATORS[name])
    if row["multiple"] and name != "DataCollatorWithFlattening":
        settings["pad_to_multiple_of"] = row["multiple"]
    keys = ("input_ids", "attention_mask", "labels")[: 2 + ("mlm" not in settings)]
    lists = [{key: sample[key].tolist() for key in keys} for sample in samples]
    if name == "DataCollatorWithFlattening":
        problem = _joined(transformers.DataCollatorWithFlattening(**settings)(lists), samples)
    else:
        if "mlm" in settings:
            samples = [{**sample, "labels": sample["input_ids"]} for sample in samples]
        problem = _problem(getattr(transformers, name)(words, **settings)(lists), samples)
    return {"equal": not problem, "detail": problem or "what went in came out"}


def _joined(batch: Any, samples: list[dict[str, Any]]) -> str:
    """Return what is wrong with samples that are one row; empty for nothing."""
    start = 0
    for row, sample in enumerate(samples):
        here = slice(start, start := start + len(sample["input_ids"]))
        labels = sample["labels"].clone()
        labels[0] = IGNORED
        expected = {"input_ids": sample["input_ids"], "labels": labels, "position_ids": torch.arange(len(labels))}
        for key, value in expected.items():
            if not torch.equal(batch[key][0][here], value):
                return f"{key} of sample {row} are not those that went in"
    return ""


def _problem(batch: Any, samples: list[dict[str, Any]]) -> str:
    """Return what is wrong with a padded batch; empty for nothing."""
    for row, sample in enumerate(samples):
        length = len(sample["input_ids"])
        live = batch["attention_mask"][row].bool()
        if int(live.sum()) != length:
            return f"the mask of sample {row} has {int(live.sum())} tokens of {length}"
        for key in ("input_ids", "labels"):
            if not torch.equal(batch[key][row][live], sample[key]):
                return f"{key} of sample {row} are not those that went in"
        if bool((batch["labels"][row][~live] != IGNORED).any()):
            return f"the padding of sample {row} has labels that count"
    return ""


def _evaluated(row: dict[str, Any], samples: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """Compare the loss of the Trainer with the mean over the labels, one sample at a time without dropout, and its
    predictions with the logits. Labels are the likeliest tokens, those of the last sample the least likely ones."""
    model = _model(row, device)
    tiny_models.stress(model, 12)
    losses, pairs, logits = [], [], []
    with torch.no_grad():
        for place, sample in enumerate(samples):
            tokens, labels = sample["input_ids"], sample["labels"].clone()
            output = model.eval()(input_ids=tokens[None].to(device)).logits.cpu()
            order, counts = output[0].argsort(-1), labels[1:] != IGNORED
            labels[1:][counts] = order[:-1, 0 if place == len(samples) - 1 else -1][counts]
            pairs.append((tokens, labels))
            logits.append(output[0])
            losses.append(float(_criterion(row, output, labels[None])))
    tiny_models.drop_attention(model)
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        trainer, _ = _trainer(model, {**_USUAL, **row}, pairs, device, folder)
        model.train()
        data = trainer.train_dataset
        predicted: Any = trainer.predict(data) if row["asked"] == "predict" else None
        loss = predicted.metrics["test_loss"] if predicted else trainer.evaluate(data)["eval_loss"]
    exact = sum(losses) / len(losses)
    off = abs(loss - exact) / exact
    detail = f"loss {loss:.5g} where the model's loss is {exact:.5g}"
    for place, expected in enumerate(logits if predicted else ()):
        wrong = relative(torch.as_tensor(predicted.predictions[place][: len(expected)]), expected)
        if not wrong <= max(off, _LOSS):
            off, detail = wrong, f"the logits of sample {place} are off by {wrong:.2g}"
    return {"relative": off, "detail": detail}
