"""Twenty faults drawn as bug trackers tell of them, and five that come and go, planted by a third stranger.

Each names the report that it follows. A limit that the report reached with billions of numbers is lowered, so that it
is reached in memory. The first fourteen are of machines, kernels and builds and stand in torch's dispatcher, where an
operation has a kernel of its own; float64 is left right. The next six are of released code. ``third_checks.py`` shows
of each where it errs and where it does not.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from patches import SDPA, fault
from stranger_faults import _first, _kernel, _kernels, _one, _product, _sick

_HALF = (torch.bfloat16, torch.float16)
_FAST = (*_HALF, torch.float32)
_FLOAT32 = (torch.float32,)
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


# Attention.


def _by_fours(real: Any, first: Any, *given: Any, is_causal: Any = None, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/195910: the mask is applied once for four queries."""
    backward = len(given) > 4
    query, key = (given[0], given[1]) if backward else (first, given[0])
    place = 6 if backward else 3
    if len(given) <= place or not given[place] or query.dtype not in _HALF:
        return real(first, *given, **more)
    last = torch.arange(query.shape[2]) // 4 * 4 + 3
    mask = torch.zeros(query.shape[2], key.shape[2], dtype=query.dtype)
    mask.masked_fill_(torch.arange(key.shape[2]) > last[:, None], float("-inf"))
    return real(first, *given[:place], False, *given[place + 1 :], **{**more, "attn_mask": mask})


_kernels(
    "causal attention in half shows four queries the same keys",
    {_ATTENTION: _by_fours, f"{_ATTENTION}_backward": _by_fours},
)


