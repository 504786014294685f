"""Which types of models and which methods of PEFT can be traced: every one is tried.

    PYTHON benchmarks/memory_coverage.py [types|methods]

Runs in the environment that is asked about. A type is its default configuration in one step of training with sdpa, or
with eager attention where it has no other: cut to four layers, or where that is no model at the two depths that
``envdoctor memory`` takes. A method is its default configuration on a small Llama. What a default configuration leaves
open is set as below.
"""

from __future__ import annotations

import itertools
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from envdoctor.system import PAYLOAD

sys.path.insert(0, str(PAYLOAD))

import tracing.model as model
import tracing.trace as trace

#: Of CPU time: reference code of recurrent layers runs token by token.
SECONDS = 120
USUAL = {
    **{"training": True, "load_dtype": "bfloat16", "amp": None, "quantized": None, "lora": None},
    **{"checkpointing": False, "stage": "sft", "reference": "none", "batch": 1, "padded": False, "accumulation": 1},
    **{"keep_outputs": False, "optimizer": "elsewhere", "tokens": [32]},
}
LLAMA = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512},
}

#: What the default configurations of types and methods leave open, though no model can do without it.
OPEN: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "ADALORA": {"total_step": 100},
    "ADAPTION_PROMPT": {"adapter_len": 8, "adapter_layers": 2},
    "C3A": {"block_size": 32},
    "CARTRIDGE": {"num_virtual_tokens": 8},
    "CPT": {"cpt_token_ids": [1, 2], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 2]},
    "MULTITASK_PROMPT_TUNING": {"num_virtual_tokens": 8},
    "PREFIX_TUNING": {"num_virtual_tokens": 8},
    "PROMPT_TUNING": {"num_virtual_tokens": 8},
    "P_TUNING": {"num_virtual_tokens": 8},
    "ROAD": {"group_size": 16},
    "VBLORA": {"vector_length": 32},
    "WAVEFT": {"n_frequency": 64},
}


def main() -> int:
    """Print a line for each: its name, and what it was traced with or why not."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, late)
    parts = {"types": types, "methods": methods}
    for part in sys.argv[1:] or parts:
        found = list(parts[part]())
        good = sum(text in ("sdpa", "eager", "yes") for _, text in found)
        print(f"{part}: {good} of {len(found)}", flush=True)
    return 0


def types() -> Iterator[tuple[str, str]]:
    """Every type that has a causal language model."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for kind in sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) & set(CONFIG_MAPPING)):
        for attention, layers in itertools.product(("sdpa", "eager"), (4, None)):
            text = tried(kind, attention, layers)
            if text == attention:
                break
        print(f"{kind:<28} {text}", flush=True)
        yield kind, text


def tried(kind: str, attention: str, layers: int | None) -> str:
    """The attention, or why not."""
    from transformers import CONFIG_MAPPING

    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        config = CONFIG_MAPPING[kind](**OPEN.get(kind, {}))
        if layers:
            depth = len(model.layers_of(model.build(config, {**USUAL, "attention": attention}), config))
            config = model.cut_config(config, depth, layers)
        trace.parse_config = lambda data: config
        return refused({**USUAL, "attention": attention, "config": {}, "full": bool(layers)}) or attention
    except Exception as error:
        return short(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def refused(job: dict[str, Any]) -> str:
    """Why the trace refuses the job; nothing where it ran."""
    records: list[dict[str, Any]] = []
    trace.run(job, records.append)
    said = [record["refusal"] for record in records if record["case"] == "refused"]
    return said[0].partition(". ")[0][:100] if said else ""


def methods() -> Iterator[tuple[str, str]]:
    """Every method of PEFT for causal language models."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, get_peft_model

    trace.parse_config, usual = model.parse_config, trace.with_adapters
    for kind, made in sorted(PEFT_TYPE_TO_CONFIG_MAPPING.items()):
        name = str(getattr(kind, "value", kind))

        def adapted(built: Any, job: dict[str, Any], made: Any = made, name: str = name) -> Any:
            return get_peft_model(built, made(task_type="CAUSAL_LM", **OPEN.get(name, {})), low_cpu_mem_usage=True)

        trace.with_adapters = adapted
        try:
            text = refused({**USUAL, "attention": "sdpa", "config": LLAMA}) or "yes"
        except Exception as error:
            text = short(error)
        trace.with_adapters = usual
        print(f"{name:<28} {text}", flush=True)
        yield name, text


def late(*_: Any) -> None:
    """Raises :class:`TimeoutError`."""
    raise TimeoutError(f"not in {SECONDS} s")


def short(error: Exception) -> str:
    """Its first line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:100]


if __name__ == "__main__":
    raise SystemExit(main())
