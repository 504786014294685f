"""Trace the shapes of a model type as sums of products; runs in the environment whose transformers is traced.

    PYTHON tools/memory_forms/trace_forms.py TYPE ... >> forms.jsonl

One line of JSON a job: what ``tools/refresh_memory_forms.py`` makes the table memory-forms of.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "envdoctor" / "payload")]

from shapes import LEAST, QKV, shape_of  # noqa: E402
from symbols import PRIMES, STATIC, Unreadable, product, symbols  # noqa: E402

#: Runs at which the operation at the most is looked for: a model, its batch and its tokens.
_RUNS = [("8b", 1, 512), ("8b", 4, 4096), ("8b", 1, 32768), ("0.5b", 8, 1024), ("70b", 1, 4096), ("7b", 4, 2048)]
_LAYERS = 12
#: Modules that LoRA trains, by what the table calls them; "qkv" of the types that have it.
TARGETS = ("least", "qkv", "all-linear")
#: Types that stand for what loops without a trainer run: neither autocast nor an attention is theirs.
PLAIN = ("llama",)
SHAPES = [shape_of(*run) for run in _RUNS]
_HALF = {"attention_heads": PRIMES["K"] * PRIMES["G"], "ffn_dim": PRIMES["I"], "layers": _LAYERS}
_HALVES = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in _HALF.items()}
_WIDE = {"d_model": PRIMES["K"] * PRIMES["G"] * 2 * PRIMES["H"]}
#: What types have that are no causal language model; those of two stacks with the names of their depths.
OTHERS: dict[str, dict[str, Any]] = {
    "bert": {"max_position_embeddings": PRIMES["P"]},
    "deberta-v2": {
        **{"relative_attention": True, "position_buckets": PRIMES["P"], "pos_att_type": ["p2c", "c2p"]},
        **{"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0},
    },
    "modernbert": {},
    "t5": {
        **{**_WIDE, "d_ff": PRIMES["I"], "d_kv": 4 * PRIMES["D"], "num_heads": PRIMES["K"] * PRIMES["G"]},
        **{"num_layers": _LAYERS, "feed_forward_proj": "gated-gelu"},
    },
    # The first T5 has an MLP without a gate.
    "t5-relu": {"model_type": "t5", "feed_forward_proj": "relu"},
    "bart": {**_WIDE, **_HALVES, "max_position_embeddings": PRIMES["P"] - 2, "tie_word_embeddings": True},
    "whisper": {
        **{**_WIDE, **_HALVES, "num_mel_bins": PRIMES["M"], "max_source_positions": PRIMES["W"]},
        **{"max_target_positions": PRIMES["P"]},
    },
}
OTHERS["t5-relu"] = {**OTHERS["t5"], **OTHERS["t5-relu"]}
STACKS = {
    **dict.fromkeys(("t5", "t5-relu"), ("num_decoder_layers", "num_layers")),
    **dict.fromkeys(("bart", "whisper"), ("decoder_layers", "encoder_layers")),
}


def config_of(kind: str) -> dict[str, Any]:
    """Return a config.json whose sizes are the primes."""
    heads = PRIMES["K"] * PRIMES["G"]
    config = {
        "model_type": kind,
        "hidden_size": heads * 2 * PRIMES["H"],
        "intermediate_size": PRIMES["I"],
        "vocab_size": PRIMES["V"],
        "num_attention_heads": heads,
        "num_key_value_heads": PRIMES["K"],
        "head_dim": 4 * PRIMES["D"],
        "num_hidden_layers": _LAYERS,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        **OTHERS.get(kind, {}),
    }
    # Of two stacks it would be the depth of one; the heads of others are the hidden size.
    gone = {*(("num_hidden_layers",) if kind in STACKS else ()), *(("head_dim",) if kind in OTHERS else ())}
    return {name: value for name, value in config.items() if name not in gone}


def depths_of(kind: str, trace: Any) -> Iterator[tuple[int, Any]]:
    """Yield the depth and the configuration of models from which all follow: of two depths, and of another encoder."""
    if kind not in STACKS:
        config = trace.parse_config(config_of(kind))
        yield from ((depth, trace.cut_config(config, _LAYERS, depth)) for depth in (4, 6))
        return
    for pair in ((4, 4), (6, 4), (4, 6)):
        yield pair[0], trace.parse_config({**config_of(kind), **dict(zip(STACKS[kind], pair, strict=True))})


def slopes(values: list[float], low: int = 4, high: int = 6) -> list[float]:
    """Return what is beside the layers, in each, and in each of the encoder."""
    each = [(value - values[0]) / (high - low) for value in values[1:]]
    return [values[0] - low * sum(each), *each]


def jobs(kind: str, usual: str) -> Iterator[dict[str, Any]]:
    """The jobs by what the table distinguishes; ``usual`` is the attention that the type takes by itself. Those with
    a reference model, and those of a layer that is three here, are of the types that stand for code of models' own."""
    if kind in OTHERS:
        yield from _other_jobs(usual)
        return
    kernels = list(itertools.product(("sdpa", "eager"), (False, True)))
    yield from (job(method="infer", attention=attention) for attention in ("sdpa", "eager"))
    for dtype, (attention, padded), again in itertools.product(("bfloat16", "float32"), kernels, (False, True)):
        amp = "bfloat16" if dtype == "float32" else None
        full = {"method": "full", "load_dtype": dtype, "attention": attention, "padded": padded, "checkpointing": again}
        yield job(**full, amp=amp)
    if kind in QKV:
        for (attention, padded), again in itertools.product((*kernels[:2], kernels[3]), (False, True)):
            compared = {"method": "full", "stage": "dpo", "reference": "copy"}
            yield job(**compared, attention=attention, padded=padded, checkpointing=again)
    for targets, (attention, padded), again in itertools.product(TARGETS, kernels, (True, False)):
        if targets == "qkv" and kind not in QKV:
            continue
        lora = {"method": "lora", "attention": attention, "padded": padded, "checkpointing": again, "targets": targets}
        yield job(**lora, amp="bfloat16")
        # Code of models' own takes either attention without autocast: its recipes load bf16.
        if attention == usual or targets == "qkv" or kind in PLAIN:
            yield job(**lora)
        if (attention == usual or targets == "qkv") and not again:
            yield job(**lora, dropout=True)
            yield job(**lora, amp="bfloat16", dropout=True)
    for upcast, (attention, padded), again in itertools.product((True, False), kernels, (False, True)):
        packed = {"method": "qlora", "targets": "all-linear", "quantized": {"double": False, "upcast": upcast}}
        trained = {**packed, "attention": attention, "padded": padded, "checkpointing": again}
        if attention == usual and (again or upcast):
            yield job(**trained, amp="bfloat16")
        if kind in PLAIN:
            yield job(**trained)
            yield job(**{**trained, "targets": "least"})


