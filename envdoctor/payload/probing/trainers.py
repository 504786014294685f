"""The installed Trainer for a tiny run that leaves nothing behind."""

from __future__ import annotations

from typing import Any

import torch
import transformers

__all__ = ["arguments", "in_order"]


def arguments(device: str, **chosen: Any) -> Any:
    """TrainingArguments; the way to ask for the CPU has two names."""
    settings = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "remove_unused_columns": False, **chosen}
    if device == "cuda":
        return transformers.TrainingArguments(**settings)
    try:
        return transformers.TrainingArguments(use_cpu=True, **settings)
    except TypeError:
        return transformers.TrainingArguments(no_cuda=True, **settings)


def in_order(model: Any, settings: Any, samples: Any, **chosen: Any) -> Any:
    """A Trainer that takes the samples in their order, whatever the batch size."""

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *arguments: Any, **kwargs: Any) -> Any:
            return torch.utils.data.SequentialSampler(samples)

    return InOrder(model=model, args=settings, train_dataset=samples, **chosen)
