"""What a batch looks like, for the record: shapes, padding, labels. Reads tensors, keeps none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: transformers' label value for "does not count".
_IGNORED = -100


def tensors_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among the model's keyword arguments."""
    return {name: value for name, value in batch.items() if hasattr(value, "dtype") and hasattr(value, "shape")}


def bytes_of(batch: Mapping[str, Any]) -> int:
    """Bytes that the batch's tensors hold."""
    return sum(value.numel() * value.element_size() for value in tensors_of(batch).values())


def shape_of(batch: Mapping[str, Any]) -> tuple[int, int] | None:
    """Samples and padded length; None when nothing tells."""
    for name in ("input_ids", "labels", "attention_mask", "inputs_embeds"):
        value: Any = batch.get(name)
        if hasattr(value, "shape") and len(value.shape) >= 2:
            return int(value.shape[0]), int(value.shape[1])
    return None


def describe(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The facts ``watch.batch_size``, ``length``, ``tile``, ``padded``, ``padding_side``, ``label_tokens`` and
    ``unlabelled_rows``, as far as the batch tells. Reads the device: not for the hot path."""
    facts: dict[str, Any] = {}
    shape = shape_of(batch)
    if shape is not None:
        facts.update({"watch.batch_size": shape[0], "watch.length": shape[1], "watch.tile": shape[1] % 128})
    mask = batch.get("attention_mask")
    if mask is not None and hasattr(mask, "shape") and len(mask.shape) == 2:
        kept = mask.bool()
        hidden = ~kept
        facts["watch.padded"] = bool(hidden.any())
        if facts["watch.padded"]:
            left, right = bool(hidden[:, 0].any()), bool(hidden[:, -1].any())
            facts["watch.padding_side"] = "both" if left and right else "left" if left else "right"
    labels = batch.get("labels")
    if labels is not None and hasattr(labels, "shape") and len(labels.shape) == 2:
        counted = (labels[:, 1:] != _IGNORED).sum(dim=1)
        facts["watch.label_tokens"] = int(counted.sum())
        facts["watch.unlabelled_rows"] = int((counted == 0).sum())
    return facts
