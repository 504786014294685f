"""What does a sample without a single label that counts do to the loss?

The mean of a cross entropy over ignored labels is 0/0 = NaN, by design since torch 1.11
(https://github.com/pytorch/pytorch/issues/70348, https://github.com/pytorch/pytorch/issues/116349). Its gradient is 0,
so a batch of its own is lost silently; beside others it must not matter. That is what is checked: the batch's loss and
gradients stay finite and those of the other sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROBE = {
    "name": "label-mask",
    "title": "samples whose labels are all ignored",
    "settles": ["label-mask"],
    "needs": ["torch"],
    "suites": {"quick": [{}], "full": [{}]},
    "seconds": {"cpu": 60, "cuda": 120},
    "memory_mib": 1500,
}


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """The batch with such a sample (judge ``change``), and what the sample alone gives (information)."""
    import torch

    device = job["device"]
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(2, 12, 97, generator=generator).to(device)
    labels = torch.randint(0, 97, (2, 12), generator=generator).to(device)
    labels[1] = -100
    both = _gradient(logits, labels)
    alone = _gradient(logits[:1], labels[:1])
    difference = float((both[1][:1] - alone[1]).norm() / alone[1].norm()) + float(both[1][1].abs().sum())
    finite = bool(torch.isfinite(both[0])) and bool(torch.isfinite(both[1]).all())
    emit(
        {
            "case": "beside a sample with labels",
            "judge": "change",
            "dtype": "fp32",
            "backend": "default",
            "signature": "label-mask",
            "tensors": ["loss", "gradients"],
            "relative": difference if finite else "nan",
            "limit": 1e-5,
            "params": {"labels": "one sample of two"},
        }
    )
    loss, gradient = _gradient(logits[1:], labels[1:])
    emit(
        {
            "kind": "info",
            "case": "a batch of such samples alone",
            "dtype": "fp32",
            "detail": f"loss {float(loss)}, sum of gradients {float(gradient.abs().sum())}: NaN and 0 by design",
        }
    )


def _gradient(logits: Any, labels: Any) -> tuple[Any, Any]:
    import torch

    given = logits.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(given.flatten(0, 1), labels.flatten(), ignore_index=-100)
    loss.backward()
    return loss.detach(), given.grad
