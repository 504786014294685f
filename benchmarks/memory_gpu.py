"""Predicted beside measured peaks of small recipes on a GPU: ``torch.cuda.max_memory_allocated`` of the second step.

    PYTHON benchmarks/memory_gpu.py [--device cpu]

Runs in an environment with torch, transformers, peft and envdoctor. Each recipe is a real step with random weights, the
same code as the trace's. Without a GPU it says so and ends with 3; ``--device cpu`` runs the steps there and measures
nothing, to try this script.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from typing import Any

import torch

from envdoctor.peak import ClosedForm, Trace, Tracer
from envdoctor.system import PAYLOAD, Place

sys.path.insert(0, str(PAYLOAD))

from tracing.model import build, parse_config, with_adapters
from tracing.step import make_optimizer, training_step

MIB = 1 << 20
#: Small enough for a card of 8 GiB; large enough that a few MiB of kernels' own do not matter.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
LORA = {"r": 16, "lora_alpha": 16, "lora_dropout": 0.05, "target_modules": "all-linear"}
USUAL = {
    **{"config": CONFIG, "training": True, "load_dtype": "bfloat16", "amp": None, "attention": "sdpa"},
    **{"quantized": None, "lora": None, "checkpointing": False, "stage": "sft", "reference": "none", "batch": 2},
    **{"padded": False, "accumulation": 1, "keep_outputs": False, "optimizer": "AdamW", "tokens": [1024]},
}
RECIPES: dict[str, dict[str, Any]] = {
    "full": {},
    "full, checkpointing": {"checkpointing": True},
    "full, float32 under autocast": {"load_dtype": "float32", "amp": "bfloat16"},
    "full, eager attention": {"attention": "eager"},
    "full, padded batch": {"padded": True},
    "LoRA": {"lora": LORA},
    "LoRA under autocast, checkpointing": {"lora": LORA, "amp": "bfloat16", "checkpointing": True},
    "Qwen2, LoRA": {"lora": LORA, "config": {**CONFIG, "model_type": "qwen2", "vocab_size": 64000}},
}


def main() -> int:
    """Print a line a recipe, then the mean and the worst error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tokens", type=int, default=1024)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU is here, so nothing was measured")
        return 3
    jobs = {name: {**USUAL, **recipe, "tokens": [options.tokens]} for name, recipe in RECIPES.items()}
    with tempfile.TemporaryDirectory() as folder:
        place = Place(sys.executable, os.environ, folder, folder, "")
        traces = Tracer(place, {"torch": None}, None).run(list(jobs.values()))
    errors = []
    for (name, job), trace in zip(jobs.items(), traces, strict=True):
        if not isinstance(trace, Trace):
            print(f"{name:<36} {trace}")
            continue
        said = ClosedForm(trace, job["batch"]).at(job["batch"], options.tokens).size
        seen = measured(job, options.device)
        if seen:
            errors.append(said / seen - 1)
        print(f"{name:<36} predicted {said / MIB:9.1f}, measured {seen / MIB:9.1f} MiB")
    if errors:
        mean, worst = sum(map(abs, errors)) / len(errors), max(errors, key=abs)
        print(f"{len(errors)} recipes: mean error {mean:.1%}, worst {worst:+.1%}")
    return 0


def measured(job: dict[str, Any], device: str) -> int:
    """The most allocated bytes of the second step; 0 on a CPU."""
    model = with_adapters(build(parse_config(job["config"]), job), job).to_empty(device=device)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, std=0.02)
    with torch.device(device):
        optimizer = make_optimizer(model, job["optimizer"])
        for number in range(2):
            if number and device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            training_step(model, optimizer, job, job["tokens"][0], lambda phase: None)
    seen = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    del model, optimizer
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return seen


if __name__ == "__main__":
    raise SystemExit(main())
