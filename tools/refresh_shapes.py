"""Add to the table model-shapes: python tools/refresh_shapes.py [--hub ORG/NAME ...] [--config ORG/NAME FILE SOURCE]

``--hub`` names repositories whose config.json the Hub (``HF_ENDPOINT``) is asked for, without a token; ``--config``
takes a config.json that was read elsewhere. The parameters are counted by transformers, which must be installed. A
model goes to the row of its shape, else to a new one, and leaves the row where it was. Review the difference before
committing: what differs from the size in a name is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from envdoctor.matrix import load_toml
from envdoctor.observe.model.config import words_of

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "model-shapes.toml"
#: What a row keeps of a config.json, in this order; in the parts of a multimodal one the same.
SIZES = re.findall(
    r"\w+",
    """
    model_type hidden_size n_embd d_model intermediate_size ffn_hidden_size ffn_dim n_inner
    num_hidden_layers num_layers n_layer n_layers depth num_attention_heads n_head n_heads num_heads
    num_key_value_heads num_kv_heads multi_query_group_num head_dim kv_channels vocab_size
    padded_vocab_size max_position_embeddings seq_length n_positions tie_word_embeddings dtype
    torch_dtype sliding_window use_sliding_window q_lora_rank kv_lora_rank qk_nope_head_dim
    qk_rope_head_dim v_head_dim num_experts num_local_experts n_routed_experts num_experts_per_tok
    moe_intermediate_size shared_expert_intermediate_size n_shared_experts first_k_dense_replace
    multi_query new_decoder_architecture multi_query_attention rmsnorm post_layer_norm add_bias_linear
    add_qkv_bias apply_residual_connection_post_layernorm layernorm_epsilon pad_token_id
    word_embed_proj_dim embed_dim out_hidden_size image_size patch_size quantization_config text_config vision_config
    layer_types hybrid_override_pattern attn_layer_period attn_layer_offset expert_layer_period
    expert_layer_offset moe_topk num_shared_expert num_dense_layers shared_intermediate_size
    moe_shared_expert_intermediate_size num_kv_shared_layers conv_L_cache conv_kernel n_groups
    ssm_state_size mamba_num_heads mamba_head_dim mamba_d_state mamba_d_conv mamba_expand mamba_dt_rank
    mamba_n_heads mamba_d_head mamba_n_groups encoder_layers decoder_layers encoder_attention_heads
    encoder_ffn_dim num_decoder_layers d_ff d_kv feed_forward_proj num_mel_bins max_source_positions
    max_target_positions position_buckets enable_moe_block top_k_experts num_global_key_value_heads global_head_dim
    attention_k_eq_v hidden_size_per_layer_input linear_num_value_heads linear_num_key_heads interleave_moe_layer_step
    intermediate_size_mlp moe_latent_size use_double_wide_mlp parameters
    """,
)
#: What models of one shape may have otherwise.
OWN = ("max_position_embeddings", "seq_length", "dtype", "torch_dtype", "sliding_window", "quantization_config")
#: Types without a gate in their MLP.
UNGATED = ("gpt_neox", "falcon", "phi", "gpt2", "gptj", "gpt_neo", "opt", "bloom", "starcoder2", "mpt", "nemotron")
#: Types whose head is the embedding unless their configuration says otherwise.
TIED = (
    *("gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_neo", "opt", "bloom", "mpt", "cohere", "starcoder2"),
    "falcon",
)


class Found(NamedTuple):
    """A model as a source has it."""

    name: str
    config: Mapping[str, Any]
    source: str


def kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a config.json; of its quantisation the method alone."""
    found: dict[str, Any] = {}
    for key in SIZES:
        value = config.get(key)
        if key == "quantization_config" and isinstance(value, Mapping):
            value = {"quant_method": value.get("quant_method")}
        if isinstance(value, Mapping) and key != "quantization_config":
            value = kept(value)
        said = key == "torch_dtype" and "dtype" in found
        if isinstance(value, list) and len(set(value)) == 1:  # a value for each layer
            value = value[0] if key != "layer_types" else None
        useless = key == "pad_token_id" and "multi_query_attention" not in config  # only GLM's own code asks for it
        if value is not None and value != {} and not said and not useless:
            found[key] = value
    return found


