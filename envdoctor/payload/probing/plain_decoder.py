"""A decoder after Llama in plain torch, which computes in float64 what a model of transformers should: no code of
transformers takes part, so that a mistake in it is not compared with itself."""

from __future__ import annotations

import math
from typing import Any

import torch

from .kit import IGNORED

#: Types of positions whose frequencies are computed here.
_POSITIONS = ("default", "linear", "dynamic", "llama3", "yarn")
#: Types whose published computation this is; q and k have biases or norms where the weights have them.
_TYPES = ("llama", "qwen2", "qwen3", "mistral")


def settings(config: Any) -> dict[str, Any]:
    """Return the parameters of the rotary positions, which newer releases keep together."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return {"rope_theta": getattr(config, "rope_theta", 10000.0), **parameters}


def can_follow(config: Any) -> bool:
    """Return whether a model of this config computes what is written here."""
    rotary = settings(config)
    return (
        config.model_type in _TYPES
        and _kind(rotary) in _POSITIONS
        and rotary.get("partial_rotary_factor", 1.0) == 1.0
        and not getattr(config, "use_sliding_window", False)
        and config.hidden_act == "silu"
    )


def logits_of(weights: dict[str, Any], config: Any, tokens: Any, mask: Any, positions: Any) -> Any:
    """Return logits (batch, length, vocabulary) of weights by name; ``mask`` is 0 for padding."""
    count = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // count
    length = tokens.shape[1]
    view = torch.ones(length, length, dtype=torch.bool).tril()
    if config.model_type == "mistral" and config.sliding_window:  # so many keys, the token's own among them
        view = view.triu(1 - config.sliding_window)
    view = view & mask.bool()[:, None, :]
    view = (view | torch.eye(length, dtype=torch.bool))[:, None]  # a row of padding sees itself: nobody looks at it
    frequencies, scale = _frequencies(config, size)
    angles = positions[:, None, :, None].double() * frequencies
    turn = torch.polar(torch.full_like(angles, scale), angles)
    hidden = weights["model.embed_tokens.weight"][tokens]
    for number in range(config.num_hidden_layers):
        place = f"model.layers.{number}."
        layer = {name[len(place) :]: value for name, value in weights.items() if name.startswith(place)}
        hidden = hidden + _attention(layer, _norm(layer, "input_layernorm", hidden, config), (size, view, turn), config)
        inner = _norm(layer, "post_attention_layernorm", hidden, config)
        gate = _product(layer, "mlp.gate_proj", inner)
        hidden = hidden + _product(
            layer, "mlp.down_proj", gate * torch.sigmoid(gate) * _product(layer, "mlp.up_proj", inner)
        )
    last = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return _norm(weights, "model.norm", hidden, config) @ last.transpose(0, 1)


def _kind(rotary: dict[str, Any]) -> str:
    return str(rotary.get("rope_type", rotary.get("type", "default")))


def _frequencies(config: Any, size: int) -> tuple[Any, float]:
    """Return the frequency of each pair of channels, and what q and k are multiplied by. llama3: as Meta published it
    with Llama 3.1 (models/llama3/reference_impl/model.py, apply_scaling); yarn: https://arxiv.org/abs/2309.00071,
    sections 3.2 to 3.4; dynamic: below the length that the model was made for as without."""
    rotary = settings(config)
    kind, base, factor = _kind(rotary), rotary["rope_theta"], rotary.get("factor", 1.0)
    plain = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    length = rotary.get("original_max_position_embeddings") or config.max_position_embeddings
    turns = length * plain / (2 * math.pi)  # of a pair over that length
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        low, high = rotary["low_freq_factor"], rotary["high_freq_factor"]
        share = ((turns - low) / (high - low)).clamp(0, 1)
        return plain * share + plain / factor * (1 - share), 1.0
    if kind == "yarn":
        first, last = (size * math.log(length / (2 * math.pi * beta)) / (2 * math.log(base)) for beta in (32, 1))
        first, last = max(math.floor(first), 0), min(math.ceil(last), size - 1)
        share = 1 - ((torch.arange(size // 2).double() - first) / max(last - first, 0.001)).clamp(0, 1)
        return plain * share + plain / factor * (1 - share), 0.1 * math.log(factor) + 1
    return plain, 1.0


def loss_of(logits: Any, labels: Any) -> Any:
    """Return the mean negative log probability of the next tokens that are not ignored."""
    targets, predictions = labels[:, 1:], logits[:, :-1]
    counts = targets != IGNORED
    labelled = predictions.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return ((torch.logsumexp(predictions, -1) - labelled) * counts).sum() / counts.sum()


def _attention(layer: dict[str, Any], hidden: Any, place: tuple[int, Any, Any], config: Any) -> Any:
    size, view, turn = place
    parts = {name: _product(layer, f"self_attn.{name}_proj", hidden).unflatten(-1, (-1, size)) for name in "qkv"}
    for name in "qk":
        if f"self_attn.{name}_norm.weight" in layer:
            parts[name] = _norm(layer, f"self_attn.{name}_norm", parts[name], config)
    query, key, value = (parts[name].transpose(1, 2) for name in "qkv")
    times = query.shape[1] // key.shape[1]
    key, value = (
        _turned(key, turn)[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2),
        value[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2),
    )
    scores = (_turned(query, turn) @ key.transpose(-1, -2)) / size**0.5
    scores = scores.masked_fill(~view, float("-inf"))
    weight = (scores - torch.logsumexp(scores, -1, keepdim=True)).exp()
    return _product(layer, "self_attn.o_proj", (weight @ value).transpose(1, 2).flatten(2))


def _turned(value: Any, turn: Any) -> Any:
    """Turn channels: channel i and channel i + half of a head are one complex number."""
    half = value.shape[-1] // 2
    turned = torch.complex(value[..., :half], value[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], dim=-1)


def _norm(weights: dict[str, Any], name: str, value: Any, config: Any) -> Any:
    return weights[f"{name}.weight"] * value / (value.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).sqrt()


def _product(weights: dict[str, Any], name: str, value: Any) -> Any:
    out = value @ weights[f"{name}.weight"].transpose(0, 1)
    return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out
