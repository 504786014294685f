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
    """One example: its exit code, and its errors and warnings as (severity, rule, message)."""

    name: str
    code: int
    found: Sequence[tuple[str, str, str]]


def main() -> int:
    """Judge the drawn examples and print what is said."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("--seed", type=int, default=73)
    parser.add_argument("--each", type=int, default=70)
    asked = parser.parse_args()
    drawing = random.Random(asked.seed)
    for repository, (folder, ends, packages) in REPOSITORIES.items():
        if not (asked.clones / repository / folder).is_dir():
            continue
        lock = asked.clones / f"{repository}.txt"
        lock.write_text("\n".join([*packages.split(), ""]), encoding="utf-8")
        there = sorted((asked.clones / repository / folder).rglob("*"))
        files = [path for path in there if path.is_file() and path.name.endswith(ends)]
        drawn = sorted(drawing.sample(files, min(asked.each, len(files))))
        with ThreadPoolExecutor(2) as workers:
            judged = list(workers.map(lambda path, lock=lock: _judged(path, lock), drawn))
        codes = Counter(one.code for one in judged)
        print(f"\n## {repository}: {len(judged)} examples, exit codes {dict(sorted(codes.items()))}\n")
        first = {finding[1:]: one.name for one in reversed(judged) for finding in one.found}
        number = Counter(finding for one in judged for finding in set(one.found))
        for (severity, rule, message), times in number.most_common():
            print(f"- {times} x {severity}[{rule}] {message} ({first[rule, message]})")
    return 0


def _judged(path: Path, lock: Path) -> Judged:
    arguments = ["check", "--recipe", str(path), "--lock", str(lock), *_MACHINE, "--format", "json", "--no-config"]
    done = subprocess.run([sys.executable, "-m", "envdoctor", *arguments], capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)["findings"] if done.stdout.startswith("{") else []
    told = [(one["severity"], one["id"], one["message"]) for one in findings if one["severity"] != "note"]
    return Judged(path.name, done.returncode, told)


if __name__ == "__main__":
    sys.exit(main())
