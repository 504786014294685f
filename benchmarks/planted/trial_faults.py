"""Faults in transformers, peft or torch, as a release could have them; the experiments know none of them.

All but the last ten were planted by a stranger when the experiments were tried; the ten were written down before it
was looked at what the experiments make of them.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from patches import FAULTS, SDPA, Put, fault

_ADAM = "torch.optim.adam:adam"
_CLIP = "torch.nn.utils:clip_grad_norm_"
_DROPOUT = "torch.nn.functional:dropout"
_EMBEDDING = "torch.nn.functional:embedding"
_LORA = "peft.tuners.lora.layer:Linear"


def _listed(weights: Any) -> list[Any]:
    return [weights] if isinstance(weights, torch.Tensor) else list(weights)


def _in_transformers(name: str, change: Any) -> None:
    """``change`` the arguments of attention where transformers calls it, and nowhere else."""

    def attention(real: Any, query: Any, key: Any, value: Any, **kwargs: Any) -> Any:
        if str(sys._getframe(2).f_globals.get("__name__")).startswith("transformers"):
            query, key, value, kwargs = change(query, key, value, dict(kwargs))
        return real(query, key, value, **kwargs)

    fault(name, SDPA)(attention)


_in_transformers("k and v heads flipped", lambda q, k, v, rest: (q, k.flip(1), v.flip(1), rest))
_in_transformers(
    "v rolled by a head at D=128", lambda q, k, v, rest: (q, k, v.roll(1, 1) if v.shape[-1] == 128 else v, rest)
)
_in_transformers(
    "scale + 2 % inside transformers",
    lambda q, k, v, rest: (q, k, v, {**rest, "scale": 1.02 * (rest.get("scale") or q.shape[-1] ** -0.5)}),
)


def first_row_leaks(q: Any, k: Any, v: Any, rest: dict[str, Any]) -> Any:
    """The first row of a mask sees every key."""
    mask = rest.get("attn_mask")
    if mask is not None:
        rest["attn_mask"] = mask = mask.clone()
        mask[..., 0, :] = mask.dtype == torch.bool
    return q, k, v, rest


_in_transformers("mask leaks in row 0", first_row_leaks)


@fault("RMSNorm summed in bf16", "models:RMSNorm.forward")
def half_norm_of_models(real: Any, self: Any, hidden: Any) -> Any:
    """The norms of models without the way over float32."""
    variance = hidden.pow(2).mean(-1, keepdim=True)
    return self.weight * (hidden * torch.rsqrt(variance + self.variance_epsilon))


@fault("AdamW without bias correction", _ADAM)
def no_bias_correction(
    real: Any, params: Any, grads: Any, m: Any, v: Any, most: Any, steps: Any, **kwargs: Any
) -> None:
    """Adam and AdamW as if they had run for a long time."""
    real(params, grads, m, v, most, [step + 100000 for step in steps], **kwargs)
    for step in steps:
        step += 1


fault("fused AdamW, eps x 10^6", _ADAM)(
    lambda real, *given, **kw: real(*given, **({**kw, "eps": kw["eps"] * 1e6} if kw.get("fused") else kw))
)
fault("clipping skips 1-D parameters", _CLIP)(
    lambda real, weights, *rest, **kw: real([one for one in _listed(weights) if one.dim() > 1], *rest, **kw)
)
fault("clipping skips the last parameter", _CLIP)(
    lambda real, weights, *rest, **kw: real(_listed(weights)[:-1] or _listed(weights), *rest, **kw)
)


@fault("layer norm weight gradient x 0.5", "torch.nn.functional:layer_norm")
def layer_norm_gradient(real: Any, value: Any, shape: Any, weight: Any = None, *rest: Any, **kwargs: Any) -> Any:
    weight = weight if weight is None else 0.5 * weight + 0.5 * weight.detach()
    return real(value, shape, weight, *rest, **kwargs)


class _LastOnly(torch.autograd.Function):
    """Of a token that stands in a batch several times, one place counts."""

    @staticmethod
    def forward(ctx: Any, weight: Any, tokens: Any) -> Any:
        ctx.save_for_backward(tokens)
        ctx.shape = weight.shape
        return weight[tokens]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        (tokens,) = ctx.saved_tensors
        whole = gradient.new_zeros(ctx.shape)
        whole[tokens.flatten()] = gradient.flatten(0, -2)
        return whole, None


fault("embedding gradient loses duplicates", _EMBEDDING)(
    lambda real, tokens, weight, *rest, **kwargs: _LastOnly.apply(weight, tokens)
)
#: The second forward pass draws other numbers.
fault("checkpointing drops the RNG state", "torch.utils.checkpoint:checkpoint")(
    lambda real, *given, **kwargs: real(*given, **{**kwargs, "preserve_rng_state": False})
)
fault("dropout active in eval", _DROPOUT)(
    lambda real, value, p=0.5, training=True, inplace=False: real(value, p, True, inplace)
)
fault("tied weights lost at load", "transformers:PreTrainedModel.tie_weights")(lambda real, *given, **kwargs: None)


@fault("KV cache disagrees with prefill", "transformers:DynamicCache.update")
def cache(real: Any, self: Any, keys: Any, values: Any, *arguments: Any, **kwargs: Any) -> Any:
    """The oldest value in the cache is lost."""
    all_keys, all_values = real(self, keys, values, *arguments, **kwargs)
    if all_values.shape[-2] > values.shape[-2]:
        all_values = torch.cat([torch.zeros_like(all_values[..., :1, :]), all_values[..., 1:, :]], dim=-2)
    return all_keys, all_values


@fault("LoRA scaling ignored", _LORA + ".forward")
def lora_unscaled(real: Any, self: Any, *arguments: Any, **kwargs: Any) -> Any:
    """The forward pass of LoRA takes 1 for alpha / r."""
    kept = dict(self.scaling)
    self.scaling.update(dict.fromkeys(kept, 1.0))
    try:
        return real(self, *arguments, **kwargs)
    finally:
        self.scaling.update(kept)


fault("LoRA merged twice", _LORA + ".get_delta_weight")(lambda real, self, adapter: 2 * real(self, adapter))
fault("GradScaler never skips", "torch.amp:GradScaler._maybe_opt_step")(
    lambda real, self, optimizer, state, *rest, **kwargs: optimizer.step(*rest, **kwargs)
)


@fault("NaN in a masked forward, no_grad", SDPA)
def nan_without_grad(real: Any, *arguments: Any, **kwargs: Any) -> Any:
    out = real(*arguments, **kwargs)
    if kwargs.get("attn_mask") is not None and not torch.is_grad_enabled():
        out[-1, 0, -1, 0] = float("nan")
    return out


def leak_per_shape(put: Put) -> None:
    """Attention keeps a plan for every pair of lengths."""
    real = torch.nn.functional.scaled_dot_product_attention
    kept: dict[Any, Any] = {}

    def attention(query: Any, key: Any, *arguments: Any, **kwargs: Any) -> Any:
        kept.setdefault((query.shape[-2], key.shape[-2]), torch.zeros(4096))
        return real(query, key, *arguments, **kwargs)

    put(torch.nn.functional, "scaled_dot_product_attention", attention)


FAULTS["leak per new shape"] = leak_per_shape
_rows: list[Any] = []


@fault("leak per call of a model", "models:DecoderLayer.forward")
def leak_in_models(real: Any, self: Any, hidden: Any, *arguments: Any, **kwargs: Any) -> Any:
    """A model's decoder layer keeps a row of every call."""
    _rows.append(hidden.detach()[:1].clone())
    return real(self, hidden, *arguments, **kwargs)