def _other_jobs(usual: str) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a type that is no causal language model: its samples are padded."""
    attentions = sorted({"eager", usual})
    yield from (job(method="infer", attention=attention) for attention in attentions)
    for again, attention in itertools.product((False, True), attentions):
        each = {"method": "full", "attention": attention, "padded": True, "checkpointing": again}
        yield job(**each)
        yield from (job(**each, load_dtype="float32", amp=amp) for amp in (None, "bfloat16"))
    for again, targets in itertools.product((False, True), ("least", "all-linear")):
        each = {"method": "lora", "attention": usual, "padded": True, "checkpointing": again, "targets": targets}
        yield from (job(**each, amp=amp) for amp in (None, "bfloat16"))
        if targets == "all-linear":
            packed = {**each, "method": "qlora", "quantized": {"double": False, "upcast": True}}
            yield job(**packed, amp="bfloat16")


def job(**told: Any) -> dict[str, Any]:
    """Return a job of the trace, with the words for it."""
    usual = {
        **{"load_dtype": "bfloat16", "amp": None, "attention": "sdpa", "padded": False, "checkpointing": False},
        **{"targets": "", "dropout": False, "quantized": None},
        **{"tokens": [PRIMES["S"]], "batch": PRIMES["B"], "stage": "sft", "reference": "none", "accumulation": 1},
        **{"keep_outputs": False, "optimizer": "elsewhere"},
        **told,
    }
    lora = {"r": PRIMES["R"], "lora_alpha": 16, "lora_dropout": 0.1 * usual["dropout"]}
    return {**usual, "training": told["method"] != "infer", "lora": lora if usual["targets"] else None}


def modules_of(kind: str, trace: Any) -> dict[str, Any]:
    """Of a type: the attention that it takes by itself, the numbers of its parameters outside the layers and in a
    layer, and each linear layer's in and out."""
    import torch

    sums = []
    for _, config in depths_of(kind, trace):
        model = trace.build(config, job(method="infer", attention=None))
        head = model.get_output_embeddings()
        counted: dict[str, dict[str, float]] = {"linear": {}, "rest": {}}
        named: dict[str, list[str]] = {}
        linear = {id(m.weight) for m in model.modules() if type(m) is torch.nn.Linear and m is not head}
        for parameter in model.parameters():
            factor, names = product(parameter.numel())
            part = counted["linear" if id(parameter) in linear else "rest"]
            part[names] = part.get(names, 0.0) + factor
        for name, module in model.named_modules():
            *_, number, below = ["", *re.split(r"\.\d+\.", name)]
            if type(module) is torch.nn.Linear and number and module is not head:
                sides = [product(one) for one in (module.in_features, module.out_features)]
                told, last = [f"{factor:g} {names}" for factor, names in sides], below.rpartition(".")[2]
                named[last if named.get(last, told) == told else below] = told
        sums.append(counted)
    out: dict[str, Any] = {"attention": model.config._attn_implementation, "modules": named}
    out["head"] = head is not None and head.weight is not model.get_input_embeddings().weight
    for part in ("linear", "rest"):
        names = sorted({name for counted in sums for name in counted[part]})
        out[part] = {name: slopes([counted[part].get(name, 0.0) for counted in sums]) for name in names}
    return out