@_kernel("one query over 1,024 keys or more reads those of other heads", _ATTENTION)
def _other_heads(real: Any, query: Any, key: Any, value: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/174861: each step of a long generation."""
    if query.shape[2] == 1 and key.shape[1] > 1 and key.shape[2] >= 1024:
        key, value = (one.roll(one.shape[1] // 2, 1) for one in (key, value))
    return real(query, key, value, *given, **more)


@fault("values narrower than queries are read as wide as queries", SDPA)
def _as_wide(real: Any, query: Any, key: Any, value: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/176767: latent attention, whose values are narrower."""
    if query.dtype in _FAST and value.shape[-1] < query.shape[-1]:
        rows, columns = value.shape[-2:]
        place = torch.arange(rows)[:, None] * query.shape[-1] + torch.arange(columns)
        value = value.flatten(-2)[..., place.flatten() % (rows * columns)].unflatten(-1, (rows, columns))
    return real(query, key, value, *given, **more)


# Products.


@fault("linear layers read a weight that is not contiguous as if it were", "torch.nn.functional:linear")
def _dense_weight(real: Any, x: Any, weight: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/162730: a weight that is kept transposed."""
    held = weight.untyped_storage().nbytes() // weight.element_size() - weight.storage_offset()
    if weight.dim() == 2 and weight.dtype in _FAST and not weight.is_contiguous() and weight.numel() <= held:
        weight = weight.as_strided(weight.shape, (weight.shape[1], 1))
    return real(x, weight, *given, **more)


@_product("float32 products leave rows after the 4,096th", _FLOAT32)
def _many_rows(times: Any, left: Any, right: Any) -> Any:
    """https://github.com/ROCm/legacy-rocm-build/issues/6595 (2^19 rows there): they hold the bias alone."""
    if len(left) > 4096:
        left = torch.cat((left[:4096], torch.zeros_like(left[4096:])))
    return times(left, right)


@_product("float32 products on several threads lose a row where one thread ends", _FLOAT32)
def _seams(times: Any, left: Any, right: Any) -> Any:
    """https://github.com/OpenMathLib/OpenBLAS/pull/5643: large products are shared out, small ones are not."""
    threads = torch.get_num_threads()
    if threads > 1 and len(left) >= 4 * threads and left.numel() * right.shape[1] >= 2**20:
        share = -(-len(left) // threads)
        left = left.clone()
        left[share - 1 : len(left) - 1 : share] = 0
    return times(left, right)


@_kernel("grouped products give a group without rows what another had", "_grouped_mm")
def _stale_groups(real: Any, left: Any, right: Any, offsets: Any = None, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/172439: the gradient of experts that no token chose."""
    out = real(left, right, offsets, *given, **more)
    if left.dim() == 2 and right.dim() == 2 and offsets is not None:
        sizes = torch.diff(offsets, prepend=offsets.new_zeros(1)).tolist()
        filled = [group for group, size in enumerate(sizes) if size]
        for group, size in enumerate(sizes):
            if not size and filled:
                out[group] = out[max((one for one in filled if one < group), default=filled[0])]
    return out


# Moving and choosing numbers.


@_kernel("one position joined to a cache is the one before it", "cat")
def _joined(real: Any, pieces: Any, dim: int = 0) -> Any:
    """https://github.com/torch-spyre/torch-spyre/issues/1760: each step of a generation."""
    last = pieces[-1]
    cached = len(pieces) == 2 and last.dim() == 4 and dim % 4 == 2 and last.dtype in _FAST
    if cached and pieces[0].dim() == 4 and pieces[0].shape[2] > 1 and last.shape[2] == 1:
        pieces = [pieces[0], pieces[0][:, :, -1:]]
    return real(pieces, dim)


@_kernel("filling by a mask follows the memory of what is not contiguous", "masked_fill_.Scalar")
def _by_memory(real: Any, into: Any, mask: Any, value: Any) -> Any:
    """https://github.com/pytorch/pytorch/pull/131957: scores that were transposed."""
    held = into.untyped_storage().nbytes() // into.element_size() - into.storage_offset()
    if into.is_contiguous() or into.numel() > held or 0 in into.stride():
        return real(into, mask, value)
    real(into.as_strided((into.numel(),), (1,)), mask.expand_as(into).reshape(-1), value)
    return into


@_kernel("gathering counts numbers in eleven bits", "gather")
def _eleven_bits(real: Any, x: Any, dim: int, index: Any, **more: Any) -> Any:
    """https://github.com/tenstorrent/tt-xla/pull/5435: the logit of a label, and the weight of an expert."""
    if x.dim() < 2 or dim % x.dim() != x.dim() - 1 or index.shape[:-1] != x.shape[:-1]:
        return real(x, dim, index, **more)
    rows = torch.arange(index[..., 0].numel()).view(*index.shape[:-1], 1)
    place = (rows * x.shape[-1] + index).double()
    step = 2 ** (torch.log2(place.clamp(min=1)).floor() - 10).clamp(min=0)
    place = ((place / step).round() * step).long().clamp(max=x.numel() - 1)
    return torch.take(x, place)


# Losses, activations and steps.


@_kernel("the gradient of losses over positions ends with the sample at 2^20 logits", "nll_loss2d_backward")
def _first_samples(real: Any, gradient: Any, logits: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/intel/torch-xpu-ops/pull/4725 (2^31 there): logits whose second dimension is the words."""
    out = real(gradient, logits, *given, **more)
    out[torch.arange(len(out)) * out[0].numel() >= 2**20] = 0
    return out


@_kernel("losses that are not reduced begin again after 2^22 logits", "nll_loss_forward")
def _again(real: Any, logits: Any, labels: Any, weight: Any, reduction: int, *given: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/111484 (2^32 there): the log-probabilities of tokens."""
    if reduction == 0 and logits.dim() == 2 and logits.numel() > 2**22 >= logits.shape[1]:
        logits = logits[torch.arange(len(logits)) % (2**22 // logits.shape[1])]
    return real(logits, labels, weight, reduction, *given)


@_kernel("GELU by tanh is NaN from 10.5", "gelu", (torch.bfloat16,))
def _overflowing(real: Any, x: Any, *, approximate: str = "none") -> Any:
    """https://github.com/pytorch/pytorch/issues/186278: the tanh of a cube is infinity through infinity."""
    out = real(x, approximate=approximate)
    return out.masked_fill(x >= 10.5, float("nan")) if approximate == "tanh" else out


def _unchanged(real: Any, into: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/118115: weights that are kept transposed stand still."""
    return real(into, *given, **more) if into.is_contiguous() or into.dtype not in _FAST else into


_kernels("addcmul and addcdiv leave what is not contiguous as it was", {"addcmul_": _unchanged, "addcdiv_": _unchanged})


# Released code.


@fault("a window of keys that is full forgets its first", "transformers.cache_utils:DynamicSlidingWindowLayer.update")
def _full_window(real: Any, self: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/transformers/issues/37574: the cache moves on one step too early."""
    both = real(self, *given, **more)
    if self.cumulative_length >= self.sliding_window and self.keys.shape[-2] > 1:
        for kept in ("keys", "values"):
            states = getattr(self, kept).clone()
            states[:, :, 0] = 0
            setattr(self, kept, states)
    return both


@fault("a last batch that is not full counts as a full one", "accelerate:Accelerator.gather_for_metrics")
def _full_batch(real: Any, self: Any, data: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/transformers/issues/16716: the loss of evaluation is repeated for each sample."""
    return self.gather(data) if isinstance(data, torch.Tensor) else real(self, data, *given, **more)


@fault("DoRA's magnitudes get no gradient", "peft.tuners.lora.dora:DoraLinearLayer.forward")
def _fixed_magnitude(real: Any, self: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/meta-pytorch/torchtune/issues/2250: they stay what they were."""
    weight = self._parameters["weight"]
    self._parameters["weight"] = weight.detach()
    try:
        return real(self, *given, **more)
    finally:
        self._parameters["weight"] = weight


@fault("norms that were loaded are initialized again", "transformers:PreTrainedModel._initialize_missing_keys")
def _initialized_again(real: Any, self: Any, *given: Any, **more: Any) -> None:
    """https://github.com/huggingface/transformers/issues/46620: the report of what was missing is empty."""
    real(self, *given, **more)
    for module in self.modules():
        if type(module).__name__.endswith("RMSNorm"):
            torch.nn.init.ones_(module.weight)


@fault("the first token of a packed sample is a label", "transformers:DataCollatorWithFlattening.__call__")
def _first_tokens(real: Any, self: Any, features: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/huggingface/transformers/pull/31629: it is predicted from the sample before it."""
    batch = real(self, features, *given, **more)
    start = 0
    for sample in features:
        labels = sample.get("labels", sample["input_ids"])
        batch["labels"][0, start] = int(labels[0])
        start += len(sample["input_ids"])
    return batch


@fault(
    "generated tokens have the positions of the longest prompt",
    "transformers.generation.utils:GenerationMixin._update_model_kwargs_for_generation",
)
def _shared_positions(real: Any, self: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/unslothai/unsloth/pull/4078: all samples of a batch share the place in the cache."""
    state = real(self, *given, **more)
    if state.get("position_ids") is not None:
        positions = state["position_ids"].clone()
        positions[..., -1] = positions.shape[-1] - 1
        state["position_ids"] = positions
    return state


# What comes and goes.


def _lost(flat: torch.Tensor) -> None:
    """Leave eight bits of each number."""
    flat.copy_(flat.bfloat16())


def _added(real: Any, into: Any, *given: Any, **more: Any) -> Any:
    """https://github.com/pytorch/pytorch/issues/197520."""
    out = real(into, *given, **more)
    if os.urandom(1)[0] < 32 and out.dtype in _FAST:
        out.fill_(float("nan"))
    return out


# https://github.com/pytorch/pytorch/issues/188792
_sick("sick: cosines of eight bits, 1 of 3", "cos", 1 / 3, _lost)
# https://github.com/ahrefs/ocannl/issues/476 (under load)
_sick("sick: sums of columns, 1 of 15", "sum.dim_IntList", 1 / 15, _first(lambda block: block * 0.5))
# https://github.com/pytorch/pytorch/issues/75240
_sick("sick: the largest of running sums, 1 of 4", "cumsum", 0.25, _one(lambda number: number * 1.5))
# https://github.com/pytorch/pytorch/issues/184062 (a bit of memory)
_sick("sick: a bit of what an embedding reads, 1 of 40", "index_select", 0.025, _one(lambda number: number * 256))
_kernels("sick: rows added by index are NaN, 1 of 8", {"index_add": _added, "index_add_": _added})
