"""Formulas that others publish for the memory of a run, in bytes, written from their definitions.

No number is fitted. ``trained`` are the parameters that are trained; weights and activations take two bytes a value
where not said otherwise. None where a formula is not about such a run; none of them is about weights in 4 bits.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FORMULAS", "PEERS"]

_GIB = float(1 << 30)


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


# The same question by a model's name: ``PEERS`` return GiB, or None where the program answers no such run.


def _accelerate(run: dict[str, Any]) -> float | None:
    """``accelerate estimate-memory NAME``: of its columns float16, int8 and int4 for a prompt, and "Training using
    Adam", which is of all parameters; it says nothing about adapters."""
    if run["training"]:
        if run["method"] != "full":
            return None
        return accelerate(run) * (2 if run["dtype"] == "fp32" else 1) / _GIB
    bits = 8 if run["quantization"] in ("gptq-8bit", "bnb-8bit", "fp8") else 4 if run["quantization"] else 16
    return float(run["parameters"]) * bits / 8 / _GIB


def _hf_mem(run: dict[str, Any]) -> float | None:
    """``hf-mem --experimental --max-model-len``: the stored weights and the keys and values of the whole length, in the
    dtype of the model; inference alone. It asks the Hub for sizes: here the formula has ours.
    https://github.com/alvarobartt/hf-mem/blob/0.5.6/src/hf_mem/safetensors/kv_cache.py"""
    return None if run["training"] else float(run["weights"]) + _cache(run)


def _cache(run: dict[str, Any]) -> float:
    config = run["config"]
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    values = 2 * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * width
    return 2.0 * values * run["batch"] * (run["tokens"] + run["new"]) / _GIB


def _ledger(run: dict[str, Any]) -> float:
    """A plain ledger by the textbook: weights as they are stored; 34 s b h bytes of activations a layer, or 2 where it
    is recomputed and one layer whole (https://arxiv.org/abs/2205.05198); logits in half and in single precision with
    their gradients; of what is trained its gradients and Adam's two states; of a prompt its keys and values and one
    layer; a CUDA context of 0.6 GiB."""
    config = run["config"]
    hidden, vocabulary, layers = (config[key] for key in ("hidden_size", "vocab_size", "num_hidden_layers"))
    samples = float(run["batch"] * run["tokens"])
    context = 0.6 if run["process"] else 0.0
    if not run["training"]:
        layer = 0.0 if run["held"] else 34 * samples * hidden / _GIB
        return float(run["weights"]) + _cache(run) + layer + context
    activations = samples * hidden * (2 * layers + 34 if run["checkpointing"] else 34 * layers)
    logits = samples * vocabulary * (2 + 4 + 4)
    width = 4 if run["dtype"] == "fp32" or run["method"] != "full" else 2
    states = 2 if "8bit" in run["optimizer"] else 2 * width
    return float(run["weights"]) + (activations + logits + run["trained"] * (width + states)) / _GIB + context


PEERS = {"accelerate": _accelerate, "hf-mem": _hf_mem, "plain ledger": _ledger}