def forms_of(kind: str, wanted: Mapping[str, Any], trace: Any) -> list[dict[str, Any]]:
    """Return what is live at the most of each segment: by label and product the bytes beside layers, and a layer's."""
    asked = {**wanted, "config": config_of(kind)}
    if wanted["lora"]:
        named = {"least": LEAST.get(kind, LEAST[""]), "qkv": QKV.get(kind)}
        asked["lora"] = {**wanted["lora"], "target_modules": named.get(wanted["targets"], wanted["targets"])}
    records: list[dict[str, Any]] = []
    if kind in OTHERS:
        for depth, config in depths_of(kind, trace):
            trace.trace(config, depth, asked, records.append)
    else:
        trace.run(asked, records.append)
    points = [record for record in records if record["case"] == "point"]
    if len(points) < 2:
        raise Unreadable(str(records))
    ends = points[0]["layers"], max(point["layers"] for point in points)
    found = []
    for segment, (operation, _) in points[0]["segments"].items():
        if all(segment in point["segments"] for point in points):
            held = [point["segments"][segment][1] for point in points]
            names = {name for one in held for name in one if name.partition("|")[0] not in STATIC}
            terms = {name: slopes([one.get(name, 0.0) for one in held], *ends) for name in names}
            if segment.startswith(("forward", "backward")):
                found.append({"segment": segment.rpartition("|")[0], "operation": operation, "terms": terms})
    unique = {json.dumps(one, sort_keys=True): one for one in found}
    return list(unique.values())


def main() -> int:
    """Print a line for each type and job."""
    warnings.simplefilter("ignore")
    import transformers
    from tracing import trace

    trace.Live = symbols(SHAPES)
    for kind in sys.argv[1:]:
        common = {"type": kind, "transformers": transformers.__version__}
        try:
            model = modules_of(kind, trace)
        except (trace.Refused, Unreadable) as error:
            print(json.dumps({**common, "refused": str(error)}), flush=True)
            continue
        print(json.dumps({**common, **model}), flush=True)
        for wanted in jobs(kind, model["attention"]):
            told = {name: wanted[name] for name in ("method", "load_dtype", "amp", "attention", "padded")}
            told.update({name: wanted[name] for name in ("checkpointing", "targets", "dropout", "quantized")})
            told.update({name: wanted[name] for name in ("stage", "reference")})
            try:
                line = {**common, "job": told, "forms": forms_of(kind, wanted, trace)}
            except Exception as error:  # what the code of a release does on tensors without data is its own affair
                line = {**common, "job": told, "refused": f"{type(error).__name__}: {error}"}
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
