"""The predicted peak of GPU memory beside published readings: error of each, mean and worst; and others' formulas.

    python benchmarks/memory.py --python PATH [--only qwen2-]

``memory_readings.toml`` holds the readings with their sources, all made with modeling code that is transformers' own.
Prompts are judged by live tensors; the readings of PEFT's benchmark are of what the allocator reserved, and of batches
whose longest sample is not published: 748 tokens is the length at which another row of it, LoRA of rank 32, agrees
(the published limit is 768). No other number is fitted. The code that is traced is that of PATH, not of the day of the
reading.

Readings of code that is only alike (Qwen's own, litgpt's, and scripts whose lengths are not known) are apart: of them
it is counted how many lie inside the interval that ``envdoctor memory`` would give, with its margin for such code.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomllib
from memory_formulas import FORMULAS

from envdoctor.memory.closed_form import ClosedForm, Peak, kept_bytes, trained_parameters
from envdoctor.memory.model import MARGIN
from envdoctor.memory.tracing import Trace, Tracer
from envdoctor.memory.verdict import GIB, need_of
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
    """Print a line a reading, then the errors of all; 1 where a model could not be traced."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="", help="readings whose id begins so")
    options = parser.parse_args()
    data = tomllib.loads(Path(__file__).with_name("memory_readings.toml").read_text(encoding="utf-8"))
    readings = [
        one
        for one in data["reading"]
        if one["id"].startswith(options.only) and bool(options.only) >= bool(one.get("only"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        place = Place(options.python, os.environ, folder, folder, "")
        traces = Tracer(place, {"torch": None}, None).run([job(reading, data["model"]) for reading in readings])
    inside, errors = [], {name: [] for name in ("envdoctor", *FORMULAS)}
    for reading, trace in zip(readings, traces, strict=True):
        if not isinstance(trace, Trace):
            print(f"{reading['id']:<18} {trace}")
            continue
        said = predicted(reading, trace)
        error = said / GIB / reading["gib"] - 1
        what = f"{reading['model']}, {reading['tokens']} tokens"
        more = ""
        if reading.get("alike"):
            low, high = (size / GIB for size in interval(reading, trace))
            inside.append(low <= reading["gib"] <= high)
            more = f"  {low:.1f} to {high:.1f}: {'inside' if inside[-1] else 'outside'}"
        else:
            errors["envdoctor"].append(error)
            run = {**job(reading, data["model"]), "tokens": reading["tokens"], "trained": trained_parameters(trace)}
            run["parameters"] = float(trace.model["parameters"])
            for name, formula in FORMULAS.items():
                if (told := formula(run)) is not None:
                    errors[name].append(told / GIB / reading["gib"] - 1)
        print(f"{reading['id']:<18} {what:<28} {said / GIB:8.2f} of {reading['gib']:6.2f} GiB {error:+8.1%}{more}")
    for name, found in errors.items():
        if found:
            mean, worst = sum(map(abs, found)) / len(found), max(found, key=abs)
            print(f"{name:<14} {len(found)} readings: mean error {mean:.1%}, worst {worst:+.1%}")
    if inside:
        print(
            f"alike: {sum(inside)} of {len(inside)} readings are inside the interval ({sum(inside) / len(inside):.0%})"
        )
    return int(sum(map(len, (inside, errors["envdoctor"]))) < len(readings))


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
        "padded": reading.get("batch", 1) > 1,
        **reading.get("recipe", {}),
    }


def peak_of(reading: dict[str, Any], trace: Trace) -> Peak:
    """At the peak of the step."""
    batch = reading.get("batch", 1)
    return ClosedForm(trace, batch).at(batch, reading["tokens"])


def predicted(reading: dict[str, Any], trace: Trace) -> float:
    """Bytes: the peak of the step or the prompt, or the weights with all keys and values at the end of the answer."""
    peak, tokens = peak_of(reading, trace).size, reading["tokens"]
    cache = kept_bytes(trace) / tokens * (tokens + reading.get("new_tokens", 0))
    return peak if "lora" in reading else max(peak, float(trace.model["weight_bytes"]) + cache)


def interval(reading: dict[str, Any], trace: Trace) -> tuple[float, float]:
    """Bytes from and to, of live tensors up to what nvidia-smi shows: what the instrument saw is not stated."""
    peak = peak_of(reading, trace)
    return peak.size, need_of(peak.size, peak.most(MARGIN)).process[1]


if __name__ == "__main__":
    raise SystemExit(main())
