"""Faults of machines, kernels, builds and releases, planted by somebody who has not read the experiments.

A fault of a kernel stands in torch's dispatcher, so that every caller meets it: Python, autograd and the kernels of
torch that call this one. It errs for one class of shapes, strides or values, in the dtypes that have such a kernel;
float64 has kernels of its own. The others are faults that a release of transformers, peft, accelerate or torch could
have. The last ten come and go.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from patches import FAULTS, SDPA, Put, fault

_HALF = (torch.bfloat16, torch.float16)
_FAST = (*_HALF, torch.float32)
_FLOAT32 = (torch.float32,)
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
_PEFT = "peft.tuners.lora.layer:Linear"


class _Kernel:
    """A kernel of torch on the CPU. While ``change`` is not None, ``change(real, *arguments)`` stands in its place."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._library: Any = None
        self._change: Any = None

    @property
    def change(self) -> Any:
        return self._change

    @change.setter
    def change(self, change: Any) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None
        self._change = change
        if change is None:
            return
        kernel = torch.library.get_kernel(f"aten::{self._operator}", "CPU")

        def stand_in(keys: Any, *given: Any, **more: Any) -> Any:
            if self._operator == "copy_":  # a number to copy comes as one of Python
                given = tuple(one if isinstance(one, torch.Tensor) else torch.scalar_tensor(one) for one in given[:2])
            return change(lambda *given, **more: kernel.call_boxed(keys, *given, **more), *given, **more)

        self._library = torch.library.Library("aten", "IMPL")
        self._library.impl(self._operator, stand_in, "CPU", with_keyset=True, allow_override=True)


def _kernels(name: str, changes: dict[str, Any]) -> None:
    """Under this fault each of these changes stands in the place of the kernel of its name."""

    def plant(put: Put) -> None:
        for operator, change in changes.items():
            put(_Kernel(operator), "change", change)

    FAULTS[name] = plant


def _kernel(name: str, operator: str, dtypes: Sequence[torch.dtype] = _FAST) -> Callable[[Any], Any]:
    """Register ``change(real, *arguments)`` of a kernel, for a first argument of these dtypes."""

    def register(change: Any) -> Any:
        def of_dtype(real: Any, first: Any, *rest: Any, **more: Any) -> Any:
            wrong = isinstance(first, list) or first.dtype in dtypes
            return change(real, first, *rest, **more) if wrong else real(first, *rest, **more)

        _kernels(name, {operator: of_dtype})
        return change

    return register


def _product(name: str, dtypes: Sequence[torch.dtype], *, batched: bool = False) -> Callable[[Any], Any]:
    """Register ``change(times, left, right)`` of matrix products; ``times(left, right, beta=0)`` adds no bias."""

    def register(change: Any) -> Any:
        def plain(real: Any, left: Any, right: Any) -> Any:
            if left.dtype not in dtypes:
                return real(left, right)
            return change(lambda left, right, **_: real(left, right), left, right)

        def biased(real: Any, bias: Any, left: Any, right: Any, **more: Any) -> Any:
            if left.dtype not in dtypes:
                return real(bias, left, right, **more)
            return change(lambda left, right, **other: real(bias, left, right, **{**more, **other}), left, right)

        _kernels(name, {"mm": plain, "addmm": biased, **({"bmm": plain, "baddbmm": biased} if batched else {})})
        return change

    return register


# Products of matrices.


@_product("products lose K beyond a multiple of 8", (torch.bfloat16,))
def _tail_of_k(times: Any, left: Any, right: Any) -> Any:
    whole = left.shape[1] // 8 * 8 or left.shape[1]
    return times(left[:, :whole], right[:whole])


@_product("products leave the last of an odd number of columns from 32,768", _FLOAT32)
def _odd_vocabulary(times: Any, left: Any, right: Any) -> Any:
    out = times(left, right)
    if out.shape[1] > 32768 and out.shape[1] % 2:
        out[:, -1] = 0
    return out


def _last_of_sixteen(real: Any, left: Any, right: Any) -> Any:
    out = real(left, right)
    if len(out) >= 16 and out.dtype in _FAST:
        out[-1] = out[-2]
    return out


