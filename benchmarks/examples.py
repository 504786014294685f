"""What does ``check`` say of the examples that trainers publish?

    python benchmarks/examples.py CLONES [--seed 73] [--each 70]

CLONES holds the repositories below, or some (``git clone https://github.com/OWNER/NAME CLONES/OWNER+NAME``). Of each,
examples are drawn at random and judged as by ``check --recipe FILE --lock LIST --gpu H100``, with the list below. An
example is meant to run: an error or a warning is false until somebody has read it. Prints each once, with the first
file that has it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

#: By repository: the folder of its examples, what they end with, and a list of its day.
REPOSITORIES = {
    "hiyouga+LLaMA-Factory": (
        "examples",
        (".yaml", ".sh"),
        "llamafactory==0.9.5 transformers==5.2.0 torch==2.10.0 torchaudio==2.10.0 peft==0.18.1 accelerate==1.11.0 "
        "trl==0.24.0 datasets==4.0.0",
    ),
    "axolotl-ai-cloud+axolotl": ("examples", (".yaml", ".yml"), "axolotl==0.19.0 torch==2.11.0"),
    "modelscope+ms-swift": (
        "examples",
        (".sh",),
        "ms-swift==4.6.0 torch==2.11.0 transformers==5.2.0 peft==0.18.1",
    ),
    "huggingface+peft": (
        "examples",
        (".py", ".sh", ".yaml"),
        "peft==0.21.2 transformers==5.23.0 torch==2.13.0 accelerate==1.15.0",
    ),
    "huggingface+trl": ("examples", (".py", ".sh", ".yaml"), "trl==1.10.0 torch==2.11.0 peft==0.19.1"),
    "OpenRLHF+OpenRLHF": ("examples", (".sh",), "openrlhf==0.10.2 torch==2.9.1"),
    "volcengine+verl": ("examples", (".sh",), "verl==0.7.0 torch==2.9.0 vllm==0.12.0"),
    "huggingface+alignment-handbook": (
        "recipes",
        (".yaml",),
        "torch==2.6.0 transformers==4.52.4 trl==0.18.2 peft==0.15.2 accelerate==1.7.0 deepspeed==0.17.1",
    ),
    "pytorch+torchtune": ("recipes/configs", (".yaml",), "torchtune==0.6.1 torch==2.7.1 torchao==0.11.0"),
    "Lightning-AI+litgpt": ("config_hub", (".yaml",), "litgpt==0.5.13 torch==2.7.1"),
}
_MACHINE = ("--target-python", "3.11", "--target-platform", "linux-x86_64", "--gpu", "H100")


class Judged(NamedTuple):
    """One example: its exit code, its errors and warnings as (severity, rule, message), and why there is no report."""

    name: str
    code: int
    found: Sequence[tuple[str, str, str]]
    refused: str = ""


def draw_of(described: str | None, seed: int, each: int) -> tuple[Path, random.Random, int]:
    """Return the folder of clones, what draws, and how many of each repository; ``described`` is the docstring, and the
    numbers are those without options."""
    parser = argparse.ArgumentParser(description=(described or "").partition("\n")[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--each", type=int, default=each)
    asked = parser.parse_args()
    return asked.clones, random.Random(asked.seed), asked.each


def judged(name: str, *words: str, cwd: Path | None = None) -> Judged:
    """Return what ``check`` says with these words."""
    command = [sys.executable, "-m", "envdoctor", "check", *words, "--format", "json", "--no-config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if not done.stdout.startswith("{"):
        return Judged(name, done.returncode, (), done.stderr.strip()[-300:])
    every = json.loads(done.stdout)["findings"]
    findings = [one for one in every if one["severity"] != "note" and one["status"] != "superseded"]
    return Judged(name, done.returncode, [(one["severity"], one["id"], one["message"]) for one in findings])


def main() -> int:
    """Judge the drawn examples and print what is said."""
    clones, drawing, each = draw_of(__doc__, seed=73, each=70)
    for repository, (folder, ends, packages) in REPOSITORIES.items():
        if not (clones / repository / folder).is_dir():
            continue
        lock = clones / f"{repository}.txt"
        lock.write_text("\n".join([*packages.split(), ""]), encoding="utf-8")
        there = sorted((clones / repository / folder).rglob("*"))
        files = [path for path in there if path.is_file() and path.name.endswith(ends)]
        drawn = sorted(drawing.sample(files, min(each, len(files))))
        words = ("--lock", str(lock), *_MACHINE)
        with ThreadPoolExecutor(2) as workers:
            told = list(workers.map(lambda path, words=words: judged(path.name, "--recipe", str(path), *words), drawn))
        codes = Counter(one.code for one in told)
        print(f"\n## {repository}: {len(told)} examples, exit codes {dict(sorted(codes.items()))}\n")
        first = {finding[1:]: one.name for one in reversed(told) for finding in one.found}
        number = Counter(finding for one in told for finding in set(one.found))
        for (severity, rule, message), times in number.most_common():
            print(f"- {times} x {severity}[{rule}] {message} ({first[rule, message]})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
