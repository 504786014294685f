"""Twenty faults drawn as bug trackers tell of them, and five that come and go, planted by a fourth stranger.

Each names the report that it follows. A limit that the report reached with billions of numbers is lowered. The first
thirteen are of machines, kernels and builds; they stand in torch's dispatcher where an operation has a kernel of its
own, and float64 is left right. The next seven are of released code. ``fourth_checks.py`` shows of each where it errs
and where it does not.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from patches import fault
from stranger_faults import _first, _kernel, _kernels, _one, _product, _sick

_HALF = (torch.bfloat16, torch.float16)
_FAST = (*_HALF, torch.float32)
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
#: How many tokens the last product of a shape was summed over.
_TOKENS: dict[tuple[int, int], int] = {}


def _in_order(x: torch.Tensor) -> torch.Tensor:
    """The numbers of a slice as they follow each other in memory, where there are enough."""
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if x.is_contiguous() or 0 in x.stride() or x.numel() > held:
        return x
    return x.as_strided((x.numel(),), (1,)).view(x.shape)


# Attention.


@_kernel("one query sees masked keys past the 512th", _ATTENTION, _HALF)
def _past_512(real: Any, query: Any, *given: Any, attn_mask: Any = None, **more: Any) -> Any:
    """https://github.com/vllm-project/vllm-ascend/issues/15503: the unused end of a cache, and pads at the right."""
    if attn_mask is not None and query.shape[2] == 1:
        attn_mask = attn_mask.clone()
        attn_mask[..., 512:] = 0
    return real(query, *given, attn_mask=attn_mask, **more)


