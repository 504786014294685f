"""Does a step of the installed trl change a model as the loss that its method is named for?

One step of SGD with learning rate 1 in float32, over four samples of unequal length in one batch and in two, their
gradients added: supervised fine-tuning on the tokens of whole texts and of completions alone, against the mean negative
log probability of the tokens that count; direct preference optimization against -log sigmoid(beta · (chosen -
rejected)), log probabilities summed over a completion less those of a reference model, which are also taken in advance
(https://arxiv.org/abs/2305.18290, equation 7). And samples packed into one row must keep the tokens that count and
those that do not.

https://github.com/huggingface/trl/issues/3728 (packing loses the mask of what counts),
https://github.com/huggingface/trl/pull/2615 (accumulation multiplies the step of DPO). The Trainer divided by
the labels of a batch and not by those that something predicts: https://github.com/huggingface/transformers/pull/46204.
"""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ..probing import tiny_models
from ..probing.kit import IGNORED, Case, Job, Unavailable, of_rows, pair, relative, vector
from ..probing.plain_decoder import loss_of

PROBES = {
    "trl-training": {
        "title": "steps of the installed trl against its losses in plain torch",
        "needs": ["torch", "transformers", "accelerate", "datasets", "trl"],
        "suites": {"full": [{}]},
        "seconds": {"cpu": 90, "cuda": 120},
        "memory_mib": 2500,
    }
}

#: Tokens of the prompts and of the completions, of those that are preferred and of the others.
_PROMPTS, _CHOSEN, _REJECTED = (3, 9, 5, 2), (11, 2, 7, 17), (4, 13, 2, 8)
_BETA = 0.5
_LIMIT = 1e-2


@of_rows
def trl_training(job: Job) -> Iterator[Case]:
    """Yield a row for each method and size of the batch, and one for packed samples."""
    for name, check in (("SFT", _fine_tuned), ("DPO", _preferred)):
        for title, settings in _FORMS[name]:
            for size in (4, 2):
                words = f"{name}, {title}, one step of {4 // size} x {size} samples"
                row = pair(
                    words,
                    partial(_step_error, job, check, size, dict(settings), words),
                    gate="parameters",
                    limit=_LIMIT,
                )
                params = {"method": name.lower(), "micro_batches": 4 // size}
                yield row._replace(params=params, signature="training-differs", library="trl")
    row = pair("SFT, samples in one row", partial(_packed, job), gate="labels", judge="exact", dtype="")
    yield row._replace(signature="packing-labels")


_FORMS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "SFT": [
        ("whole texts", {"dataset_text_field": "input_ids", "dataset_kwargs": {"skip_prepare_dataset": True}}),
        ("completions only", {"completion_only_loss": True}),
    ],
    "DPO": [("reference beside", {}), ("reference in advance", {"precompute_ref_log_probs": True})],
}


def _step_error(job: Job, check: Any, size: int, settings: dict[str, Any], title: str) -> dict[str, Any]:
    change, exact, shorter = check(job, size, settings)
    measures = tiny_models.step_error(change, exact, title)
    if measures["relative"] > _LIMIT and relative(change, exact * shorter) <= _LIMIT:
        measures.update(signature="first-labels-counted", soft=True)
    return measures


def _models(device: str) -> list[Any]:
    """Return the model, its twin, and one with other weights for the reference."""
    models = [tiny_models.build("llama", "eager").to(device) for _ in range(3)]
    with torch.no_grad():
        for parameter in models[2].parameters():
            parameter.mul_(1.5)
    return models


def _fine_tuned(job: Job, size: int, settings: dict[str, Any]) -> tuple[Any, Any, float]:
    """Return (the change of all parameters by SFTTrainer, the one by the loss itself, that part of it which is left
    when first labels count that nothing predicts)."""
    rows = _rows("completion_only_loss" in settings)
    model, plain, _ = _models(job["device"])
    before = vector(model, "data")
    with _trainer("SFT", model, rows, settings, size=size) as trainer:
        trainer.train()
    summed: Any = 0.0
    count = 0
    for row in rows:
        tokens, labels = (torch.tensor(row[key])[None].to(job["device"]) for key in ("input_ids", "wanted"))
        weight = tiny_models.counted(labels)
        summed, count = summed + weight * loss_of(plain(input_ids=tokens).logits, labels), count + weight
    (summed / count).backward()
    labelled = sum(label != IGNORED for row in rows for label in row["wanted"])
    return vector(model, "data") - before, -vector(plain), count / labelled


def _rows(masked: bool) -> list[dict[str, Any]]:
    """Return samples whose tokens are there already; ``wanted`` are the labels that follow, and no column of trl."""
    rows: list[dict[str, Any]] = []
    for tokens, _ in tiny_models.samples(tuple(first + second for first, second in zip(_PROMPTS, _CHOSEN))):
        prompt = _PROMPTS[len(rows)] if masked else 0
        mask = [0] * prompt + [1] * (len(tokens) - prompt)
        labels = [int(token) if counts else IGNORED for token, counts in zip(tokens, mask)]
        rows.append({"input_ids": tokens.tolist(), "wanted": labels, **({"completion_mask": mask} if masked else {})})
    return rows


