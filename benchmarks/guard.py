"""What does ``envdoctor.guard()`` cost in front of a training script? Processor time, in the script's own process.

    python benchmarks/guard.py [--python PATH] [--runs 9]

The checkout's wheel is unpacked beside the packages of PATH (default: this interpreter) and judges that environment.
Measured is the call with the import of envdoctor, alone and behind ``import torch, transformers``, with bytecode and
envdoctor's cache filled by the first round; cold is that first round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import sys, time
{}
started = time.process_time()
import envdoctor
envdoctor.guard(fail_on=None)
print(1000 * (time.process_time() - started))
"""


def main() -> None:
    """Build, measure in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheels = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)]
        subprocess.run(wheels, check=True)
        zipfile.ZipFile(next(Path(folder).glob("*.whl"))).extractall(Path(folder, "wheel"))
        environ = {**os.environ, "PYTHONPATH": str(Path(folder, "wheel")), "XDG_CACHE_HOME": str(Path(folder, "cache"))}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # some containers switch it off; then nothing is ever warm
        scripts = {"alone": SCRIPT.format(""), "after torch": SCRIPT.format("import torch, transformers")}
        taken: dict[str, list[float]] = {name: [] for name in scripts}
        for _ in range(options.runs + 1):
            for name, script in scripts.items():
                command = [options.python, "-c", script]
                done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
                taken[name].append(float(done.stdout))
    print(f"{'guard(), ms of processor time':<32}{'cold':>8}{'median':>8}{'least':>8}")
    for name, (cold, *warm) in taken.items():
        print(f"{name:<32}{cold:8.0f}{statistics.median(warm):8.0f}{min(warm):8.0f}")


if __name__ == "__main__":
    main()
