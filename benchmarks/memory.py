"""The predicted peak of GPU memory beside published readings: error of each, mean and worst.

    python benchmarks/memory.py --python PATH

``memory_readings.toml`` holds the readings with their sources, all made with modeling code that is transformers' own.
Prompts are judged by live tensors; the readings of PEFT's benchmark are of what the allocator reserved, and of batches
whose longest sample is not published: 748 tokens is the length at which another row of it, LoRA of rank 32, agrees
(the published limit is 768). No other number is fitted. The code that is traced is that of PATH, not of the day of the
reading.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomllib

from envdoctor.memory.closed_form import ClosedForm, kept_bytes
from envdoctor.memory.tracing import Trace, Tracer
from envdoctor.memory.verdict import GIB
from envdoctor.sandbox.target import Place

JOB = {
    "load_dtype": "bfloat16",
    "amp": None,
    "attention": "sdpa",
    "quantized": None,
    "checkpointing": False,
    "stage": "sft",
    "reference": "none",
    "accumulation": 1,
    "keep_outputs": True,
    "optimizer": "AdamW",
}


def main() -> int:
    """Print a line a reading, then the mean and the worst error; 1 where a model could not be traced."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    data = tomllib.loads(Path(__file__).with_name("memory_readings.toml").read_text(encoding="utf-8"))
    readings = data["reading"]
    with tempfile.TemporaryDirectory() as folder:
        place = Place(options.python, os.environ, folder, folder, "")
        traces = Tracer(place, {"torch": None}, None).run([job(reading, data["model"]) for reading in readings])
    errors = []
    for reading, trace in zip(readings, traces, strict=True):
        if not isinstance(trace, Trace):
            print(f"{reading['id']:<18} {trace}")
            continue
        said = predicted(reading, trace) / GIB
        errors.append(said / reading["gib"] - 1)
        what = f"{reading['model']}, {reading['tokens']} tokens"
        print(f"{reading['id']:<18} {what:<28} {said:8.2f} of {reading['gib']:6.2f} GiB {errors[-1]:+8.1%}")
    if errors:
        mean, worst = sum(map(abs, errors)) / len(errors), max(errors, key=abs)
        print(f"{len(errors)} readings: mean error {mean:.1%}, worst {worst:+.1%}")
    return int(len(errors) < len(readings))


def job(reading: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """What is traced for a reading."""
    lora = reading.get("lora")
    return {
        **JOB,
        "config": models[reading["model"]],
        "tokens": [reading["tokens"]],
        "training": lora is not None,
        "lora": lora,
        "batch": reading.get("batch", 1),
        "padded": lora is not None,
    }


def predicted(reading: dict[str, Any], trace: Trace) -> float:
    """Bytes: the peak of the step or the prompt, or the weights with all keys and values at the end of the answer."""
    batch, tokens = reading.get("batch", 1), reading["tokens"]
    peak = ClosedForm(trace, batch).at(batch, tokens).size
    cache = kept_bytes(trace) / tokens * (tokens + reading.get("new_tokens", 0))
    return peak if "lora" in reading else max(peak, float(trace.model["weight_bytes"]) + cache)


if __name__ == "__main__":
    raise SystemExit(main())
