"""The predicted peak of GPU memory beside published readings: error of each, mean and worst; and others' formulas.

    python benchmarks/memory.py --python PATH [--only qwen2-]

``memory_readings.toml`` holds the readings with their sources, all made with modeling code that is transformers' own.
Prompts are judged by live tensors; the readings of PEFT's benchmark are of what the allocator reserved, and of batches
whose longest sample is not published: 748 tokens is the length at which another row of it, LoRA of rank 32, agrees
(the published limit is 768). No other number is fitted. The code that is traced is that of PATH, not of the day of the
reading.

Readings of code that is only alike (Qwen's own, litgpt's, and scripts whose lengths are not known) are apart: of them
it is counted how many lie inside the interval that ``envdoctor memory`` would give, with its margin for such code, and
how wide that is. What the instrument saw is mostly not stated: the interval goes from live tensors to what nvidia-smi
shows; where the length is a limit, it begins with a short sample, and where the loss is taken in chunks, without it.
``gb`` are readings in GB: taken as 10^9 bytes, and once more as GiB, because some who write GB mean GiB.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import tomllib
from memory_formulas import FORMULAS

from envdoctor.peak import ClosedForm, Trace, Tracer
from envdoctor.peak.closed_form import GIB, Peak, at_full_depth, need_of
from envdoctor.peak.model import MARGIN
from envdoctor.system import Place

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
    alike: list[tuple[float, ...]] = []
    errors: dict[str, list[float]] = {name: [] for name in ("envdoctor", *FORMULAS)}
    apart: dict[str, list[float]] = {name: [] for name in errors}
    for reading, trace in zip(readings, traces, strict=True):
        if not isinstance(trace, Trace):
            print(f"{reading['id']:<18} {trace}")
            continue
        said = predicted(reading, trace)
        seen = reading["gb"] * 1e9 / GIB if "gb" in reading else reading["gib"]
        error = said / GIB / seen - 1
        what = f"{reading['model']}, {reading['tokens']} tokens"
        more = ""
        if reading.get("alike"):
            low, high = (size / GIB for size in interval(reading, trace))
            alike.append((low, high, seen, reading.get("gb", seen)))
            more = f"  {low:.1f} to {high:.1f}: {'inside' if low <= seen <= high else 'outside'}"
        found = apart if reading.get("alike") else errors
        found["envdoctor"].append(error)
        run = {**job(reading, data["model"]), "tokens": reading["tokens"], "trained": at_full_depth(trace, "trained")}
        run["parameters"] = float(trace.model["parameters"])
        for name, formula in FORMULAS.items():
            if not run["quantized"] and (told := formula(run)) is not None:
                found[name].append(told / GIB / seen - 1)
        print(f"{reading['id']:<18} {what:<28} {said / GIB:8.2f} of {seen:6.2f} GiB {error:+8.1%}{more}")
    told_of("the same code", errors)
    if alike:
        told_of("code that is alike", apart)
        inside, of_gib = (sum(one[0] <= one[place] <= one[1] for one in alike) for place in (2, 3))
        width = median(high / low - 1 for low, high, *_ in alike)
        print(f"alike: {inside} of {len(alike)} readings are inside the interval ({inside / len(alike):.0%})")
        print(f"       {of_gib} where GB is taken as GiB; the upper end is {width:.0%} above the lower one (median)")
    return int(len(alike) + len(errors["envdoctor"]) < len(readings))


def told_of(which: str, errors: dict[str, list[float]]) -> None:
    """A line for each formula that says something of such readings."""
    for name, found in errors.items():
        if found:
            mean, worst = sum(map(abs, found)) / len(found), max(found, key=abs)
            print(f"{which}: {name:<14} {len(found)} readings: mean error {mean:.1%}, worst {worst:+.1%}")


def job(reading: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """What is traced for a reading."""
    lora = reading.get("lora")
    return {
        **JOB,
        "config": models[reading["model"]],
        "tokens": sorted({reading["tokens"], *([] if "least_tokens" not in reading else (16, 512))}, reverse=True),
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
    cache = at_full_depth(trace, "cache_bytes") / tokens * (tokens + reading.get("new_tokens", 0))
    return peak if "lora" in reading else max(peak, float(trace.model["weight_bytes"]) + cache)


def interval(reading: dict[str, Any], trace: Trace) -> tuple[float, float]:
    """Bytes from and to."""
    batch, tokens = reading.get("batch", 1), reading["tokens"]
    form = ClosedForm(trace, batch)
    peak = form.at(batch, tokens)
    low = form.at(batch, min(tokens, reading.get("least_tokens", tokens)), (reading.get("without", ""),))
    return low.size, need_of(low.size, peak.size, peak.most(MARGIN), form.held, {}).process[2]


if __name__ == "__main__":
    raise SystemExit(main())
