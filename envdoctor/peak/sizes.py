"""The sizes of a config.json by their usual names, whatever the type calls them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

Row = Mapping[str, Any]
#: The largest size that is believed of a model.
LARGEST = 1 << 32
#: Types of layers that keep keys and values (``layer_types``); the others have a state of one size.
_ATTENDING = ("attention", "full_attention", "sliding_attention")
#: What the number of experts in a layer is called.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
#: Other names of sizes (``attribute_map`` of transformers' configurations).
_NAMES = {
    **dict.fromkeys(("n_embd", "d_model"), "hidden_size"),
    **dict.fromkeys(("n_layer", "n_layers", "num_layers"), "num_hidden_layers"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads"), "num_attention_heads"),
    **dict.fromkeys(("n_inner", "ffn_dim"), "intermediate_size"),
    **{"moe_num_experts": "num_experts", "moe_k": "num_experts_per_tok"},  # ERNIE 4.5
    **dict.fromkeys(("moe_topk", "top_k_experts"), "num_experts_per_tok"),  # Hunyuan, Gemma 4
    **{"d_ff": "intermediate_size", "d_kv": "head_dim", "num_heads": "num_attention_heads"},  # T5
    **{"dim": "hidden_size", "hidden_dim": "intermediate_size"},  # DistilBERT
    **{"encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads"},  # BART, Whisper
    "encoder_ffn_dim": "intermediate_size",
}
#: Sizes by their letters that causal language models do not have, each by the first name that config.json has.
OTHER_SIZES = {
    "L": ("decoder_layers", "num_decoder_layers", "num_hidden_layers"),
    "E": ("encoder_layers", "num_hidden_layers"),
    "P": ("position_buckets", "max_target_positions", "max_position_embeddings"),
    "W": ("max_source_positions",),
    "M": ("num_mel_bins",),
}


def has_experts(config: Row) -> bool:
    """Return whether a language model of this configuration is a mixture of experts."""
    return any(of_language(config).get(name) for name in _EXPERTS)


def of_language(config: Row) -> Row:
    """Return the configuration of the part that is trained on text, its sizes by their usual names."""
    match config:
        case {"text_config": dict() as text}:
            config = {**config, **text}
    return {**{usual: config[name] for name, usual in _NAMES.items() if name in config}, **config}


def attending(config: Row) -> float:
    """Return the share of the layers that keep keys and values."""
    match config:
        case {"layer_types": [str(), *_] as kinds}:
            return sum(str(kind) in _ATTENDING for kind in kinds) / len(kinds)
        case {"hybrid_override_pattern": str(kinds)} if kinds:
            return kinds.count("*") / len(kinds)
        case {"attn_layer_period": int(period)} if 0 < period <= LARGEST:
            return 1 / period
    return 1.0


class _TowerSizes(NamedTuple):
    """The layers of a tower for images, its hidden and inner size, and that of a patch."""

    depth: int
    hidden: int
    inner: int
    patch: int

    @property
    def parameters(self) -> int:
        """Return about how many parameters there are: four matrices of attention and two of an MLP a layer."""
        return self.depth * (4 * self.hidden * self.hidden + 2 * self.hidden * self.inner)


def tower_sizes(config: Row) -> _TowerSizes | None:
    """Return the sizes in a ``vision_config``; None where it tells none."""
    match config.get("vision_config"):
        case dict() as vision:
            with suppress(ValueError):
                # Qwen2-VL's hidden_size is what comes out.
                hidden = size_of(vision, "embed_dim", vision.get("hidden_size"))
                depth = size_of(vision, "depth", vision.get("num_hidden_layers"))
                inner, patch = size_of(vision, "intermediate_size", 4 * hidden), size_of(vision, "patch_size", 14)
                return _TowerSizes(depth, hidden, inner, patch)
    return None


def longest_of(config: Row) -> int | None:
    """Return the most tokens that a model takes, of Whisper those that it writes; None where config.json does not tell
    it."""
    longest = config.get("max_target_positions", config.get("max_position_embeddings"))
    return longest if isinstance(longest, int) else None


def size_of(config: Row, name: str, usual: object = None) -> int:
    """Return one size of config.json. Raises :class:`ValueError` if it is not a size, or larger than any model's."""
    match config.get(name) or usual:
        case (int() | float()) as size if 0 < size <= LARGEST:
            return int(size)
    raise ValueError(name)


def inner_sizes(config: Row, hidden: int) -> tuple[int, int, int]:
    """Return the width of the MLP that a token passes through, of all experts together (0: there are none), and of
    those of them that not every token passes through."""
    width = size_of(config, "intermediate_size", 4 * hidden)
    expert, shared = size_of(config, "moe_intermediate_size", width), "shared_expert_intermediate_size"
    beside = size_of(config, shared) if config.get(shared) else 0
    routed = next((size_of(config, name) * expert for name in _EXPERTS if config.get(name)), 0)
    chosen = "num_experts_per_tok"
    active = size_of(config, chosen) * expert + beside if config.get(chosen) else width
    return active, routed and routed + beside, routed
