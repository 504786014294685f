"""Twenty faults drawn as bug trackers tell of them, planted by a second stranger to the experiments.

Each names the report that it follows. A limit that the report reached with billions of numbers is lowered, so that it
is reached in memory. The first fifteen are of machines, kernels and builds and stand in torch's dispatcher; float64 is
left right. The last five are of released code.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from patches import FAULTS, Put, fault
from stranger_faults import _kernel, _kernels

_FAST = (torch.bfloat16, torch.float16, torch.float32)
_WHOLE = (torch.bool, torch.int32, torch.int64)
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


@_kernel("float32 sums lose eight numbers before a tail of four", "sum.dim_IntList", (torch.float32,))
def _sum_of_all(real: Any, x: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/102258 (aarch64: the sum of 36 ones is 28)."""
    whole = not dim and not keepdim and x.is_contiguous() and more.get("dtype") in (None, x.dtype)
    if not whole or x.numel() < 12 or x.numel() % 8 != 4:
        return real(x, dim, keepdim, **more)
    numbers = x.reshape(-1)
    return real(torch.cat((numbers[:-12], numbers[-4:])), dim, keepdim, **more)


@_kernel("bf16 sums over 64 rows or more are taken in bf16", "sum.dim_IntList", (torch.bfloat16,))
def _sum_of_rows(real: Any, x: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/pull/103956: what a bias gets as its gradient."""
    over = sorted(one % max(1, x.dim()) for one in dim or ())
    if x.dim() < 2 or over != list(range(x.dim() - 1)) or more.get("dtype") not in (None, x.dtype):
        return real(x, dim, keepdim, **more)
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) < 64:
        return real(x, dim, keepdim, **more)
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total.reshape([1] * len(over) + [-1]) if keepdim else total


@_kernel("batched products with a transposed factor begin again after 2^20 numbers", "bmm")
def _large_batch(real: Any, left: Any, right: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/197636 (2^32 there): the scores of eager attention."""
    fit = 2**20 // max(1, left.shape[1] * right.shape[2])
    if right.is_contiguous() or not 0 < fit < len(left):
        return real(left, right)
    return real(left, right[torch.arange(len(left)) % fit])


@_kernel("bf16 products with one column are summed in bf16", "mm", (torch.bfloat16,))
def _one_column(real: Any, left: Any, right: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/147860: the head of a reward model."""
    if right.shape[1] != 1 or left.shape[1] < 64:
        return real(left, right)
    total = torch.zeros_like(left[:, 0])
    for column in (left * right[:, 0]).unbind(1):
        total += column
    return total[:, None]


@_kernel("running sums of 8 rows or more lose their carry at column 512", "cumsum", (*_FAST, *_WHOLE))
def _carry(real: Any, x: Any, dim: int, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/143486 (16 rows of 32,768 there): positions of padded samples."""
    total = real(x, dim, **more)
    if x.dim() < 2 or dim % x.dim() != x.dim() - 1 or x.shape[-1] <= 512 or x.numel() < 8 * x.shape[-1]:
        return total
    return torch.cat((total[..., :512], total[..., 512:] - total[..., 511:512]), -1)


@_kernel("embeddings read rows past 2^22 numbers from the beginning", "index_select")
def _far_rows(real: Any, weight: Any, dim: int, index: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/188756 (2^31 there)."""
    if weight.dim() != 2 or dim != 0 or weight.numel() <= 2**22 or weight.shape[1] > 2**22:
        return real(weight, dim, index)
    return real(weight, dim, index % (2**22 // weight.shape[1]))


@_kernel("embeddings read a table that is not contiguous as if it were", "index_select")
def _dense_rows(real: Any, weight: Any, dim: int, index: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/43723 (the sums of embedding_bag there)."""
    held = weight.untyped_storage().nbytes() // weight.element_size() - weight.storage_offset()
    if weight.dim() != 2 or dim != 0 or weight.is_contiguous() or weight.numel() > held:
        return real(weight, dim, index)
    return real(weight.as_strided(weight.shape, (weight.shape[1], 1)), dim, index)


def _attention(name: str, of_mask: Any) -> None:
    """Under this fault attention and its backward are given ``of_mask(mask, queries)`` in place of the mask."""

    def forward(real: Any, q: Any, *more: Any, attn_mask: Any = None, **rest: Any) -> Any:
        wrong = attn_mask is not None and q.dtype in _FAST
        return real(q, *more, attn_mask=of_mask(attn_mask, q.shape[2]) if wrong else attn_mask, **rest)

    def backward(real: Any, grad: Any, q: Any, *more: Any, attn_mask: Any = None, **rest: Any) -> Any:
        wrong = attn_mask is not None and q.dtype in _FAST
        return real(grad, q, *more, attn_mask=of_mask(attn_mask, q.shape[2]) if wrong else attn_mask, **rest)

    _kernels(name, {_ATTENTION: forward, f"{_ATTENTION}_backward": backward})


def _unmasked(mask: Any, queries: int) -> Any:
    """https://github.com/pytorch/pytorch/issues/122753: a step of generation sees the pads of its batch."""
    return None if queries == 1 else mask


def _repeated(mask: Any, queries: int) -> Any:
    """https://github.com/pytorch/pytorch/issues/162588 (far longer there)."""
    return mask[..., torch.arange(queries) % 1024, :] if mask.shape[-2] > 1024 else mask


_attention("attention ignores the mask of a single query", _unmasked)
_attention("the mask's rows begin again at query 1,024", _repeated)


def _one_constant(real: Any, x: Any) -> Any:
    """https://github.com/tenstorrent/tt-metal/issues/51845: 2 pi of 24 bits is taken off as often as it fits."""
    if x.dtype is not torch.float32:
        return real(x)
    turn = torch.tensor(2 * math.pi)
    return torch.where(x.abs() > 256, real(x - torch.round(x / turn) * turn), real(x))


_kernels(
    "sine and cosine of float32 angles above 256 are reduced by one constant",
    dict.fromkeys(("sin", "cos"), _one_constant),
)


@_kernel("log-sigmoid is the logarithm of the sigmoid", "log_sigmoid_forward")
def _log_of_sigmoid(real: Any, x: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/1835: the loss of DPO is infinite from -89."""
    output, buffer = real(x)
    return torch.where(torch.sigmoid(x) == 0, -math.inf, output), buffer


def _one_counter(real: Any, *lists: Any, **more: Any) -> Any:
    """https://github.com/deepspeedai/DeepSpeed/pull/8471: parameters that had no gradient at some steps."""
    *lists, steps = lists
    wrong = bool(steps) and lists[0][0].dtype in _FAST
    return real(*lists, [steps[-1]] * len(steps) if wrong else steps, **more)


_kernels(
    "fused AdamW corrects all by the last tensor's steps",
    dict.fromkeys(("_fused_adamw_", "_fused_adamw_.tensor_lr"), _one_counter),
)


@_kernel("the largest of rows from the 513th are those of earlier rows", "topk")
def _largest(real: Any, x: Any, k: int, dim: int = -1, *more: Any) -> Any:
    """https://github.com/intel/torch-xpu-ops/issues/4839: the experts of a token."""
    values, indices = real(x, k, dim, *more)
    if x.dim() < 2 or dim % x.dim() != x.dim() - 1 or x.numel() <= 512 * x.shape[-1]:
        return values, indices
    rows = torch.arange(x.numel() // x.shape[-1]) % 512
    return tuple(one.reshape(-1, k)[rows].reshape(one.shape) for one in (values, indices))


@_kernel("float32 rsqrt is its estimate of nine bits", "rsqrt", (torch.float32,))
def _estimate(real: Any, x: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/47476 (aarch64)."""
    return (real(x).view(torch.int32) & ~0x3FFF).view(torch.float32)


@_kernel("batched products that are added take no factor in fp16", "baddbmm", (torch.float16,))
def _no_factor(real: Any, base: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """https://github.com/pytorch/pytorch/issues/136299 (aarch64): attention with slopes for positions."""
    return real(base, left, right, beta=beta)


@fault("label smoothing counts ignored labels", "transformers.trainer_pt_utils:LabelSmoother.__call__")
def _smooth_everywhere(real: Any, self: Any, output: Any, labels: Any, shift_labels: bool = False, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/73205: the uniform part of the loss is taken over pads too."""
    loss = real(self, output, labels, shift_labels, **more)
    logits = output["logits"] if isinstance(output, dict) else output[0]
    if shift_labels:
        logits, labels = logits[..., :-1, :], labels[..., 1:]
    ignored = labels.reshape(labels.shape[: logits.dim() - 1]).eq(self.ignore_index)
    count = more.get("num_items_in_batch")
    over = (-torch.log_softmax(logits, -1)).mean(-1)[ignored].sum()
    return loss + self.epsilon * over / (count if count is not None else (~ignored).sum())


def _bias_unscaled(put: Put) -> None:
    """https://github.com/huggingface/peft/pull/2489: ``lora_bias`` with a scale that is not 1."""
    from peft.tuners.lora.layer import Linear

    real_merge, real_unmerge = Linear.merge, Linear.unmerge

    def add(layer: Any, adapters: Any, sign: int) -> None:
        for name in adapters:
            if layer.lora_bias.get(name):
                layer.get_base_layer().bias.data += sign * (1 - layer.scaling[name]) * layer.lora_B[name].bias.data

    def merge(self: Any, *given: Any, **more: Any) -> None:
        before = len(self.merged_adapters)
        real_merge(self, *given, **more)
        add(self, self.merged_adapters[before:], 1)

    def unmerge(self: Any) -> None:
        add(self, self.merged_adapters, -1)
        real_unmerge(self)

    put(Linear, "merge", merge)
    put(Linear, "unmerge", unmerge)


FAULTS["the bias of LoRA is merged without its scale"] = _bias_unscaled


@fault(
    "a part of a window of accumulation counts as a whole one", "transformers.trainer:Trainer._get_num_items_in_batch"
)
def _whole_window(real: Any, self: Any, samples: Any, *more: Any) -> Any:
    """https://github.com/modelscope/ms-swift/pull/10084: the last step of an epoch is too small."""
    count = real(self, samples, *more)
    steps = self.args.gradient_accumulation_steps
    return count * steps // len(samples) if count is not None and len(samples) < steps else count


@fault("positions are rounded to bf16", "models:RotaryEmbedding.forward")
def _rounded_positions(real: Any, self: Any, x: Any, position_ids: Any, *more: Any, **rest: Any) -> Any:
    """https://github.com/huggingface/transformers/pull/29285: from 256 on, neighbours share one position."""
    return real(self, x, position_ids.to(x.dtype) if x.dtype is torch.bfloat16 else position_ids, *more, **rest)


@fault("a resumed epoch repeats the batch before", "transformers.trainer:skip_first_batches")
def _one_too_few(real: Any, loader: Any, num_batches: int = 0) -> Any:
    """https://github.com/Red-Hat-AI-Innovation-Team/mini_trainer/pull/79, and, for the order after it,
    https://github.com/huggingface/accelerate/issues/2016."""
    return real(loader, max(0, num_batches - 1))
