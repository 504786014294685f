"""Settings of the installed Trainer for a tiny run that leaves nothing behind."""

from __future__ import annotations

from typing import Any

import transformers

__all__ = ["arguments"]


def arguments(device: str, **chosen: Any) -> Any:
    """TrainingArguments; the way to ask for the CPU has two names."""
    settings = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "remove_unused_columns": False, **chosen}
    if device == "cuda":
        return transformers.TrainingArguments(**settings)
    try:
        return transformers.TrainingArguments(use_cpu=True, **settings)
    except TypeError:
        return transformers.TrainingArguments(no_cuda=True, **settings)
