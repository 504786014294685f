"""Emulated bugs of a training loop: each function puts one in place through ``put``. Runs where torch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["FAULTS", "Put"]

#: Replaces an attribute: ``put(module, "name", value)``.
Put = Callable[[Any, str, Any], None]

functional = torch.nn.functional


def accumulation(put: Put) -> None:
    """transformers 4.48.0: the loss of accumulated micro-batches is not divided, so that it counts once for each."""
    from transformers import Trainer

    real = Trainer.compute_loss

    def compute_loss(self: Any, *arguments: Any, **kwargs: Any) -> Any:
        return real(self, *arguments, **kwargs) * self.args.gradient_accumulation_steps

    put(Trainer, "compute_loss", compute_loss)


def checkpoint(put: Put) -> None:
    """Something runs differently when the forward pass is computed again."""
    import torch.utils.checkpoint as module

    real = module.checkpoint

    def checkpointed(function: Any, *arguments: Any, **kwargs: Any) -> Any:
        runs: list[int] = []

        def other_the_second_time(hidden: Any, *rest: Any) -> Any:
            runs.append(1)
            return function(hidden * (1.0 if len(runs) == 1 else 1.1), *rest)

        return real(other_the_second_time, *arguments, **kwargs)

    put(module, "checkpoint", checkpointed)


def leak(put: Put) -> None:
    """Attention keeps a small buffer of every call."""
    real = functional.scaled_dot_product_attention
    kept = []

    def attention(*arguments: Any, **kwargs: Any) -> Any:
        kept.append(torch.zeros(1024))
        return real(*arguments, **kwargs)

    put(functional, "scaled_dot_product_attention", attention)


def half_norm(put: Put) -> None:
    """torch up to 2.5.1: rms_norm in the dtype of its input, and that dtype's epsilon."""

    def rms_norm(value: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
        eps = torch.finfo(value.dtype).eps if eps is None else eps
        out = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + eps)
        return out if weight is None else out * weight

    put(functional, "rms_norm", rms_norm)


def ignored_labels(put: Put) -> None:
    """Labels that are ignored count in the mean."""
    real = functional.cross_entropy

    def cross_entropy(logits: Any, labels: Any, **kwargs: Any) -> Any:
        if kwargs.get("reduction") == "none":
            return real(logits, labels, **kwargs)
        return real(logits, labels, **{**kwargs, "reduction": "sum"}) / labels.numel()

    put(functional, "cross_entropy", cross_entropy)


def all_reduce(put: Put) -> None:
    """NCCL 2.27.5: the last eight values are not written."""
    import torch.distributed as distributed

    real = distributed.all_reduce

    def reduced(value: Any, *arguments: Any, **kwargs: Any) -> Any:
        before = value.clone()
        real(value, *arguments, **kwargs)
        value[-8:] = before[-8:]

    put(distributed, "all_reduce", reduced)


def parameters(put: Put) -> None:
    """One weight is lost in the seventh step."""
    real = torch.optim.AdamW.step
    steps = []

    def step(self: Any, *arguments: Any, **kwargs: Any) -> Any:
        steps.append(1)
        real(self, *arguments, **kwargs)
        if len(steps) == 7:
            self.param_groups[0]["params"][0].data.view(-1)[5] = float("nan")

    put(torch.optim.AdamW, "step", step)


def clipping(put: Put) -> None:
    """Gradients keep the length they had."""

    def clip(weights: Any, *arguments: Any, **kwargs: Any) -> Any:
        return torch.stack([weight.grad.double().norm() for weight in weights]).norm()

    put(torch.nn.utils, "clip_grad_norm_", clip)


def linear(put: Put) -> None:
    """A product in half precision is 2 % off."""
    real = functional.linear

    def off(value: Any, *arguments: Any) -> Any:
        return real(value, *arguments) * (1.02 if value.dtype.itemsize == 2 else 1.0)

    put(functional, "linear", off)


def lost_activation(put: Put) -> None:
    """An activation in half precision gives NaN for large inputs."""
    real = functional.silu

    def silu(value: Any) -> Any:
        lost = (value > 3) & (value.dtype.itemsize == 2)
        return torch.where(lost, torch.full_like(value, float("nan")), real(value))

    put(functional, "silu", silu)


def saturated_sum(put: Put) -> None:
    """Sums of products stop at 256."""
    real = torch.Tensor.__matmul__
    put(torch.Tensor, "__matmul__", lambda left, right: real(left, right).clamp(max=256))


def short_products(put: Put) -> None:
    """float32 products keep the mantissa of bf16."""
    real = torch.Tensor.__matmul__

    def product(left: Any, right: Any) -> Any:
        if left.dtype == torch.float32:
            left, right = left.bfloat16().float(), right.bfloat16().float()
        return real(left, right)

    put(torch.Tensor, "__matmul__", product)


def noise(put: Put) -> None:
    """Attention reads memory that is not its own."""
    real = functional.scaled_dot_product_attention

    def attention(*arguments: Any, **kwargs: Any) -> Any:
        out = real(*arguments, **kwargs)
        return out + 0.01 * torch.randn(out.shape).to(out.dtype)

    put(functional, "scaled_dot_product_attention", attention)


def model_mask(put: Put) -> None:
    """A model forgets its padding mask; every kernel is right."""
    from payload.probing.tiny_models import ChatGLMLike

    real = ChatGLMLike.forward

    def forward(self: Any, input_ids: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        return real(self, input_ids, None, **kwargs)

    put(ChatGLMLike, "forward", forward)


def default_dtype(put: Put) -> None:
    """No fault: an environment whose numbers are bf16 unless somebody says otherwise."""
    torch.set_default_dtype(torch.bfloat16)


#: By the names that tests use.
FAULTS: dict[str, Callable[[Put], None]] = {
    "accumulation": accumulation,
    "checkpoint": checkpoint,
    "leak": leak,
    "model-mask": model_mask,
    "half-norm": half_norm,
    "ignored-labels": ignored_labels,
    "all-reduce": all_reduce,
    "parameters": parameters,
    "clipping": clipping,
    "linear": linear,
    "lost-activation": lost_activation,
    "saturated-sum": saturated_sum,
    "short-products": short_products,
    "noise": noise,
    "default-dtype": default_dtype,
}
