"""Which types of models and which methods of PEFT can be traced: every one is tried.

    PYTHON benchmarks/memory_coverage.py [types|methods]

Runs in the environment that is asked about. A type is its default configuration, cut to four layers, in one step of
training with sdpa, or with eager attention where it has no other; a method is its default configuration on a small
Llama.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from envdoctor.sandbox.target import PAYLOAD

sys.path.insert(0, str(PAYLOAD))

import tracing.model as model
import tracing.trace as trace

#: Reference code of recurrent layers runs token by token.
SECONDS = 120
USUAL = {
    **{"training": True, "load_dtype": "bfloat16", "amp": None, "quantized": None, "lora": None, "full": True},
    **{"checkpointing": False, "stage": "sft", "reference": "none", "batch": 1, "padded": False, "accumulation": 1},
    **{"keep_outputs": False, "optimizer": "elsewhere", "tokens": [32]},
}
LLAMA = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512},
}


def main() -> int:
    """Print a line for each: its name, and what it was traced with or why not."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
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
        for attention in ("sdpa", "eager"):
            text = tried(kind, attention)
            if text == attention:
                break
        print(f"{kind:<28} {text}", flush=True)
        yield kind, text


def tried(kind: str, attention: str) -> str:
    """The attention, or why not."""
    from transformers import CONFIG_MAPPING

    records: list[dict[str, Any]] = []
    signal.alarm(SECONDS)
    try:
        config = model.cut_config(CONFIG_MAPPING[kind](), 4)
        trace.parse_config = lambda data: config
        trace.run({**USUAL, "attention": attention, "config": {}}, records.append)
    except Exception as error:
        return short(error)
    finally:
        signal.alarm(0)
    refused = [record["refusal"] for record in records if record["case"] == "refused"]
    return refused[0].partition(". ")[0][:100] if refused else attention


def methods() -> Iterator[tuple[str, str]]:
    """Every method of PEFT for causal language models."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, get_peft_model

    trace.parse_config, usual = model.parse_config, trace.with_adapters
    for kind, made in sorted(PEFT_TYPE_TO_CONFIG_MAPPING.items()):
        name = str(getattr(kind, "value", kind))

        def adapted(built: Any, job: dict[str, Any], made: Any = made) -> Any:
            return get_peft_model(built, made(task_type="CAUSAL_LM"), low_cpu_mem_usage=True)

        trace.with_adapters = adapted
        try:
            trace.run({**USUAL, "attention": "sdpa", "config": LLAMA}, lambda record: None)
            text = "yes"
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
