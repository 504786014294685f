"""Do the experiments say anything where nothing is wrong? Healthy installations, each under settings that people have.

    python benchmarks/probe_healthy.py --python PATH [--python PATH ...] [--suite quick] [--seed N] [--setting NAME ...]

Each PATH is an interpreter with torch, transformers, accelerate and peft; it gets an overlay (an environment of its own
that sees the same packages), in which the setting is made before anything runs. Prints a line a run with its findings
and seconds; exit code 1 when anything is found.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TF32 = '''
import torch


def rounded(value):
    """What TF32 keeps of a float32: 10 bits of its mantissa."""
    on = torch.backends.cuda.matmul.allow_tf32  # as a GPU heeds it
    if not on or not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    with torch.no_grad():
        lost = value.detach() - ((value.detach().contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    return value - lost.nan_to_num(0.0, 0.0, 0.0)


def wrapped(function):
    return lambda first, second, *rest, **named: function(rounded(first), rounded(second), *rest, **named)


torch.bmm, torch.mm, torch.matmul = map(wrapped, (torch.bmm, torch.mm, torch.matmul))
torch.Tensor.__matmul__ = wrapped(torch.Tensor.__matmul__)
torch.nn.functional.linear = wrapped(torch.nn.functional.linear)
torch.backends.cuda.matmul.allow_tf32 = True
'''
#: By name: what runs before anything else, the variables, and how many processes compute beside it.
SETTINGS: dict[str, tuple[str, dict[str, str], int]] = {
    "default": ("", {}, 0),
    "bf16 by default": ("import torch\ntorch.set_default_dtype(torch.bfloat16)", {}, 0),
    "float64 by default": ("import torch\ntorch.set_default_dtype(torch.float64)", {}, 0),
    "TF32, by rounding": (_TF32, {}, 0),
    "one thread": ("", {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, 0),
    "deterministic": ("import torch\ntorch.use_deterministic_algorithms(True)", {}, 0),
    "load of 8": ("", {}, 8),
}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", required=True)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--setting", action="append", choices=SETTINGS)
    options = parser.parse_args()
    found = 0
    for python in options.python:
        for name in options.setting or SETTINGS:
            with tempfile.TemporaryDirectory() as folder:
                found += run(python, name, Path(folder), options.suite, options.seed)
    return int(found > 0)


def run(python: str, name: str, folder: Path, suite: str, seed: int) -> int:
    """Print and return how many findings there are under a setting."""
    code, variables, load = SETTINGS[name]
    target = overlay(python, folder, code)
    words = ["probe", "--python", str(target), "--suite", suite, "--seed", str(seed), "--device", "cpu", "--no-config"]
    command = [sys.executable, "-m", "envdoctor", *words, "--format", "json"]
    busy = [multiprocessing.Process(target=compute, daemon=True) for _ in range(load)]
    for process in busy:
        process.start()
    started = time.monotonic()
    environ = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    seconds = time.monotonic() - started
    for process in busy:
        process.kill()
    ids = [one["id"] for one in json.loads(done.stdout)["findings"]] if done.stdout.startswith("{") else [done.stderr]
    print(f"{python}, {name}: {len(ids)} findings {ids or ''}, exit {done.returncode}, {seconds:.0f} s", flush=True)
    return len(ids)


def overlay(python: str, folder: Path, code: str) -> Path:
    """Make an environment that sees the packages of another one, and runs ``code`` at its start."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder / "v")], check=True)
    ask = "import site, sysconfig; print(sysconfig.get_path('purelib')); print(*site.getsitepackages(), sep='\\n')"
    theirs = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split("\n")
    target = folder / "v" / "bin" / "python"
    mine = Path(subprocess.run([target, "-c", ask], capture_output=True, text=True, check=True).stdout.split("\n")[0])
    lines = [line for line in dict.fromkeys(theirs) if line]
    lines += [text for line in [*lines] for path in Path(line).glob("*.pth") for text in path.read_text().split("\n")]
    (mine / "theirs.pth").write_text("\n".join(line for line in lines if line.startswith("/")) + "\n")
    if code:
        (mine / "setting_of_a_benchmark.py").write_text(code)
        (mine / "zzz_setting.pth").write_text("import setting_of_a_benchmark\n")
    return target


def compute() -> None:
    """Keep a processor busy."""
    while True:
        sum(range(100_000))


if __name__ == "__main__":
    sys.exit(main())
