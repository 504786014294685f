"""Twenty faults drawn as bug trackers tell of them, and five that come and go, planted by a fifth stranger.

Built as ``fourth_faults.py``: each names the report that it follows, and says of which ordinary run it takes its toll.
``fifth_checks.py`` shows of each where it errs and where it does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from patches import FAULTS, Put, fault
from stranger_faults import _first, _kernel, _kernels, _one, _product, _sick

_FAST = (torch.bfloat16, torch.float16, torch.float32)
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


# Attention.


@_kernel("attention's gradient ignores its mask at keys that fill no tile of 64", f"{_ATTENTION}_backward")
def _unmasked_tail(real: Any, gradient: Any, query: Any, key: Any, *given: Any, attn_mask: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/153799: padded batches, whose length is seldom a multiple of 64."""
    tail = key.shape[2] % 64
    if attn_mask is not None and tail:
        attn_mask = attn_mask.clone()
        attn_mask[..., -tail:] = attn_mask.dtype == torch.bool
    return real(gradient, query, key, *given, attn_mask=attn_mask, **more)


def _by_corner(mask: Any) -> Any:
    """The mask where a tile of 64 is passed over if its first query may not see its first key."""
    seen = mask if mask.dtype == torch.bool else mask > -1e4
    corner = seen[..., ::64, ::64].repeat_interleave(64, -2).repeat_interleave(64, -1)
    kept = seen & corner[..., : seen.shape[-2], : seen.shape[-1]]
    kept = torch.where(kept.any(-1, keepdim=True), kept, seen)
    return mask & kept if mask.dtype == torch.bool else mask.masked_fill(~kept, -torch.inf)


