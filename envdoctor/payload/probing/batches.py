"""Batches of unequal samples for tiny language models: one by one, of equal length, and padded on either side."""

from __future__ import annotations

from typing import Any

import torch

#: Short ones for the CPU; the long ones pad to 192, and 192 % 128 = 64 is where some kernels err.
LENGTHS = {"short": (24, 17, 9, 33), "long": (192, 97, 64, 130)}
IGNORED = -100


def samples(lengths: tuple[int, ...], seed: int = 7) -> list[tuple[Any, Any]]:
    """(tokens, labels) of each sample: tokens in 3 … 96, the first third of the labels ignored."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for length in lengths:
        tokens = torch.randint(3, 97, (length,), generator=generator)
        labels = tokens.clone()
        labels[: length // 3] = IGNORED
        made.append((tokens, labels))
    return made


def counted(labels: Any) -> int:
    """Labels that count after the shift by one."""
    return int((labels[1:] != IGNORED).sum())


def one_by_one(made: list[tuple[Any, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Each sample alone and unpadded, with its weight in the mean over all label tokens."""
    total = sum(counted(labels) for _, labels in made)
    return [
        (
            {"input_ids": tokens[None], "attention_mask": torch.ones_like(tokens)[None], "labels": labels[None]},
            counted(labels) / total,
        )
        for tokens, labels in made
        if counted(labels)
    ]


def padded(made: list[tuple[Any, Any]], side: str, position_ids: bool = False, empty: bool = False) -> dict[str, Any]:
    """One batch, padded on the left or right to the longest. ``empty`` adds a sample that is nothing but padding."""
    longest = max(len(tokens) for tokens, _ in made)
    made = [*made, *([(tokens[:0], labels[:0]) for tokens, labels in made[:1]] if empty else [])]
    rows, masks, targets = [], [], []
    for tokens, labels in made:
        room = longest - len(tokens)
        ends = (room, 0) if side == "left" else (0, room)
        rows.append(torch.nn.functional.pad(tokens, ends, value=0))
        masks.append(torch.nn.functional.pad(torch.ones_like(tokens), ends, value=0))
        targets.append(torch.nn.functional.pad(labels, ends, value=IGNORED))
    batch = {"input_ids": torch.stack(rows), "attention_mask": torch.stack(masks), "labels": torch.stack(targets)}
    if position_ids:
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return batch