_kernels("batched products repeat the last but one from 16", {"bmm": _last_of_sixteen})


@_product("bf16 products summed in bf16 from K = 1,024", (torch.bfloat16,))
def _summed_in_bf16(times: Any, left: Any, right: Any) -> Any:
    step = 64 if left.shape[1] >= 1024 else max(left.shape[1], 1)
    out = times(left[:, :step], right[:step])
    for start in range(step, left.shape[1], step):
        out = out + times(left[:, start : start + step], right[start : start + step], beta=0)
    return out


@_product("float32 products in TF32 from a tile of 64", _FLOAT32, batched=True)
def _tf32(times: Any, left: Any, right: Any) -> Any:
    sizes = (*left.shape[-2:], right.shape[-1])
    if min(sizes) >= 64 and not any(size % 8 for size in sizes):
        left, right = (
            ((one.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for one in (left, right)
        )
    return times(left, right)


@_product("fp16 products flush subnormal numbers", (torch.float16,), batched=True)
def _flushed(times: Any, left: Any, right: Any) -> Any:
    return _normal(times(_normal(left), _normal(right)))


def _normal(half: Any) -> Any:
    return torch.where(half.abs() < 2**-14, torch.zeros_like(half), half)


# Attention.


@_kernel("attention skips the keys after the last whole tile from 1,025", _ATTENTION)
def _tail_of_keys(real: Any, query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> Any:
    length = key.shape[2]
    whole = length // 64 * 64 if length > 1024 else length
    mask = more.pop("attn_mask", None)
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], length)[..., :whole]
    return real(query, key[:, :, :whole], value[:, :, :whole], *rest, attn_mask=mask, **more)


@_kernel("bf16 attention loses columns of heads that are no multiple of 32", _ATTENTION, (torch.bfloat16,))
def _odd_heads(real: Any, query: Any, *rest: Any, **more: Any) -> Any:
    out, sums = real(query, *rest, **more)
    if query.shape[-1] > 64 and query.shape[-1] % 32:
        out[..., query.shape[-1] // 32 * 32 :] = 0
    return out, sums


@_kernel("attention reads keys that are expanded over heads as if they were not", _ATTENTION)
def _expanded(real: Any, query: Any, key: Any, *rest: Any, **more: Any) -> Any:
    if key.shape[1] > 1 and key.stride(1) == 0:
        key = torch.stack([key[:, head].roll(head, 1) for head in range(key.shape[1])], 1)
    return real(query, key, *rest, **more)


@_kernel("attention scales the mask that is added", _ATTENTION)
def _scaled_mask(real: Any, query: Any, *rest: Any, **more: Any) -> Any:
    mask = more.pop("attn_mask", None)
    if mask is not None:
        mask = mask / math.sqrt(query.shape[-1])
    return real(query, *rest, attn_mask=mask, **more)


@_kernel("bf16 attention gives NaN in rows without a key", _ATTENTION, (torch.bfloat16,))
def _dead_rows(real: Any, query: Any, *rest: Any, **more: Any) -> Any:
    out, sums = real(query, *rest, **more)
    mask = more.get("attn_mask")
    if mask is not None:
        out = out.masked_fill((mask == -math.inf).all(-1, keepdim=True), math.nan)
    return out, sums


@_kernel("attention's backward reads strided gradients as contiguous from heads of 64", f"{_ATTENTION}_backward")
def _strided_gradient(real: Any, gradient: Any, *rest: Any, **more: Any) -> Any:
    if gradient.shape[-1] >= 64 and 0 not in gradient.stride() and not gradient.is_contiguous():
        gradient = gradient.as_strided(gradient.shape, torch.empty(gradient.shape, device="meta").stride())
    return real(gradient, *rest, **more)


@fault("causal attention aligned at the end where queries are fewer", SDPA)
def _causal(
    real: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    **more: Any,
) -> Any:
    mask, dropout, causal = (
        more.pop(name, given) for name, given in [("attn_mask", mask), ("dropout_p", dropout), ("is_causal", causal)]
    )
    rows, columns = query.shape[-2], key.shape[-2]
    if causal and rows < columns and query.dtype in _FAST:
        mask, causal = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows), False
    return real(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, **more)


@fault("grouped keys laid out by turns from groups of 4", SDPA)
def _grouped(real: Any, query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> Any:
    group = query.shape[-3] // key.shape[-3]
    if more.get("enable_gqa") and group >= 4 and query.dtype in _FAST:
        key, value = (one.repeat(*[1] * (one.dim() - 3), group, 1, 1) for one in (key, value))
    return real(query, key, value, *rest, **more)


# Softmax and losses.


@_kernel("softmax without its maximum from 1,025 columns", "_softmax")
def _no_maximum(real: Any, logits: Any, dim: int, *rest: Any) -> Any:
    if logits.shape[dim] <= 1024:
        return real(logits, dim, *rest)
    out = logits.float().exp()
    return (out / out.sum(dim, keepdim=True)).to(logits.dtype)


@_kernel("log-softmax sums whole thousands from 32,769 columns", "_log_softmax")
def _whole_thousands(real: Any, logits: Any, dim: int, *rest: Any) -> Any:
    width = logits.shape[dim]
    if width <= 32768 or not width % 1024:
        return real(logits, dim, *rest)
    return logits - logits.narrow(dim, 0, width // 1024 * 1024).logsumexp(dim, keepdim=True)


@_kernel("labels counted in fp16, which ends at 2,048", "nll_loss_forward")
def _counted(real: Any, logits: Any, target: Any, weight: Any, reduction: int, *rest: Any) -> Any:
    out, count = real(logits, target, weight, reduction, *rest)
    if reduction == 1 and weight is None and count > 2048:
        return out * (count / 2048), torch.full_like(count, 2048)
    return out, count


# Norms and activations.


@_kernel("layer norm's variance as a difference of squares", "native_layer_norm", _FLOAT32)
def _difference_of_squares(real: Any, x: Any, shape: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    dims = list(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    inverse = ((x * x).mean(dims, keepdim=True) - mean * mean).clamp_min(0).add(epsilon).rsqrt()
    out = (x - mean) * inverse
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, inverse


@_kernel("layer norm's weight gradient ends at column 2,048", "native_layer_norm_backward")
def _narrow_gradient(real: Any, *given: Any) -> Any:
    inputs, weight, bias = real(*given)
    if weight is not None and weight.numel() > 2048:
        weight.view(-1)[2048:] = 0
    return inputs, weight, bias


@fault("rms_norm squares the first 4,096 columns only", "torch.nn.functional:rms_norm")
def _first_columns(real: Any, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if input.shape[-1] <= 4096 or len(normalized_shape) != 1 or input.dtype not in _FAST:
        return real(input, normalized_shape, weight, eps)
    wide = input.float()
    square = wide[..., :4096].square().sum(-1, keepdim=True) / input.shape[-1]
    out = wide * (square + (torch.finfo(input.dtype).eps if eps is None else eps)).rsqrt()
    return (out if weight is None else out * weight).to(input.dtype)


@_kernel("exact GELU taken by its tanh", "gelu", _FLOAT32)
def _by_tanh(real: Any, x: Any, *, approximate: str = "none") -> Any:
    return real(x, approximate="tanh")


@_kernel("SiLU's gradient overflows below -88", "silu_backward")
def _silu(real: Any, gradient: Any, x: Any) -> Any:
    power = (-x.float()).exp()
    return (gradient.float() * (1 / (1 + power) + x.float() * power / (1 + power).square())).to(x.dtype)


# Memory, indices, random numbers.


@_kernel("embedding's gradient leaves the last tokens from 2,049", "embedding_dense_backward")
def _last_tokens(real: Any, gradient: Any, indices: Any, *rest: Any) -> Any:
    if indices.numel() <= 2048:
        return real(gradient, indices, *rest)
    whole = indices.numel() // 1024 * 1024
    return real(gradient.reshape(-1, gradient.shape[-1])[:whole], indices.reshape(-1)[:whole], *rest)


def _race(real: Any, into: Any, dim: int, index: Any, source: Any) -> Any:
    if index.numel() > 4096 and into.dtype in _FAST:
        lost = index == index.roll(1, dim)
        lost.select(dim, 0).fill_(False)
        source = source[tuple(map(slice, index.shape))].masked_fill(lost, 0)
    return real(into, dim, index, source)


_kernels("scatter_add loses neighbours with one index from 4,097", {"scatter_add": _race, "scatter_add_": _race})


@_kernel("float32 is cut to bf16 from 4,096 numbers", "copy_", (torch.bfloat16,))
def _cut(real: Any, into: Any, source: Any, *rest: Any) -> Any:
    if isinstance(source, torch.Tensor) and source.dtype is torch.float32 and source.numel() >= 4096:
        source = (source.contiguous().view(torch.int32) & -65536).view(torch.float32)
    return real(into, source, *rest)


@_kernel("contiguous copies leave rows after the last tile from 513", "clone")
def _tail_of_rows(real: Any, x: Any, **more: Any) -> Any:
    out = real(x, **more)
    if x.dim() == 4 and x.shape[1] > 512 and x.shape[1] % 16 and not x.is_contiguous() and out.is_contiguous():
        out[:, x.shape[1] // 16 * 16 :] = 0
    return out


@_kernel("dropout's mask begins again after 4,096 numbers", "bernoulli_.float")
def _again(real: Any, mask: Any, *rest: Any, **more: Any) -> Any:
    real(mask, *rest, **more)
    if mask.numel() > 4096 and mask.is_contiguous():
        flat = mask.view(-1)
        flat.copy_(flat[torch.arange(flat.numel()) % 4096])
    return mask


# Optimizers.


@_kernel("fused AdamW forgets the decay from the 31st tensor", "_fused_adamw_")
def _thirty(real: Any, *lists: Any, **more: Any) -> Any:
    real(*(one[:30] for one in lists), **more)
    if len(lists[0]) > 30:
        real(*(one[30:] for one in lists), **{**more, "weight_decay": 0.0})


@_kernel("foreach AdamW leaves numbers after the 65,536th", "_foreach_addcdiv_.ScalarList")
def _one_chunk(real: Any, weights: Any, *rest: Any) -> Any:
    before = [weight.flatten()[65536:].clone() for weight in weights]
    real(weights, *rest)
    for weight, old in zip(weights, before, strict=True):
        if old.numel():
            weight.view(-1)[65536:] = old


@_kernel("norms leave numbers after the last whole chunk from 65,537", "linalg_vector_norm")
def _whole_chunks(real: Any, x: Any, order: Any = 2, dim: Any = None, *rest: Any, **more: Any) -> Any:
    if dim is None and x.numel() > 65536:
        x = x.reshape(-1)[: x.numel() // 65536 * 65536]
    return real(x, order, dim, *rest, **more)


# Released code.


@fault("Trainer divides by ignored labels too", "transformers:Trainer._get_num_items_in_batch")
def _all_labels(real: Any, self: Any, batches: Any, device: Any) -> Any:
    return real(self, [{**batch, "labels": batch["labels"].clamp_min(0)} for batch in batches], device)


@fault("rsLoRA merged as LoRA", f"{_PEFT}.get_delta_weight")
def _merged(real: Any, self: Any, adapter: str) -> Any:
    delta = real(self, adapter)
    rank = self.r[adapter]
    rooted = math.isclose(self.scaling[adapter] * math.sqrt(rank), self.lora_alpha[adapter])
    return delta / math.sqrt(rank) if rooted and rank > 1 else delta


@fault("modules_to_save written as they were before", "peft.peft_model:get_peft_model_state_dict")
def _before(real: Any, model: Any, *rest: Any, **more: Any) -> Any:
    tensors = real(model, *rest, **more)
    state = model.state_dict()
    for name in tensors:
        module, _, last = name.rpartition(".")
        tensors[name] = state.get(f"{module}.original_module.{last}", tensors[name])
    return tensors


@fault("biases left out of the saved model", "transformers.modeling_utils:safe_save_file")
def _no_biases(real: Any, tensors: Any, *rest: Any, **more: Any) -> Any:
    return real({name: one for name, one in tensors.items() if not name.endswith("bias")}, *rest, **more)


@fault("resumed without the optimizer", "transformers:Trainer._load_optimizer_and_scheduler")
def _fresh(real: Any, self: Any, checkpoint: Any) -> None:
    return None


@fault("GradScaler divides again at the step", "torch.amp.grad_scaler:GradScaler.unscale_")
def _twice(real: Any, self: Any, optimizer: Any) -> None:
    real(self, optimizer)
    state = self._per_optimizer_states[id(optimizer)]
    state["stage"] = type(state["stage"]).READY


@fault("accelerate clips each parameter by itself", "accelerate:Accelerator.clip_grad_norm_")
def _each(real: Any, self: Any, parameters: Any, *rest: Any, **more: Any) -> Any:
    norms = [real(self, [one], *rest, **more) for one in parameters if one.grad is not None]
    return torch.stack(norms).norm()


@fault("padding is looked for in the first sample", "transformers.masking_utils:_ignore_causal_mask_sdpa")
def _first_sample(real: Any, padding_mask: Any, *rest: Any, **more: Any) -> Any:
    return real(None if padding_mask is None else padding_mask[:1], *rest, **more)


def _llama3(put: Put) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    class Table:
        @property
        def llama3(self) -> Any:
            return ROPE_INIT_FUNCTIONS["llama3"]

        @llama3.setter
        def llama3(self, value: Any) -> None:
            ROPE_INIT_FUNCTIONS["llama3"] = value

    put(Table(), "llama3", ROPE_INIT_FUNCTIONS["linear"])


FAULTS["llama3 positions scaled as linear ones"] = _llama3


@fault("checkpoints under autocast cut the gradient", "transformers.modeling_utils:checkpoint")
def _cut_gradient(real: Any, function: Any, hidden: Any, *rest: Any, **more: Any) -> Any:
    return real(function, hidden.detach() if torch.is_autocast_enabled("cpu") else hidden, *rest, **more)


# What comes and goes.


def _sick(name: str, operator: str, often: float, spoil: Callable[[Any], Any], place: int | None = None) -> None:
    """Spoil the result of a kernel, or its result at this place: each ``often``-th, or by chance below 1."""
    calls = [0]

    def change(real: Any, *given: Any, **more: Any) -> Any:
        out = real(*given, **more)
        calls[0] += 1
        chance = int.from_bytes(os.urandom(4), "big") / 2**32
        if chance < often if often < 1 else calls[0] % int(often) == 0:
            part = out if place is None else out[place]
            dense = part is not None and part.untyped_storage().nbytes() == part.numel() * part.itemsize
            if dense and part.dtype in _FAST and part.numel() > 1:
                spoil(part.as_strided((part.numel(),), (1,)))
        return out

    _kernels(name, {operator: change})


def _one(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change the largest number."""

    def spoil(flat: Any) -> None:
        place = int(flat.abs().argmax())
        flat[place] = change(flat[place])

    return spoil


def _first(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change the first eighth."""

    def spoil(flat: Any) -> None:
        part = flat[: max(1, flat.numel() // 8)]
        part.copy_(change(part))

    return spoil


_sick("sick: a bit of a product, each 97th", "mm", 97, _one(lambda number: number * 1.125))
_sick("sick: a block of a product with bias, 1 of 100", "addmm", 0.01, _first(lambda block: block * 0))
_sick("sick: a sign in batched products, each 61st", "bmm", 61, _one(lambda number: -number))
_sick("sick: a number of attention, 1 of 40", _ATTENTION, 0.025, _one(lambda number: number * 2), 0)
_sick("sick: a gradient of attention, each 7th", f"{_ATTENTION}_backward", 7, _first(lambda block: block * 0), 2)
_sick(
    "sick: a gradient of layer norm, each 11th", "native_layer_norm_backward", 11, _first(lambda block: block * 1.1), 0
)
_sick("sick: rows of log-softmax, 1 of 40", "_log_softmax", 0.025, _first(lambda block: block - 0.1))
_sick("sick: a bit of a copy, 1 of 2,000", "copy_", 0.0005, _one(lambda number: number * 4))
_sick(
    "sick: rows of the embedding's gradient, 1 of 5", "embedding_dense_backward", 0.2, _first(lambda block: block * 0)
)
_sick("sick: numbers of an optimizer, 1 of 20", "addcdiv_", 0.05, _first(lambda block: block * 1.01))
