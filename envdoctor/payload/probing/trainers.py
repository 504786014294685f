"""The installed Trainer for a tiny run that leaves nothing behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import transformers

from . import tiny_models


def lightly(experiment: Callable[..., None]) -> Callable[..., None]:
    """Wrap an experiment so that collecting garbage, as each Trainer does when it begins, passes over older objects:
    half of the time that a tiny run takes."""

    @wraps(experiment)
    def run(*given: Any) -> None:
        gc.collect()
        gc.freeze()
        try:
            experiment(*given)
        finally:
            gc.unfreeze()

    return run


def arguments(kind: Any, device: str, **choices: Any) -> Any:
    """Return TrainingArguments or a ``kind`` of these; the way to ask for the CPU has two names."""
    settings = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, **choices}
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)  # what a run before this one left, in older releases
    if device == "cuda":
        training_arguments = kind(**settings)
        # With more GPUs it would split each batch over them (DataParallel), and take as many times the samples.
        _ = training_arguments.device  # counts them, once
        training_arguments._n_gpu = 1
        return training_arguments
    try:
        return kind(use_cpu=True, **settings)
    except TypeError:
        return kind(no_cuda=True, **settings)


def tokenizer() -> Any:
    """Return a tokenizer that knows the words w3, w4, … by these numbers, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    words = {word: number for number, word in enumerate(special.values())}
    words.update({f"w{number}": number for number in range(len(words), tiny_models.VOCABULARY)})
    word_tokenizer = Tokenizer(models.WordLevel(words, unk_token=special["unk_token"]))
    word_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer, **special)