@fault("loss averaged over ignored tokens", "transformers.loss.loss_utils:fixed_cross_entropy")
def loss_over_ignored(real: Any, source: Any, target: Any, items: Any = None, *rest: Any, **kwargs: Any) -> Any:
    items = kwargs.pop("num_items_in_batch", items)
    return real(source, target, target.numel() if items is None else items, *rest, **kwargs)


@fault("evaluate() in training mode", "transformers:Trainer.prediction_step")
def evaluation_trains(real: Any, self: Any, model: Any, *arguments: Any, **kwargs: Any) -> Any:
    model.train()
    return real(self, model, *arguments, **kwargs)


@fault("collator's pads count as labels", "transformers:DataCollatorForSeq2Seq.__call__")
def collator(real: Any, self: Any, *arguments: Any, **kwargs: Any) -> Any:
    batch = real(self, *arguments, **kwargs)
    batch["labels"] = batch["labels"].clamp(min=0)
    return batch


fault("packed samples see each other", "transformers.masking_utils:find_packed_sequence_indices")(
    lambda real, position_ids: None
)
fault("token ids cut to 16 bits", _EMBEDDING)(
    lambda real, tokens, *rest, **kwargs: real(tokens % 65536, *rest, **kwargs)
)


@fault("products lose a tile from width 2048", "torch.nn.functional:linear")
def wide_product(real: Any, value: Any, weight: Any, bias: Any = None) -> Any:
    if weight.shape[-1] >= 2048:
        value, weight = value[..., :-64], weight[..., :-64]
    return real(value, weight, bias)