def _of_hub(name: str) -> Found:
    """Ask the Hub for the config.json of a repository."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    with urlopen(f"{endpoint}/{name}/resolve/main/config.json", timeout=60) as answer:  # noqa: S310 (an option names it)
        return Found(name, json.loads(answer.read(1 << 20)), f"https://huggingface.co/{name}/blob/main/config.json")


def parameters(config: Mapping[str, Any]) -> float:
    """Count the parameters in the matrices of a model, its tower for images included, unless the row tells them."""
    if "parameters" in config:
        return float(config["parameters"])
    given = {**config, **config.get("text_config", {})}

    def size(*names: str, default: float = 0) -> float:
        return float(next((given[name] for name in names if given.get(name) is not None), default))

    hidden = size("hidden_size", "n_embd", "d_model")
    layers = size("num_hidden_layers", "num_layers", "n_layer", "n_layers")
    heads = size("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
    pairs = size("num_key_value_heads", "multi_query_group_num", "num_kv_heads", default=heads)
    pairs = 1 if given.get("model_type") == "falcon" and not given.get("new_decoder_architecture") else pairs
    width = size("head_dim", "kv_channels", default=hidden / heads)
    kind = given.get("model_type")
    between = size("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", default=4 * hidden)
    between /= 2 if kind == "qwen" else 1  # its two halves are one there
    attention = hidden * width * 2 * (heads + pairs)
    if latent := size("kv_lora_rank"):
        nope, rope, value = size("qk_nope_head_dim"), size("qk_rope_head_dim"), size("v_head_dim")
        queries = size("q_lora_rank")
        attention = (hidden + heads * (nope + rope)) * queries if queries else hidden * heads * (nope + rope)
        attention += hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    gate = 2 if kind in UNGATED or (kind == "chatglm" and "ffn_hidden_size" not in given) else 3  # the first one
    experts = size("num_experts", "num_local_experts", "n_routed_experts")
    each = size("moe_intermediate_size", default=between)
    dense = size("first_k_dense_replace") if experts else layers
    shared = size("shared_expert_intermediate_size", default=size("n_shared_experts") * each)
    mixed = gate * hidden * (experts * each + shared) + hidden * experts
    embeddings = hidden * size("vocab_size", "padded_vocab_size")
    tied = given.get("tie_word_embeddings", kind in TIED)
    tower = config.get("vision_config", {})
    seen = tower.get("embed_dim", tower.get("hidden_size", 0))  # Qwen2-VL's hidden_size is that of the language model
    blocks = tower.get("depth", tower.get("num_hidden_layers", 0))
    images = blocks * (4 * seen**2 + 2 * seen * tower.get("intermediate_size", 4 * seen if "embed_dim" in tower else 0))
    body = layers * attention + dense * gate * hidden * between + (layers - dense) * mixed
    return float(body + embeddings * (1 if tied else 2) + images)


def counted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a config.json how many parameters the model has that transformers makes of it, unless its matrices make
    the same number."""
    sys.path.append(str(Path(__file__).parents[1] / "envdoctor" / "payload"))
    from tracing.model import Refused, build, parse_config

    given = {**config, **config.get("text_config", {})}
    own = {name: value for name, value in given.items() if name not in ("text_config", "auto_map")}
    try:
        model = build(parse_config(own), {"load_dtype": "bfloat16", "attention": None, "training": False})
    except Refused:
        return dict(config)
    number = sum(parameter.numel() for parameter in model.parameters())
    language = {name: value for name, value in kept(config).items() if name != "vision_config"}
    return {**config, "parameters": number} if abs(number / parameters(language) - 1) > 0.02 else dict(config)


def named_size(name: str) -> float | None:
    """Read the number of parameters that a name tells: ``7B``, ``8x7B`` (its product), ``135M``."""
    found = re.search(r"(?<![\d.a-z])(?:(\d+)x)?(\d+(?:[._]\d+)?)([bm])(?![a-z])", name.partition("/")[2].lower())
    if found is None:
        return None
    return float(found[1] or 1) * float(found[2].replace("_", ".")) * (1e9 if found[3] == "b" else 1e6)


def merged(rows: Iterable[Mapping[str, Any]], found: Iterable[Found]) -> list[dict[str, Any]]:
    """Put what was found to the rows: a name to the row of its shape, else a new row."""
    known = [dict(row, names=list(row["names"])) for row in rows]
    for model in found:
        shape, words = kept(model.config), words_of(model.name)
        same = next((row for row in known if _alike(row["config"], shape)), None)
        for row in known:  # what was read before gives way
            row["names"] = [name for name in row["names"] if row is same or words_of(name) != words]
        if same is None:
            known.append({"names": [model.name], "config": shape, "source": model.source})
        else:
            same["names"] += [model.name] if model.name not in same["names"] else []
            same["config"] = {**same["config"], **{key: shape[key] for key in shape if key not in same["config"]}}
    return [row for row in known if row["names"]]


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two configurations agree in all that both give, and in what either gives of ``OWN``."""
    both = {key for key in one if key in other} | set(OWN)
    return one == other or (len(both) > len(OWN) + 3 and all(one.get(key) == other.get(key) for key in both))


def text_of(rows: Iterable[Mapping[str, Any]], head: str) -> str:
    """Write the table: a line a row."""
    lines = (f"  {_inline({key: row[key] for key in ('names', 'config', 'source')})},\n" for row in rows)
    return f"{head}row = [\n{''.join(lines)}]\n"


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_inline(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def main() -> int:
    """Write the table, and print what to look at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hub", nargs="*", default=[])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--config", nargs=3, action="append", default=[], metavar=("ORG/NAME", "FILE", "SOURCE"))
    asked = parser.parse_args()
    read = [Found(name, json.loads(Path(file).read_bytes()), source) for name, file, source in asked.config]
    read += map(_of_hub, asked.hub)
    rows = merged(load_toml(asked.table)["row"], (one._replace(config=counted(one.config)) for one in read))
    head = asked.table.read_text(encoding="utf-8").partition("row = [\n")[0]
    asked.table.write_text(text_of(rows, head), encoding="utf-8")
    for row in rows:
        told, there = named_size(row["names"][0]), parameters(row["config"])
        if told and abs(there / told - 1) > 0.03:
            print(f"{row['names'][0]}: {there / 1e9:.3f} billion parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
