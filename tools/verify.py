"""Everything a change must pass: lint, formatting, types, the matrix's own lint, and the tests.

    python tools/verify.py [--slow] [pytest arguments]

``--slow`` adds the tests that build environments from real wheels. Stops at the first step that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ["envdoctor", "tests", "tools", "benchmarks"]
#: One process a core, at most four: tests of probes start children that hold half a gigabyte of torch.
IN_PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]


def main(arguments: list[str]) -> int:
    """Run the steps in order and return the exit code of the first that fails."""
    # Hundreds of interpreters are started: without bytecode each would compile envdoctor, and each worker the tests.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    slow = "--slow" in arguments
    rest = [argument for argument in arguments if argument != "--slow"]
    python = sys.executable
    pytest = [python, "-m", "pytest", *IN_PARALLEL, *(["-m", "not gpu"] if slow else []), *rest]
    steps = [
        ("ruff check", [python, "-m", "ruff", "check", *CODE]),
        ("ruff format", [python, "-m", "ruff", "format", "--check", "--quiet", *CODE]),
        ("mypy", [python, "-m", "mypy"]),
        ("matrix lint", [python, "-m", "envdoctor", "matrix", "lint"]),
        ("pytest", pytest),
    ]
    for name, command in steps:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"== {name}: {'ok' if code == 0 else f'exit {code}'}, {time.monotonic() - started:.0f} s", flush=True)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
