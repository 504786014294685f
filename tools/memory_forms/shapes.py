"""Real shapes of models, by the letters of the sizes; and what LoRA trains of each type at least."""

from __future__ import annotations

__all__ = ["LEAST", "QKV", "shape_of"]

#: A model of 8, 0.5, 70 and 7 billion parameters: small and large vocabularies, few and many heads for keys; and T5 3B,
#: narrow between wide layers.
_MODELS = {
    "8b": {"hidden": 4096, "I": 14336, "V": 128256, "heads": 32, "K": 8},
    "0.5b": {"hidden": 896, "I": 4864, "V": 151936, "heads": 14, "K": 2},
    "70b": {"hidden": 8192, "I": 28672, "V": 128256, "heads": 64, "K": 8},
    "7b": {"hidden": 4096, "I": 11008, "V": 32000, "heads": 32, "K": 32},
    "t5-3b": {"hidden": 1024, "I": 16384, "V": 32128, "heads": 32, "K": 32, "width": 128},
}
#: The linear layers that PEFT trains where a recipe names none: of most types, and of single ones.
LEAST = {
    **{"": ["q_proj", "v_proj"], "phi3": ["qkv_proj"], "bert": ["query", "value"], "t5": ["q", "v"]},
    **{"deberta-v2": ["query_proj", "value_proj"], "modernbert": ["Wqkv"], "t5-relu": ["q", "v"]},
}
#: The linear layers that compute queries, keys and values, of types that stand for code in which they are one layer.
QKV = {"glm": ["q_proj", "k_proj", "v_proj"]}


def shape_of(model: str, batch: int, tokens: int) -> dict[str, float]:
    """Return the sizes of a real run by their letters."""
    sizes = _MODELS[model]
    heads, keys = sizes["heads"], sizes["K"]
    per_head = sizes["hidden"] / heads
    return {
        **{"B": batch, "S": tokens, "I": sizes["I"], "V": sizes["V"], "K": keys, "G": heads / keys},
        **{"H": per_head / 2, "D": sizes.get("width", max(per_head, 64)) / 4, "R": 16, "Q": heads / keys + 2},
        **{"P": 512, "W": 1500, "M": 128},
    }
