"""What does a sample without a single label that counts do to the loss?

The mean of a cross entropy over ignored labels is 0/0 = NaN, by design since torch 1.11
(https://github.com/pytorch/pytorch/issues/70348, https://github.com/pytorch/pytorch/issues/116349). Its gradient is 0,
so a batch of its own is lost silently; beside others it must not matter. That is what is checked: the batch's loss and
gradients stay finite and those of the other sample.
"""

from __future__ import annotations

from typing import Any

import torch

from ..probing.job import Emit, Job, judged
from ..probing.rounding import forward_backward, lost, relative

PROBE = {"title": "samples whose labels are all ignored"}


def run(job: Job, emit: Emit) -> None:
    """The batch with such a sample (judge ``change``), and what the sample alone gives (information)."""
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(2, 12, 97, generator=generator).to(job["device"])
    labels = torch.randint(0, 97, (2, 12), generator=generator).to(job["device"])
    labels[1] = -100
    loss, gradient = _gradient(logits, labels)
    _, alone = _gradient(logits[:1], labels[:1])
    difference = relative(gradient[:1], alone) + float(gradient[1].abs().sum())
    case = judged("change", "label-mask", ["loss", "gradients"], dtype="fp32", backend="default", limit=1e-5)
    case.update(case="beside a sample with labels", params={"labels": "one sample of two"})
    emit({**case, "relative": "nan" if lost(loss) or lost(gradient) else difference})
    loss, gradient = _gradient(logits[1:], labels[1:])
    told = f"loss {float(loss)}, sum of gradients {float(gradient.abs().sum())}: NaN and 0 by design"
    emit({"kind": "info", "case": "a batch of such samples alone", "dtype": "fp32", "detail": told})


def _gradient(logits: Any, labels: Any) -> tuple[Any, Any]:
    def loss(given: Any) -> Any:
        return torch.nn.functional.cross_entropy(given.flatten(0, 1), labels.flatten(), ignore_index=-100)

    loss_and_gradient = forward_backward(loss, [logits])
    return loss_and_gradient["o"], loss_and_gradient["d0"]
