"""Formulas that others publish for the memory of a run, in bytes, written from their definitions.

No number is fitted. ``trained`` are the parameters that are trained; weights and activations take two bytes a value
where not said otherwise. None where a formula is not about such a run; none of them is about weights in 4 bits.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FORMULAS"]


def accelerate(run: dict[str, Any]) -> float:
    """``accelerate estimate-memory``: the weights for a prompt; for training with Adam in mixed precision the largest
    of weights, gradients and states, each counted for all parameters.
    https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/commands/estimate.py"""
    single = 4.0 * run["parameters"]
    return max(single, 1.5 * single, 2 * single) if run["training"] else single / 2


def hugging_face(run: dict[str, Any]) -> float | None:
    """Weights, states, and the larger of gradients and activations; a token's activations are 4.6894e-4 x parameters +
    1.8494e6 values. https://huggingface.co/blog/train_memory"""
    activations = 2 * (4.6894e-4 * run["parameters"] + 1.8494e6) * run["batch"] * run["tokens"]
    if not run["training"]:
        return None
    return 2.0 * run["parameters"] + 8.0 * run["trained"] + max(4.0 * run["trained"], activations)


def megatron(run: dict[str, Any]) -> float | None:
    """34 s b h bytes a layer (2 where it is recomputed, and one layer whole), and 4 s b h (1 + v / h) for the head, on
    the weights and 16 bytes for a trained parameter. https://arxiv.org/abs/2205.05198 (table 2, equation 7)"""
    config = run["config"]
    hidden, vocabulary, layers = (config[key] for key in ("hidden_size", "vocab_size", "num_hidden_layers"))
    one = run["batch"] * run["tokens"] * hidden
    if not run["training"]:
        return None
    layer = 2 * layers + 34 if run["checkpointing"] else 34 * layers
    return 2.0 * run["parameters"] + 16.0 * run["trained"] + layer * one + 4 * one * (1 + vocabulary / hidden)


FORMULAS = {"accelerate": accelerate, "Hugging Face": hugging_face, "Megatron": megatron}