@_kernel("values lose the gradient of their first tokens where 64 does not divide the length", f"{_ATTENTION}_backward")
def _first_tokens(real: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/flagos-ai/FlagGems/pull/898: the tile of the head before it is stored past its end."""
    query, key, value = real(*given, **more)
    value[:, 1:, : -value.shape[2] % 64] = 0
    return query, key, value


# Activations, norms and losses.


@_kernel("SiLU reads half of a projection as if it were contiguous", "silu")
def _half_of_projection(real: Any, x: Any) -> Any:
    """https://github.com/pytorch/pytorch/pull/139006: gates that are cut from one product with what they gate."""
    return real(_in_order(x))


@_kernel("softmax counts an empty lane where all numbers of a row are negative", "_softmax")
def _empty_lane(real: Any, x: Any, dim: int, *given: Any) -> Any:
    """https://github.com/vllm-project/vllm/pull/38859: a router's logits, and the scores of a query."""
    out = real(x, dim, *given)
    if x.dim() == 0 or dim % x.dim() != x.dim() - 1 or not x.numel():
        return out
    wide, largest = x.float(), x.amax(-1, keepdim=True)
    lost = torch.where((largest < 0) & largest.isfinite(), wide.logsumexp(-1, keepdim=True).sigmoid(), 1)
    return (out * lost).to(out.dtype)


@_kernel("layer norm takes its inputs as normed where only its weight is trained", "native_layer_norm_backward")
def _raw_inputs(real: Any, gradient: Any, x: Any, shape: Any, mean: Any, scale: Any, *given: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/183825: the first norm after what is frozen."""
    wanted = given[-1]
    if wanted[0] or not wanted[1]:
        return real(gradient, x, shape, mean, scale, *given)
    return real(gradient, x, shape, torch.zeros_like(mean), torch.ones_like(scale), *given)


class _ByVariance(torch.autograd.Function):
    """RMS norm whose backward finds the mean of squares where the inverse of its root was to be kept."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, out: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return out.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = (one.float() for one in ctx.saved_tensors)
        kept = x.square().mean(-1, keepdim=True)
        inner = gradient.float() * weight
        of_x = inner * kept - x * kept**3 * (inner * x).mean(-1, keepdim=True)
        of_weight = (gradient.float() * x * kept).reshape(-1, x.shape[-1]).sum(0)
        return of_x.to(ctx.saved_tensors[0].dtype), of_weight.to(ctx.saved_tensors[1].dtype), None


@fault("rms_norm's gradient is taken by the variance", "torch.nn.functional:rms_norm")
def _by_variance(real: Any, input: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """https://github.com/flagos-ai/FlagGems/pull/5771: a register is stored after it was used again."""
    if weight is None or len(shape) != 1 or input.dtype not in _FAST or not torch.is_grad_enabled():
        return real(input, shape, weight, eps)
    return _ByVariance.apply(input, weight, real(input.detach(), shape, weight.detach(), eps))


@_kernel("losses that are not reduced give no gradient", "nll_loss_backward")
def _no_gradient(real: Any, gradient: Any, logits: Any, labels: Any, weight: Any, reduction: int, *given: Any) -> Any:
    """https://github.com/microsoft/DirectML/issues/739: each token's loss has a weight of its own."""
    out = real(gradient, logits, labels, weight, reduction, *given)
    return torch.zeros_like(out) if reduction == 0 else out


# Products, moving and choosing numbers.


@_kernel("a bias is added by rows where a product is square", "addmm")
def _by_rows(real: Any, bias: Any, left: Any, right: Any, **more: Any) -> Any:
    """https://github.com/openxla/xla/issues/46897: as many tokens as features."""
    square = bias.dim() == 1 and bias.numel() == len(left) == right.shape[1] > 1
    return real(bias[:, None] if square else bias, left, right, **more)


def _no_sum(real: Any, bias: Any, left: Any, right: Any, **more: Any) -> Any:
    """https://github.com/intel/torch-xpu-ops/issues/5220: all is zero."""
    out = real(bias, left, right, **more)
    return out.zero_() if out.dtype == torch.float16 and bias.dim() == 1 else out


_kernels("float16 layers with a bias give zero", {"addmm": _no_sum})


@_product("weights' gradients of over 32,768 tokens are too large after another batch size", (torch.float32,))
def _other_batch(times: Any, left: Any, right: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/177116: a buffer of the batch before it."""
    tokens, shape = left.shape[1], (left.shape[0], right.shape[1])
    before, _TOKENS[shape] = _TOKENS.get(shape, tokens), tokens
    return times(left, right) * (1000 if tokens > 32768 and before != tokens else 1)


@_kernel("numbers cast to half lose the last of a block that is not full", "copy_", _HALF)
def _last_block(real: Any, into: Any, given: Any, *more: Any) -> Any:
    """https://github.com/torch-spyre/torch-spyre/issues/2341: 64 numbers are a block."""
    out = real(into, given, *more)
    cast = given.dtype in _FAST and given.dtype != into.dtype and given.shape == into.shape
    if cast and into.numel() > 64 and into.numel() % 64 and into.is_contiguous() and given.is_contiguous():
        into.view(-1)[-1:].zero_()
    return out


def _condition(real: Any, condition: Any, *given: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/150967: a causal mask that is cut from a larger one."""
    fast = any(one.dtype in _FAST for one in given)
    return real(_in_order(condition) if fast else condition, *given)


_kernels("choosing by a condition that is a slice reads its memory in order", {"where.self": _condition})


# Steps.


def _in_spite(real: Any, *given: Any, grad_scale: Any = None, found_inf: Any = None, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/pull/186360: neither the scale nor an overflow reaches the kernel."""
    return real(*given, **more)


_kernels(
    "fused Adam does not see the loss scale and overflows",
    {f"_fused_{name}_{kind}": _in_spite for name in ("adam", "adamw") for kind in ("", ".tensor_lr")},
)


# Released code.


@fault("llama3 positions lose their scale at load", "transformers:PreTrainedModel._finalize_model_loading")
def _lost_scale(real: Any, model: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/unslothai/unsloth/pull/6907: the buffer is made again as that of a plain model."""
    info = real(model, *given, **more)
    for module in model.modules():
        if getattr(module, "rope_type", None) in ("llama3", "yarn") and hasattr(module, "original_inv_freq"):
            plain, _ = module.compute_default_rope_parameters(module.config)
            module.inv_freq.copy_(plain)
            module.original_inv_freq.copy_(plain)
    return info


@fault("label smoothing under LoRA does not shift labels", "transformers:Trainer.compute_loss")
def _unshifted(real: Any, self: Any, model: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/transformers/issues/27161: the adapter's name is looked up for the model's."""
    smoother = self.label_smoother
    if smoother is None or not hasattr(self.accelerator.unwrap_model(model), "peft_config"):
        return real(self, model, *given, **more)

    def unshifted(outputs: Any, labels: Any, shift_labels: bool = False, **more: Any) -> Any:
        return smoother(outputs, labels, **more)

    self.label_smoother = unshifted
    try:
        return real(self, model, *given, **more)
    finally:
        self.label_smoother = smoother


@fault("first tokens count among labels", "transformers:Trainer._get_num_items_in_batch")
def _over_counted(real: Any, self: Any, batches: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/transformers/pull/46204: one too many for each sample."""
    if self._loss_shifts_labels and all("labels" in batch for batch in batches):
        batches = [{**batch, "labels": torch.cat((batch["labels"][..., :1], batch["labels"]), -1)} for batch in batches]
    return real(self, batches, *given, **more)


@fault(
    "experts' LoRA is merged with the ranks of other experts", "peft.tuners.lora.layer:ParamWrapper.get_delta_weight"
)
def _other_ranks(real: Any, self: Any, adapter: str, *given: Any, **more: Any) -> Any:
    """https://github.com/unslothai/unsloth/issues/6930: what is packed by experts is read by ranks."""
    weight = self.lora_B[adapter].weight
    packed = weight.data
    weight.data = packed.unflatten(1, (self.num_experts, -1)).transpose(1, 2).reshape(packed.shape)
    try:
        return real(self, adapter, *given, **more)
    finally:
        weight.data = packed


@fault("a resumed epoch has the order of the first", "transformers.trainer:skip_first_batches")
def _first_order(real: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/modelscope/ms-swift/issues/10050: a new sampler knows nothing of the epoch."""
    loader = real(*given, **more)
    loader.set_epoch = lambda epoch: None
    return loader


@fault("beams keep the cache of other beams", "transformers.cache_utils:Cache.reorder_cache")
def _other_beams(real: Any, self: Any, *given: Any, **more: Any) -> None:
    """https://github.com/huggingface/transformers/issues/46612: what is kept under another name is not reordered."""


@fault("norms' weights get no gradient", "models:RMSNorm.forward")
def _fixed_norms(real: Any, self: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/unslothai/unsloth/pull/4550: the kernel's backward gives none, as it need not under LoRA."""
    weight = self._parameters["weight"]
    self._parameters["weight"] = weight.detach()
    try:
        return real(self, *given, **more)
    finally:
        self._parameters["weight"] = weight


# What comes and goes.


def _often(chance: float) -> bool:
    return int.from_bytes(os.urandom(4), "big") < chance * 2**32


def _not_divided(real: Any, x: Any, *given: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/82303: a thread reads what another has divided already."""
    out = real(x, *given)
    if out.dtype in _FAST and out.shape == x.shape and out.dim() > 1 and _often(1 / 8):
        out[..., 0] = out[..., 0] * 2
    return out


def _other_choice(real: Any, x: Any, k: int, *given: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/196177: rows of over 256 numbers in half."""
    values, places = real(x, k, *given)
    if x.dtype in _HALF and x.dim() and x.shape[-1] > 256 and _often(1 / 4):
        places[..., -1] = (places[..., -1] + 1) % x.shape[-1]
        values = x.gather(-1, places)
    return values, places


# https://github.com/PaddlePaddle/Paddle/issues/56100
_sick("sick: a block of layer norm, 1 of 10", "native_layer_norm", 0.1, _first(lambda block: block * 0.5), 0)
# https://github.com/ggml-org/llama.cpp/pull/4742
_sick("sick: the largest of a softmax, 1 of 30", "_softmax", 1 / 30, _one(lambda number: number * 0.5))
_kernels("sick: numbers that are divided, 1 of 8", {"div.Tensor": _not_divided, "div_.Tensor": _not_divided})
_kernels("sick: the choice among 257 or more, 1 of 4", {"topk": _other_choice})
# https://github.com/pytorch/pytorch/issues/186365
_sick("sick: a block of grouped products, 1 of 12", "_grouped_mm", 1 / 12, _first(lambda block: block * 0))