def _preferred(job: Job, size: int, settings: dict[str, Any]) -> tuple[Any, Any, float]:
    """Return the same for DPOTrainer, where all of the change is left."""
    columns = {
        key: [tokens.tolist() for tokens, _ in tiny_models.samples(lengths, seed)]
        for seed, (key, lengths) in enumerate({"prompt": _PROMPTS, "chosen": _CHOSEN, "rejected": _REJECTED}.items())
    }
    rows = [
        {key: "".join(f" w{token}" for token in texts[place]) for key, texts in columns.items()}
        for place in range(len(_PROMPTS))
    ]
    model, plain, reference = _models(job["device"])
    before = vector(model, "data")
    settings = {**settings, "beta": _BETA}
    with _trainer("DPO", model, rows, settings, size=size, ref_model=reference) as trainer:
        trainer.train()
    _, _, reference = _models(job["device"])
    losses, end = [], tiny_models.tokenizer().eos_token_id
    for place, prompt in enumerate(columns["prompt"]):
        edge = []
        for key in ("chosen", "rejected"):
            tokens = torch.tensor([*prompt, *columns[key][place], end])[None].to(job["device"])
            labels = tokens.clone()
            labels[:, : len(prompt)] = IGNORED
            count = tiny_models.counted(labels)
            with torch.no_grad():
                usual = loss_of(reference(input_ids=tokens).logits, labels)
            edge.append(count * (usual - loss_of(plain(input_ids=tokens).logits, labels)))
        losses.append(-torch.nn.functional.logsigmoid(_BETA * (edge[0] - edge[1])))
    (sum(losses) / len(losses)).backward()
    return vector(model, "data") - before, -vector(plain), 1.0


@contextmanager
def _trainer(
    name: str,
    model: Any,
    rows: list[dict[str, Any]],
    choices: dict[str, Any],
    *,
    size: int,
    asks: tuple[str, ...] = (),
    **more: Any,
) -> Iterator[Any]:
    """Yield a trainer of trl over these rows with one step before it, in a folder that goes afterwards. ``asks`` are
    settings without which :class:`Unavailable` is raised, as without the ``choices``."""
    import datasets
    import trl

    kind, settings = getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config", None)
    if settings is None:
        raise Unavailable(f"this trl has no {name}Config (0.9 brought it)")
    known = {field.name for field in dataclasses.fields(settings)}
    missing = sorted({*choices, *asks} - known)
    if missing:
        raise Unavailable(f"this trl does not offer {missing[0]}")
    lengths = {"max_length": 64, "max_seq_length": 64, "max_prompt_length": 32}
    data = datasets.Dataset.from_list([{key: row[key] for key in row if key != "wanted"} for row in rows])
    takes = inspect.signature(kind.__init__).parameters
    words = {"processing_class" if "processing_class" in takes else "tokenizer": tiny_models.tokenizer()}
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        training_arguments = tiny_models.arguments(
            settings,
            model.device.type,
            output_dir=folder,
            gradient_checkpointing=False,  # on by itself in newer releases, as is bf16
            bf16=False,
            **_one_step(size, len(rows) // size),
            **{key: value for key, value in lengths.items() if key in known},
            **choices,
        )
        yield kind(model=model, args=training_arguments, train_dataset=data, **words, **more)


def _one_step(size: int, accumulate: int) -> dict[str, Any]:
    """Return settings of one SGD step that moves weights by the gradient of ``accumulate`` batches of that size."""
    plain = {"learning_rate": 1.0, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0}
    batch = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulate}
    return {**batch, **plain, "max_steps": 1, "logging_steps": 1}


def _packed(job: Job) -> dict[str, Any]:
    """Count the tokens whose labels count in the batches of a trainer that packs."""
    rows = _rows(True)
    model = tiny_models.build("llama", "eager").to(job["device"])
    settings = {"completion_only_loss": True, "packing": True}
    with _trainer("SFT", model, rows, settings, size=1, asks=("packing_strategy",)) as trainer:
        counted: Counter[tuple[int, int]] = Counter()
        for batch in trainer.get_train_dataloader():
            for tokens, labels in zip(batch["input_ids"], batch["labels"]):
                counted.update(zip(tokens.tolist(), labels.tolist()))
    exact: Counter[tuple[int, int]] = Counter()
    for row in rows:
        exact.update(zip(row["input_ids"], row["wanted"]))
    wrong = sum(((counted - exact) + (exact - counted)).values()) // 2
    return {"equal": not wrong, "detail": f"{wrong} of {sum(exact.values())} labels are not those that were asked for"}
