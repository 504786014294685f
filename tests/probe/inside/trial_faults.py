"""Faults that a stranger planted when the experiments were tried: each function puts one in place. Runs where torch is.

What is wrong lies in transformers, peft or torch, as a release could have it; the experiments know none of it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import torch
from loop_faults import Put, accumulation

__all__ = ["FAULTS", "classes"]

functional = torch.nn.functional
_MODELS = ("llama", "qwen2", "qwen3", "glm", "mistral")


def classes(ending: str) -> list[Any]:
    """The classes of this name in the code of several models."""
    modules = [import_module(f"transformers.models.{name}.modeling_{name}") for name in _MODELS]
    named = [vars(module).items() for module in modules]
    return [value for items in named for name, value in items if name.endswith(ending) and isinstance(value, type)]


def _attention_of_transformers(put: Put, change: Any) -> None:
    """``change`` the arguments of scaled_dot_product_attention where transformers calls it, and nowhere else."""
    real = functional.scaled_dot_product_attention

    def attention(query: Any, key: Any, value: Any, **kwargs: Any) -> Any:
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("transformers"):
            query, key, value, kwargs = change(query, key, value, dict(kwargs))
        return real(query, key, value, **kwargs)

    put(functional, "scaled_dot_product_attention", attention)


def heads_flipped(put: Put) -> None:
    """Keys and values in the reverse order of heads."""
    _attention_of_transformers(put, lambda q, k, v, rest: (q, k.flip(1), v.flip(1), rest))


def values_rolled(put: Put) -> None:
    """Values one head further, for heads of 128."""
    _attention_of_transformers(put, lambda q, k, v, rest: (q, k, v.roll(1, 1) if v.shape[-1] == 128 else v, rest))


def first_row_leaks(put: Put) -> None:
    """The first row of a mask sees every key."""

    def change(q: Any, k: Any, v: Any, rest: dict[str, Any]) -> Any:
        mask = rest.get("attn_mask")
        if mask is not None:
            rest["attn_mask"] = mask = mask.clone()
            mask[..., 0, :] = mask.dtype == torch.bool
        return q, k, v, rest

    _attention_of_transformers(put, change)


def scale(put: Put) -> None:
    """Logits two per cent too large."""

    def change(q: Any, k: Any, v: Any, rest: dict[str, Any]) -> Any:
        return q, k, v, {**rest, "scale": 1.02 * (rest.get("scale") or q.shape[-1] ** -0.5)}

    _attention_of_transformers(put, change)


def half_norm_of_models(put: Put) -> None:
    """The norms of models without the way over float32."""

    def forward(self: Any, hidden: Any) -> Any:
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.variance_epsilon))

    for norm in classes("RMSNorm"):
        put(norm, "forward", forward)


def _adam(put: Put, change: Any) -> None:
    import torch.optim.adam as module

    real = module.adam

    def adam(params: Any, grads: Any, first: Any, second: Any, most: Any, steps: Any, **kwargs: Any) -> None:
        given, kwargs = change(steps, kwargs)
        real(params, grads, first, second, most, given, **kwargs)
        if given is not steps:
            for step in steps:
                step += 1

    put(module, "adam", adam)


def no_bias_correction(put: Put) -> None:
    """Adam and AdamW as if they had run for a long time."""
    _adam(put, lambda steps, kwargs: ([step + 100000 for step in steps], kwargs))


def fused_epsilon(put: Put) -> None:
    """An epsilon of 0.01 in fused kernels."""
    _adam(put, lambda steps, kw: (steps, {**kw, "eps": kw["eps"] * 1e6} if kw.get("fused") else kw))


def _clipping(put: Put, chosen: Any) -> None:
    real = torch.nn.utils.clip_grad_norm_

    def clip(parameters: Any, *arguments: Any, **kwargs: Any) -> Any:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        return real(chosen(listed), *arguments, **kwargs)

    put(torch.nn.utils, "clip_grad_norm_", clip)


def clipping_without_vectors(put: Put) -> None:
    """Norms and biases are not clipped."""
    _clipping(put, lambda listed: [one for one in listed if one.dim() > 1])


def clipping_without_last(put: Put) -> None:
    """The last parameter is not clipped."""
    _clipping(put, lambda listed: listed[:-1] or listed)


def layer_norm_gradient(put: Put) -> None:
    """Half the gradient of the weight of a layer norm."""
    real = functional.layer_norm

    def layer_norm(value: Any, shape: Any, weight: Any = None, *rest: Any, **kwargs: Any) -> Any:
        weight = weight if weight is None else 0.5 * weight + 0.5 * weight.detach()
        return real(value, shape, weight, *rest, **kwargs)

    put(functional, "layer_norm", layer_norm)


class _LastOnly(torch.autograd.Function):
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


def embedding_gradient(put: Put) -> None:
    """Of a token that stands in a batch several times, one place counts."""
    put(functional, "embedding", lambda tokens, weight, *rest, **kwargs: _LastOnly.apply(weight, tokens))


def checkpoint_without_rng(put: Put) -> None:
    """The second forward pass draws other numbers."""
    import torch.utils.checkpoint as module

    real = module.checkpoint

    def checkpointed(function: Any, *arguments: Any, **kwargs: Any) -> Any:
        return real(function, *arguments, **{**kwargs, "preserve_rng_state": False})

    put(module, "checkpoint", checkpointed)


def dropout_in_eval(put: Put) -> None:
    """Dropout does not ask whether the model trains."""
    real = functional.dropout
    put(functional, "dropout", lambda value, p=0.5, training=True, inplace=False: real(value, p, True, inplace))


def tied_lost(put: Put) -> None:
    """A model that is loaded does not tie its weights."""
    from transformers import PreTrainedModel

    put(PreTrainedModel, "tie_weights", lambda self, *arguments, **kwargs: None)


def cache(put: Put) -> None:
    """The oldest value in the cache is lost."""
    from transformers import DynamicCache

    real = DynamicCache.update

    def update(self: Any, keys: Any, values: Any, *arguments: Any, **kwargs: Any) -> Any:
        all_keys, all_values = real(self, keys, values, *arguments, **kwargs)
        if all_values.shape[-2] > values.shape[-2]:
            all_values = torch.cat([torch.zeros_like(all_values[..., :1, :]), all_values[..., 1:, :]], dim=-2)
        return all_keys, all_values

    put(DynamicCache, "update", update)


def lora_unscaled(put: Put) -> None:
    """The forward pass of LoRA takes 1 for alpha / r."""
    from peft.tuners.lora.layer import Linear

    real = Linear.forward

    def forward(self: Any, *arguments: Any, **kwargs: Any) -> Any:
        kept = dict(self.scaling)
        self.scaling.update(dict.fromkeys(kept, 1.0))
        try:
            return real(self, *arguments, **kwargs)
        finally:
            self.scaling.update(kept)

    put(Linear, "forward", forward)


def lora_merged_twice(put: Put) -> None:
    """Merging adds the adapter twice."""
    from peft.tuners.lora.layer import Linear

    real = Linear.get_delta_weight
    put(Linear, "get_delta_weight", lambda self, adapter: 2 * real(self, adapter))


def scaler_never_skips(put: Put) -> None:
    """GradScaler steps with gradients that are inf."""
    from torch.amp import GradScaler

    put(GradScaler, "_maybe_opt_step", lambda self, optimizer, state, *a, **kw: optimizer.step(*a, **kw))


def nan_without_grad(put: Put) -> None:
    """Attention with a mask gives a NaN where no gradient is asked for."""
    real = functional.scaled_dot_product_attention

    def attention(*arguments: Any, **kwargs: Any) -> Any:
        out = real(*arguments, **kwargs)
        if kwargs.get("attn_mask") is not None and not torch.is_grad_enabled():
            out[-1, 0, -1, 0] = float("nan")
        return out

    put(functional, "scaled_dot_product_attention", attention)


def leak_per_shape(put: Put) -> None:
    """Attention keeps a plan for every pair of lengths."""
    real = functional.scaled_dot_product_attention
    kept: dict[Any, Any] = {}

    def attention(query: Any, key: Any, *arguments: Any, **kwargs: Any) -> Any:
        kept.setdefault((query.shape[-2], key.shape[-2]), torch.zeros(4096))
        return real(query, key, *arguments, **kwargs)

    put(functional, "scaled_dot_product_attention", attention)


def leak_in_models(put: Put) -> None:
    """A model's decoder layer keeps a row of every call."""
    kept: list[Any] = []
    for layer in classes("DecoderLayer"):

        def forward(self: Any, hidden: Any, *arguments: Any, real: Any = layer.forward, **kwargs: Any) -> Any:
            kept.append(hidden.detach()[:1].clone())
            return real(self, hidden, *arguments, **kwargs)

        put(layer, "forward", forward)


