"""How far healthy attention is from the limits: many cases with new inputs, on a torch that is known to be right.

    python benchmarks/probe_calibration.py --python TORCH [--seeds 5] [--grid quick] [--device cpu] [--output FILE]

Runs the attention grid for each dtype, backend and seed in children of TORCH, judges every case and prints, for each
dtype and backend, the median, 99th percentile and maximum of the ratios by tensor, with the case of the maximum. A
verdict other than pass or skip on a healthy torch is a false alarm, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from envdoctor.experiments import Job, JudgedCase, cases_of, find_probes, run_jobs
from envdoctor.system import Place

#: The first is the published set of inputs.
DTYPES = ("bf16", "fp16", "fp32")
BACKENDS = {"cpu": ("default", "math", "flash"), "cuda": ("default", "math", "flash", "efficient", "cudnn")}


def judged(python: str, jobs: Sequence[Job], workers: int) -> list[JudgedCase]:
    """Every case that the jobs saw, each in a child of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = run_jobs(jobs, Place(python, os.environ, scratch, scratch), workers=workers)
    for outcome in outcomes:
        if outcome.ending != "ok":
            raise SystemExit(f"{outcome.job.label}: {outcome.ending}: {outcome.detail}")
    return cases_of(outcomes)


def table(python: str, options: argparse.Namespace) -> tuple[str, Counter[str]]:
    """A Markdown table, and how many cases had each verdict."""
    rows = [
        "| dtype | backend | cases | tensor | median | p99 | max | case of the maximum |",
        "|---|---|---|---|---|---|---|---|",
    ]
    verdicts: Counter[str] = Counter()
    alarms: list[str] = []
    for dtype in DTYPES:
        for backend in BACKENDS[options.device]:
            jobs = [
                Job(
                    *("attention", options.device, "quick", dtype, backend),
                    options={"grid": options.grid},
                    seed=seed,
                    seconds=600.0,
                    alone=True,
                    script=find_probes()["attention"].usual.script,
                )
                for seed in range(options.first, options.first + options.seeds)
            ]
            seen = judged(python, jobs, options.workers)
            print(f"{dtype} {backend}: {len(seen)} cases", file=sys.stderr, flush=True)
            for case in seen:
                verdicts[case.verdict.verdict] += 1
                if case.verdict.wrong:
                    alarms.append(f"{dtype} {backend} {case.title} seed {case.param('seed')}: {case.verdict}")
            measured = [case.observation for case in seen]
            for tensor in ("o", "dq", "dk", "dv"):
                found = sorted(
                    (one["ratio"][tensor], one["case"])
                    for one in measured
                    if tensor in one.get("ratio", {}) and tensor in one.get("gate", [tensor])
                )
                if not found:
                    continue
                values = [value for value, _ in found]
                last = values[min(len(values) - 1, int(0.99 * len(values)))]
                rows.append(
                    f"| {dtype} | {backend} | {len(seen)} | {tensor} | {statistics.median(values):.2f} | {last:.2f} "
                    f"| {found[-1][0]:.2f} | {found[-1][1]} |"
                )
    if alarms:
        rows += ["", *alarms[:50]]
    return "\n".join(rows), verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--grid", default="quick")
    parser.add_argument("--device", default="cpu", choices=BACKENDS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    version = subprocess.run(
        [options.python, "-c", "import torch, platform; print(torch.__version__, platform.machine())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    rows, verdicts = table(options.python, options)
    counts = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    last = options.first + options.seeds - 1
    head = f"torch {version}, {options.device}, {options.grid} grid, seeds {options.first} to {last}: {counts}"
    text = f"{head}\n\n{rows}\n"
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    return int(any(name not in ("pass", "skip") for name in verdicts))


if __name__ == "__main__":
    sys.exit(main())