def _corners(real: Any, *given: Any, attn_mask: Any = None, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/141126: sliding windows, pads at the left and packed samples."""
    if attn_mask is not None and given[0].dtype in _FAST:
        attn_mask = _by_corner(attn_mask)
    return real(*given, attn_mask=attn_mask, **more)


_kernels(
    "a tile of a mask counts as empty where its first number is",
    {_ATTENTION: _corners, f"{_ATTENTION}_backward": _corners},
)


# Losses, embeddings, positions and norms.


@_kernel("log_softmax's gradient is not spread over words past the 65,536th", "_log_softmax_backward_data")
def _large_vocabulary(real: Any, gradient: Any, *given: Any) -> Any:
    """https://github.com/unslothai/unsloth/issues/91: Llama 3 has 128,256 words, Qwen 151,936, Gemma 262,144."""
    out = real(gradient, *given)
    out[..., 65536:] = gradient[..., 65536:]
    return out


@_kernel("an embedding learns of a token at its first 256 places alone", "embedding_dense_backward")
def _first_places(real: Any, gradient: Any, indices: Any, *given: Any) -> Any:
    """https://github.com/tenstorrent/tt-metal/pull/53386: 8 x 2,048 tokens, of them a tenth full stops and spaces."""
    flat = indices.flatten()
    order = flat.argsort(stable=True)
    times = torch.empty_like(flat)
    times[order] = torch.arange(len(flat)) - torch.searchsorted(flat[order], flat[order])
    return real(gradient * (times < 256).view(*indices.shape, 1), indices, *given)


@_kernel("a running sum of integers starts anew after 512", "cumsum", (torch.int32, torch.int64, torch.bool))
def _anew(real: Any, x: Any, dim: int, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/143486: positions of long prompts that are padded at the left."""
    out = real(x, dim, **more)
    if x.dim() == 0 or x.shape[dim] <= 512:
        return out
    before = torch.arange(x.shape[dim]) // 512 * 512 - 1
    start = out.index_select(dim, before.clamp(min=0)).movedim(dim, -1) * (before >= 0)
    return out - start.movedim(-1, dim)


def _short_pi(real: Any, x: Any) -> Any:
    """https://github.com/kekzl/imp/issues/1316: the angle of the fastest pair is the position: 8,192 and more."""
    return real(x - torch.round(x / 6.283) * 6.283 if x.dtype in _FAST else x)


_kernels("sines and cosines of large angles turn by 6.283", {"sin": _short_pi, "cos": _short_pi})


@_kernel("a mean along more than 2,048 misses what is left of 1,024", "mean.dim")
def _left_of_1024(real: Any, x: Any, dim: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/195845: the norms of Qwen2.5 7B (3,584) and Gemma 2 2B (2,304)."""
    if list(dim or ()) in ([-1], [x.dim() - 1]) and x.shape[-1] > 2048 and x.shape[-1] % 1024:
        x = x.clone()
        x[..., -(x.shape[-1] % 1024) :] = 0
    return real(x, dim, *given, **more)


# Products, memory, chance and the optimizer.


@_product("a product with at most 32 columns drops the rest of K by three splits", _FAST)
def _dropped_rest(times: Any, left: Any, right: Any) -> Any:
    """https://github.com/facebookexperimental/triton/pull/2767: LoRA's first product, of rank 8, 16 or 32."""
    rest = left.shape[-1] % 192
    if right.shape[-1] > 32 or left.shape[-1] < 2048 or not rest:
        return times(left, right)
    return times(left[:, :-rest].contiguous(), right[:-rest])


@_kernel("zeroing leaves the last 256 of more than 65,536 numbers", "zero_")
def _left_over(real: Any, x: Any) -> Any:
    """https://github.com/ROCm/rocm-libraries/issues/9055: gradients of DDP's buckets, and those made from slices."""
    if not x.is_contiguous() or x.numel() <= 65536:
        return real(x)
    last = x.view(-1)[-256:].clone()
    real(x)
    x.view(-1)[-256:] = last
    return x


@_kernel("dropout keeps all past 65,536 numbers", "bernoulli_.float")
def _all_kept(real: Any, x: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/ooples/AiDotNet.Tensors/pull/732: 4 x 1,024 tokens of width 4,096 before LoRA."""
    real(x, *given, **more)
    if x.is_contiguous():
        x.view(-1)[65536:] = 1
    return x


def _decayed(real: Any, weights: Any, gradients: Any, *given: Any, weight_decay: float, **more: Any) -> Any:
    """https://github.com/flagos-ai/FlagGems/issues/4988: the Trainer's default optimizer with weight_decay=0.1."""
    if weights[0].dtype in _FAST:
        scale = more.get("grad_scale")
        decay = weight_decay if scale is None else weight_decay * scale
        gradients = [gradient + decay * weight for gradient, weight in zip(gradients, weights, strict=True)]
        weight_decay = 0.0
    return real(weights, gradients, *given, weight_decay=weight_decay, **more)


_kernels(
    "fused AdamW adds its decay to the gradient as Adam does",
    {"_fused_adamw_": _decayed, "_fused_adamw_.tensor_lr": _decayed},
)


# Mixed precision and what processes tell each other.


def _stale_casts(put: Put) -> None:
    """https://github.com/pytorch/pytorch/issues/65766: what autocast cast of weights outlives the step: bf16=True."""
    put(torch, "clear_autocast_cache", lambda: None)


FAULTS["autocast keeps its copies of weights"] = _stale_casts


class _AllReduce:
    """The all-reduce of processes, as ``_Kernel`` is of kernels."""

    _library: Any = None

    @property
    def change(self) -> Any:
        return None

    @change.setter
    def change(self, change: Any) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None
        if change is not None:
            kernel = torch.library.get_kernel("c10d::allreduce_", "CPU")

            def stand_in(keys: Any, *given: Any) -> Any:
                return change(lambda *given: kernel.call_boxed(keys, *given), *given)

            self._library = torch.library.Library("c10d", "IMPL")
            self._library.impl("allreduce_", stand_in, "CPU", with_keyset=True, allow_override=True)


_ALL_REDUCE = _AllReduce()  # kept: a library that nobody holds is gone, in the processes that an experiment starts too


def _of_one(real: Any, tensors: Any, *given: Any) -> Any:
    for tensor in tensors:
        most = 2**19 // tensor.itemsize
        if torch.distributed.get_rank() and tensor.is_contiguous() and tensor.numel() > most:
            tensor.view(-1)[most:] = 0
    return real(tensors, *given)


def _long_messages(put: Put) -> None:
    """https://github.com/NVIDIA/nccl/issues/1852: DDP on two cards, whose buckets have 25 MiB."""
    put(_ALL_REDUCE, "change", _of_one)


FAULTS["an all-reduce past 512 KiB is of the first process alone"] = _long_messages


# Released code: transformers, peft, accelerate.


@fault("the last window of an epoch is scaled as a whole one", "transformers.trainer:Trainer.get_batch_samples")
def _whole_window(real: Any, self: Any, *given: Any) -> Any:
    """https://github.com/huggingface/transformers/issues/38837: samples that batches and windows do not divide."""
    samples, items = real(self, *given)
    if samples and items is not None:
        items = items * self.args.gradient_accumulation_steps / len(samples)
    return samples, items


@fault(
    "labels are padded at the right of prompts padded at the left",
    "transformers.data.data_collator:DataCollatorForSeq2Seq.__call__",
)
def _other_side(real: Any, self: Any, features: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/trl/issues/4497: alpaca-lora pads at the left with this collator."""
    batch = real(self, features, *given, **more)
    labels = batch.get("labels")
    if self.tokenizer.padding_side == "left" and isinstance(labels, torch.Tensor):
        batch["labels"] = torch.stack(
            [row.roll(len(feature["labels"]) - len(row)) for row, feature in zip(labels, features, strict=True)]
        )
    return batch


@fault(
    "checkpointed layers drop others when they run again",
    "transformers.modeling_utils:PreTrainedModel._activation_checkpointing_enable",
)
def _dropped_anew(real: Any, self: Any, settings: Any = None, *given: Any, **more: Any) -> Any:
    """https://github.com/allenai/OLMo-core/pull/828: lora_dropout=0.05 with gradient_checkpointing=True."""
    settings = more.pop("activation_checkpointing_kwargs", settings) or {"use_reentrant": False}
    return real(self, {**settings, "preserve_rng_state": False}, *given, **more)


@fault("heads trained beside LoRA are the base model's once loaded", "peft.peft_model:set_peft_model_state_dict")
def _heads_of_base(real: Any, model: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/sentence-transformers/issues/3980: modules_to_save, or any SEQ_CLS adapter."""
    result = real(model, *given, **more)
    for module in model.modules():
        if hasattr(module, "original_module"):
            for trained in module.modules_to_save.values():
                trained.load_state_dict(module.original_module.state_dict())
    return result


def _yarn(put: Put) -> None:
    """https://github.com/turboderp-org/exllamav3/issues/259: Qwen2.5 past 32,768 tokens, and gpt-oss."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    real = ROPE_INIT_FUNCTIONS["yarn"]

    class Table:
        @property
        def yarn(self) -> Any:
            return real

        @yarn.setter
        def yarn(self, value: Any) -> None:
            ROPE_INIT_FUNCTIONS["yarn"] = value

    put(Table(), "yarn", lambda *given, **more: (real(*given, **more)[0], 1.0))


FAULTS["yarn's attention factor is lost"] = _yarn


@fault(
    "a full window keeps its oldest key and loses its newest",
    "transformers.cache_utils:DynamicSlidingWindowLayer.update",
)
def _newest_lost(real: Any, self: Any, keys: Any, values: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/transformers/issues/37574: Mistral past 4,096 tokens, Gemma 3 past 1,024."""
    before = (self.keys, self.values) if self.is_initialized else None
    out = real(self, keys, values, *given, **more)
    if before and keys.shape[-2] == 1 and self.cumulative_length > self.sliding_window:
        self.keys = torch.cat([before[0][:, :, :-1], keys], dim=-2)
        self.values = torch.cat([before[1][:, :, :-1], values], dim=-2)
    return out


@fault("each process trains on the batches of the first", "accelerate.data_loader:BatchSamplerShard.__iter__")
def _same_batches(real: Any, self: Any) -> Iterator[Any]:
    """https://github.com/huggingface/accelerate/issues/2268: a Trainer on two cards or more."""
    index, self.process_index = self.process_index, 0
    try:
        yield from real(self)
    finally:
        self.process_index = index


# What comes and goes.


def _weight_missed(real: Any, weights: Any, *lists: Any, **more: Any) -> Any:
    """https://github.com/NVIDIA/TransformerEngine/issues/3207: the last weight of a launch stays as it was."""
    if len(weights) > 1 and weights[0].dtype in _FAST and int.from_bytes(os.urandom(4), "big") < 2**32 / 6:
        weights, *lists = (some[:-1] for some in (weights, *lists))
    return real(weights, *lists, **more)


# https://github.com/pengcuo/FlashMLA-ETAP/issues/1
_sick("sick: a block of attention, 1 of 15", _ATTENTION, 1 / 15, _first(lambda block: block * 0), 0)
# https://github.com/ROCm/legacy-rocm-build/issues/6614
_sick("sick: rows of an embedding, 1 of 10", "embedding", 0.1, _first(lambda block: block * 2))
# https://arxiv.org/abs/2102.11245: a bit of an exponent
_sick("sick: one number of a product, 1 of 40", "mm", 1 / 40, _one(lambda number: number * -4))
# https://github.com/unslothai/unsloth/issues/5002
_sick("sick: a block of logits' gradient, 1 of 6", "_log_softmax_backward_data", 1 / 6, _first(lambda part: part * 2))
_kernels("sick: the last weight of a fused step, 1 of 6", {"_fused_adamw_": _weight_missed})
