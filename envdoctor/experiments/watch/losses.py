"""The loss in a model's output, the description of a batch, and the micro-batches of an optimizer step."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

#: transformers' label value for "does not count".
_IGNORED = -100
#: How many bytes and batches of one optimizer step are kept for a second run; the last batch is always kept.
_KEPT_BYTES = 64 << 20
_KEPT_BATCHES = 64
#: Losses of single micro-batches; more are folded into one.
_KEPT_LOSSES = 256
#: A loss over tokens above this many times ln(vocabulary) is far worse than guessing, which costs ln(vocabulary).
_WORSE = 1.5


def _loss_tensor(output: Any) -> Any:
    """Return the tensor in a model's output that holds its loss: ``.loss``, ``["loss"]``, the first of a tuple if it is
    one number, or ``log_probs`` of the labels, from which trl 1.16 computes a loss (``trl/trainer/sft_trainer.py``)."""
    loss = _field_of(output, "loss")
    if loss is None and isinstance(output, tuple) and output and hasattr(output[0], "numel") and output[0].numel() == 1:
        loss = output[0]
    loss = _field_of(output, "log_probs") if loss is None else loss
    return loss if hasattr(loss, "detach") else None


def loss_of(output: Any) -> Any:
    """Return the loss in a model's output as one number; None without one. Without a label, ``log_probs`` give 0."""
    tensor = _loss_tensor(output)
    if tensor is not None and tensor is _field_of(output, "log_probs"):
        mask = _field_of(output, "label_mask")
        return -tensor.sum() / (tensor.numel() if mask is None else mask.sum().clamp(min=1))
    return tensor.mean() if tensor is not None and tensor.dim() else tensor


def _worst_of(model: Any, batch: Mapping[str, Any]) -> float:
    """Return the loss above which a model is far worse than guessing; infinite if the loss is not a mean over tokens:
    CTC's is a sum, which grows with the length of a clip."""
    labels: Any = batch.get("labels")
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    words = getattr(text, "vocab_size", None)
    if hasattr(text, "ctc_loss_reduction") or getattr(labels, "ndim", 0) != 2 or labels.is_floating_point():
        return math.inf
    return _WORSE * math.log(words) if isinstance(words, int) and words > 1 else math.inf


def tensors_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among the model's keyword arguments."""
    return {name: value for name, value in batch.items() if hasattr(value, "dtype") and hasattr(value, "shape")}


def bytes_of(batch: Mapping[str, Any]) -> int:
    """Return the bytes that the batch's tensors hold."""
    return sum(value.numel() * value.element_size() for value in tensors_of(batch).values())


def shape_of(batch: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the number of samples and the padded length; None if they are unknown."""
    for name in ("input_ids", "labels", "attention_mask", "inputs_embeds"):
        value: Any = batch.get(name)
        if hasattr(value, "shape") and len(value.shape) >= 2:
            return int(value.shape[0]), int(value.shape[1])
    return None


def describe(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts ``watch.batch_size``, ``length``, ``tile``, ``padded``, ``padding_side``, ``label_tokens`` and
    ``unlabelled_rows``, if the batch tells them. Reads the device: not for the hot path."""
    facts: dict[str, Any] = {}
    shape = shape_of(batch)
    if shape is not None:
        facts.update({"watch.batch_size": shape[0], "watch.length": shape[1], "watch.tile": shape[1] % 128})
    mask = batch.get("attention_mask")
    if mask is not None and hasattr(mask, "shape") and len(mask.shape) == 2:
        hidden = ~mask.bool()
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


class StepLosses:
    """``batches`` and ``losses`` of one optimizer step by the number of their micro-batch; ``count`` is how many there
    were, ``shape`` the first's (samples, tokens). ``worst``: see :func:`_worst_of`. ``arrived`` are the gradients that
    backward passes brought to losses of the model's own."""

    def __init__(self) -> None:
        self.batches: dict[int, Mapping[str, Any]] = {}
        self.losses: list[tuple[int, Any]] = []
        self.count = 0
        self.shape: tuple[int, int] | None = None
        self.worst = math.inf
        self.arrived: deque[Any] = deque(maxlen=_KEPT_LOSSES)
        self._held = 0
        self._shares = False

    def before(self, model: Any, batch: Mapping[str, Any]) -> None:
        """Keep the batch of a new micro-batch."""
        size = bytes_of(batch)
        if len(self.batches) >= _KEPT_BATCHES or self._held + size > _KEPT_BYTES:
            self.batches, self._held = {}, 0
        self.batches[self.count] = batch
        self._held += size
        if not self.count:
            self.shape, self.worst = shape_of(batch), _worst_of(model, batch)
            # Its loss is the sum over its tokens by the number of those of the whole step.
            self._shares = batch.get("num_items_in_batch") is not None
        self.count += 1

    def after(self, output: Any) -> None:
        """Keep the loss of a micro-batch's output, if it has one; the loss stays on the device."""
        loss = loss_of(output)
        if loss is None:
            return
        tensor = _loss_tensor(output)
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: self.arrived.append(gradient.detach()))
        if len(self.losses) >= _KEPT_LOSSES:
            total = torch.stack([part.to(loss.device) for _, part in self.losses]).sum()
            self.losses = [(self.losses[0][0], total)]
        self.losses.append((max(self.count - 1, 0), loss.detach()))

    def mean(self) -> Any:
        """Return the loss of the step so far, on the device; None without one."""
        if not self.losses:
            return None
        device = self.losses[0][1].device
        losses = [loss.to(device) for _, loss in self.losses]
        together = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        return together if self._shares or self.count < 2 else together / self.count

    def bad(self) -> list[int]:
        """Return the numbers of the micro-batches whose loss is not finite. Reads the device."""
        return [number for number, loss in self.losses if not bool(torch.isfinite(loss))]

    def is_own(self) -> bool:
        """Return whether the step trained on the model's own losses, with finite gradients. Reads the device."""
        return bool(self.arrived) and all(bool(torch.isfinite(gradient).all()) for gradient in self.arrived)


def _field_of(output: Any, name: str) -> Any:
    field = getattr(output, name, None)
    return output.get(name) if field is None and isinstance(output, Mapping) else field
