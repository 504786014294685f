"""How long does ``check --lock`` take, from the start of the process to its end, the ledger included?

    python benchmarks/locks.py [--runs 9] LOCK ...      uv.lock, uv.lock[gpu], environment.yml, requirements.txt, …

Each lock is judged for Python 3.12 on Linux with the matrix compiled as a wheel carries it, in turn, round by round,
beside ``python -c pass``. The first round, which fills caches and bytecode, is not counted. Wall and processor time are
in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TARGET = ["--target-python", "3.12", "--target-platform", "linux-x86_64", "--no-config"]
START = """
import sys
from pathlib import Path
from envdoctor.matrix import matrix
matrix._COMPILED = Path(sys.argv.pop(1))
from envdoctor.cli.main import main
sys.exit(main())
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locks", nargs="+")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tools"))
    from compiling import compile_matrix

    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder, "matrix")
        compile_matrix(ROOT / "matrices", compiled)
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": folder}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        start = [sys.executable, "-c", START, str(compiled)]
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        packages = {}
        for lock in options.locks:
            told = subprocess.run(
                [*start, "facts", "--lock", lock, *TARGET, "--format", "json"],
                env=environ, capture_output=True, text=True, check=True,
            )  # fmt: skip
            packages[lock] = sum(key.startswith("pkg.") for key in json.loads(told.stdout)["facts"])
            commands[lock] = [*start, "check", "--lock", lock, *TARGET]
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(options.runs + 1):
            for name, command in commands.items():
                sample = measured(command, environ)
                if number:
                    taken[name].append(sample)
    print(f"{'lock':<44}{'packages':>9}{'median':>9}{'min':>7}{'cpu min':>9}")
    for name, samples in taken.items():
        wall = [seconds * 1000 for seconds, _ in samples]
        cpu = min(seconds for _, seconds in samples) * 1000
        count = str(packages.get(name, ""))
        print(f"{Path(name).name:<44}{count:>9}{statistics.median(wall):>9.0f}{min(wall):>7.0f}{cpu:>9.0f}")
    return 0


def measured(command: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of one process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