def loss_over_ignored(put: Put) -> None:
    """transformers' loss is a mean over all tokens."""
    import transformers.loss.loss_utils as module

    real = module.fixed_cross_entropy

    def cross_entropy(source: Any, target: Any, num_items_in_batch: Any = None, *rest: Any, **kwargs: Any) -> Any:
        return real(
            source, target, target.numel() if num_items_in_batch is None else num_items_in_batch, *rest, **kwargs
        )

    put(module, "fixed_cross_entropy", cross_entropy)


def evaluation_trains(put: Put) -> None:
    """evaluate() runs the model as in training."""
    from transformers import Trainer

    real = Trainer.prediction_step

    def step(self: Any, model: Any, *arguments: Any, **kwargs: Any) -> Any:
        model.train()
        return real(self, model, *arguments, **kwargs)

    put(Trainer, "prediction_step", step)


def collator(put: Put) -> None:
    """Labels are padded with the pad token, which then counts."""
    from transformers import DataCollatorForSeq2Seq

    real = DataCollatorForSeq2Seq.__call__

    def call(self: Any, *arguments: Any, **kwargs: Any) -> Any:
        batch = real(self, *arguments, **kwargs)
        batch["labels"] = batch["labels"].clamp(min=0)
        return batch

    put(DataCollatorForSeq2Seq, "__call__", call)


