"""Samples of random tokens, as a Trainer takes them."""

from typing import Any


def tokens(count: int, length: int = 20, pad: int = 0) -> list[dict[str, Any]]:
    """Samples of random tokens, left-padded by ``pad``."""
    import torch

    generator = torch.Generator().manual_seed(7)
    samples = []
    for _ in range(count):
        ids = torch.randint(3, 97, (length,), generator=generator)
        mask = torch.ones(length, dtype=torch.long)
        labels = ids.clone()
        if pad:
            ids[:pad], mask[:pad], labels[:pad] = 0, 0, -100
        samples.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    return samples
