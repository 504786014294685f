"""Emulated bugs of a training loop, and of kernels that are at fault as long as torch may take them."""

from __future__ import annotations

from typing import Any

import torch
from patches import FAULTS, SDPA, Put, fault

#: transformers 4.48.0: the loss of accumulated micro-batches is not divided, so that it counts once for each.
for _name in ("accumulation", "accumulation without division"):
    fault(_name, "transformers:Trainer.compute_loss")(
        lambda real, self, *given, **kwargs: real(self, *given, **kwargs) * self.args.gradient_accumulation_steps
    )
#: A product in half precision is 2 % off.
fault("linear", "torch.nn.functional:linear")(
    lambda real, value, *rest: real(value, *rest) * (1.02 if value.dtype.itemsize == 2 else 1.0)
)
#: Sums of products stop at 256.
fault("saturated-sum", "torch:Tensor.__matmul__")(lambda real, left, right: real(left, right).clamp(max=256))
#: Gradients keep the length they had.
fault("clipping", "torch.nn.utils:clip_grad_norm_")(
    lambda real, weights, *rest, **kwargs: torch.stack([weight.grad.double().norm() for weight in weights]).norm()
)
#: A model forgets its padding mask; every kernel is right.
fault("model-mask", "payload.probing.tiny_models:ChatGLMLike.forward")(
    lambda real, self, input_ids, attention_mask=None, **kwargs: real(self, input_ids, None, **kwargs)
)
#: No fault: an environment whose numbers are bf16 unless somebody says otherwise.
FAULTS["default-dtype"] = lambda put: torch.set_default_dtype(torch.bfloat16)


@fault("checkpoint", "torch.utils.checkpoint:checkpoint")
def checkpoint(real: Any, function: Any, *arguments: Any, **kwargs: Any) -> Any:
    """Something runs differently when the forward pass is computed again."""
    factors = iter([1.0])
    return real(lambda hidden, *rest: function(hidden * next(factors, 1.1), *rest), *arguments, **kwargs)


_kept = []


@fault("leak", SDPA)
def leak(real: Any, *arguments: Any, **kwargs: Any) -> Any:
    """Attention keeps a small buffer of every call."""
    _kept.append(torch.zeros(1024))
    return real(*arguments, **kwargs)


@fault("half-norm", "torch.nn.functional:rms_norm")
def half_norm(real: Any, value: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """torch up to 2.5.1: rms_norm in the dtype of its input, and that dtype's epsilon."""
    eps = torch.finfo(value.dtype).eps if eps is None else eps
    out = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + eps)
    return out if weight is None else out * weight


@fault("ignored-labels", "torch.nn.functional:cross_entropy")
def ignored_labels(real: Any, logits: Any, target: Any, **kwargs: Any) -> Any:
    """Labels that are ignored count in the mean."""
    if kwargs.get("reduction") == "none":
        return real(logits, target, **kwargs)
    return real(logits, target, **{**kwargs, "reduction": "sum"}) / target.numel()


@fault("all-reduce", "torch.distributed:all_reduce")
def all_reduce(real: Any, value: Any, *arguments: Any, **kwargs: Any) -> Any:
    """NCCL 2.27.5: the last eight values are not written."""
    before = value.clone()
    real(value, *arguments, **kwargs)
    value[-8:] = before[-8:]


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


FAULTS["parameters"] = parameters


@fault("lost-activation", "torch.nn.functional:silu")
def lost_activation(real: Any, value: Any) -> Any:
    """An activation in half precision gives NaN for large inputs."""
    lost = (value > 3) & (value.dtype.itemsize == 2)
    return torch.where(lost, torch.full_like(value, float("nan")), real(value))


@fault("short-products", "torch:Tensor.__matmul__")
def short_products(real: Any, left: Any, right: Any) -> Any:
    """float32 products keep the mantissa of bf16."""
    if left.dtype == torch.float32:
        left, right = left.bfloat16().float(), right.bfloat16().float()
    return real(left, right)


@fault("noise", SDPA)
def noise(real: Any, *arguments: Any, **kwargs: Any) -> Any:
    """Attention reads memory that is not its own."""
    out = real(*arguments, **kwargs)
    return out + 0.01 * torch.randn(out.shape).to(out.dtype)


def _while_taken(name: str, switch: str, factor: float) -> None:
    """What cuDNN's attention was on some GPUs, on any device: padded batches are lost or wrong."""

    @fault(name, SDPA)
    def attention(real: Any, *arguments: Any, **kwargs: Any) -> Any:
        padded = kwargs.get("attn_mask") is not None
        return real(*arguments, **kwargs) * (factor if padded and getattr(torch.backends.cuda, switch)() else 1)


_while_taken("cudnn-nan", "cudnn_sdp_enabled", float("nan"))
_while_taken("cudnn-wrong", "cudnn_sdp_enabled", 1.3)
#: What cuDNN keeps for each call.
_plans: list[Any] = []


@fault("cudnn-grows", SDPA)
def keeps_plans(real: Any, *arguments: Any, **kwargs: Any) -> Any:
    if torch.backends.cuda.cudnn_sdp_enabled():
        _plans.append(torch.zeros(4096))
    return real(*arguments, **kwargs)


_while_taken("flash-wrong", "flash_sdp_enabled", 1.3)
_while_taken("any-wrong", "math_sdp_enabled", 1.3)

#: Autocast keeps the half weights of the first step. Two settings of training; a run that is resumed.
fault("stale-half", "torch:clear_autocast_cache")(lambda real: None)
fault("unscaled", "torch.amp:GradScaler._unscale_grads_")(
    lambda real, self, optimizer, inverse, *rest: real(self, optimizer, torch.ones_like(inverse), *rest)
)
fault("resumed-optimizer", "transformers:Trainer._load_optimizer_and_scheduler")(lambda real, *given: None)
fault("resumed-random", "transformers:Trainer._load_rng_state")(lambda real, *given: None)
fault("bf16-setting", "accelerate:Accelerator.clip_grad_norm_")(
    lambda real, self, *given, **kw: None if self.mixed_precision == "bf16" else real(self, *given, **kw)
)
#: Gradients stay those of each process; what FSDP adds up is 3 % off.
fault("ddp-alone", "torch.nn.parallel:DistributedDataParallel.forward")(
    lambda real, self, *given, **kw: self.module(*given, **kw)
)


_SCATTER = "reduce_scatter_single" if hasattr(torch.distributed, "reduce_scatter_single") else "reduce_scatter_tensor"


@fault("fsdp-sum", f"torch.distributed:{_SCATTER}")
def fsdp_sum(real: Any, *given: Any, **kwargs: Any) -> Any:
    work = real(*given, **kwargs)
    kwargs.get("output", given[0] if given else None).mul_(1.03)
    return work