def packing(put: Put) -> None:
    """Samples in one row see each other."""
    import transformers.masking_utils as module

    put(module, "find_packed_sequence_indices", lambda position_ids: None)


def large_vocabulary(put: Put) -> None:
    """Token ids are cut off to 16 bits."""
    real = functional.embedding
    put(functional, "embedding", lambda tokens, *rest, **kwargs: real(tokens % 65536, *rest, **kwargs))


def wide_product(put: Put) -> None:
    """A product over 2,048 terms or more loses the last tile."""
    real = functional.linear

    def linear(value: Any, weight: Any, bias: Any = None) -> Any:
        if weight.shape[-1] >= 2048:
            value, weight = value[..., :-64], weight[..., :-64]
        return real(value, weight, bias)

    put(functional, "linear", linear)


def mask_of_the_first(put: Put) -> None:
    """Every sample gets the mask of the first."""
    real = functional.scaled_dot_product_attention

    def attention(*arguments: Any, attn_mask: Any = None, **kwargs: Any) -> Any:
        return real(*arguments, attn_mask=attn_mask if attn_mask is None else attn_mask[:1], **kwargs)

    put(functional, "scaled_dot_product_attention", attention)


#: By the names that the table of results uses.
FAULTS = {
    "k and v heads flipped": heads_flipped,
    "v rolled by a head at D=128": values_rolled,
    "mask leaks in row 0": first_row_leaks,
    "RMSNorm summed in bf16": half_norm_of_models,
    "scale + 2 % inside transformers": scale,
    "AdamW without bias correction": no_bias_correction,
    "fused AdamW, eps x 10^6": fused_epsilon,
    "clipping skips 1-D parameters": clipping_without_vectors,
    "clipping skips the last parameter": clipping_without_last,
    "layer norm weight gradient x 0.5": layer_norm_gradient,
    "embedding gradient loses duplicates": embedding_gradient,
    "checkpointing drops the RNG state": checkpoint_without_rng,
    "dropout active in eval": dropout_in_eval,
    "tied weights lost at load": tied_lost,
    "KV cache disagrees with prefill": cache,
    "LoRA scaling ignored": lora_unscaled,
    "LoRA merged twice": lora_merged_twice,
    "GradScaler never skips": scaler_never_skips,
    "NaN in a masked forward, no_grad": nan_without_grad,
    "leak per new shape": leak_per_shape,
    "leak per call of a model": leak_in_models,
    "loss averaged over ignored tokens": loss_over_ignored,
    "evaluate() in training mode": evaluation_trains,
    "collator's pads count as labels": collator,
    "packed samples see each other": packing,
    "token ids cut to 16 bits": large_vocabulary,
    "products lose a tile from width 2048": wide_product,
    "mask of the first sample for all": mask_of_the_first,
    "accumulation without division": accumulation,
}