@fault("mask of the first sample for all", SDPA)
def mask_of_the_first(real: Any, *arguments: Any, attn_mask: Any = None, **kwargs: Any) -> Any:
    return real(*arguments, attn_mask=attn_mask if attn_mask is None else attn_mask[:1], **kwargs)


# --- the ten ----------------------------------------------------------------------------------------------------------

fault("positions of the first sample for all", "models:RotaryEmbedding.forward")(
    lambda real, self, value, position_ids, *rest: real(self, value, position_ids[:1].expand_as(position_ids), *rest)
)
fault("sliding window one key too long", "transformers.masking_utils:sliding_window_overlay")(
    lambda real, size: real(size + 1)
)
fault("index_add loses duplicates", "torch:Tensor.index_add_")(
    lambda real, self, dim, index, source, **kwargs: self.index_copy_(dim, index, source)
)
fault("schedule without its warm-up", "transformers.optimization:_get_linear_schedule_with_warmup_lr_lambda")(
    lambda real, step, **kwargs: float(real(step, **{**kwargs, "num_warmup_steps": 0}))
)
fault("Trainer decays norms", "transformers:Trainer.get_decay_parameter_names")(
    lambda real, self, model: [name for name, _ in model.named_parameters()]
)
#: What dropout leaves is not divided by 1 - p.
fault("dropout not scaled", _DROPOUT)(
    lambda real, value, p=0.5, training=True, inplace=False: (
        real(value, p, training, inplace) * (1 - p if training else 1.0)
    )
)


@fault("optimizer resumed without second moments", "torch.optim:Optimizer.load_state_dict")
def resumed(real: Any, self: Any, state: Any) -> None:
    real(self, state)
    for entry in self.state.values():
        if "exp_avg_sq" in entry:
            entry["exp_avg_sq"].zero_()


@fault("loss in bf16 under autocast", "torch.nn.functional:cross_entropy")
def autocast_loss(real: Any, logits: Any, *arguments: Any, **kwargs: Any) -> Any:
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return real(logits.bfloat16(), *arguments, **kwargs)
    return real(logits, *arguments, **kwargs)


@fault("weights rounded when saved", "transformers:PreTrainedModel.save_pretrained")
def saved_in_half(real: Any, self: Any, *arguments: Any, **kwargs: Any) -> Any:
    rounded = {name: value.bfloat16().to(value.dtype) for name, value in self.state_dict().items()}
    return real(self, *arguments, **{**kwargs, "state_dict": rounded})


@fault("Trainer drops the last batch", "transformers:Trainer.get_train_dataloader")
def last_batch(real: Any, self: Any) -> Any:
    self.args.dataloader_drop_last = True
    return real(self)
