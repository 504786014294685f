"""Everything a change must pass: lint, formatting, types, the matrix's own lint, and the tests.

    python tools/verify.py [--slow] [pytest arguments]

``--slow`` adds the tests that build environments from real wheels. There are no tests where a quick step fails; the
lint of the matrix, which is none, runs beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from envdoctor.system import processors

ROOT = Path(__file__).resolve().parents[1]
CODE = ["envdoctor", "tests", "tools", "benchmarks", "examples"]
#: One process more than processors, for some tests wait for a disk or a server; at most four: tests of probes start
#: children that hold half a gigabyte of torch.
IN_PARALLEL = ["-n", str(min(processors() + 1, 4)), "--dist", "worksteal"]


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code of the first that fails."""
    # Hundreds of interpreters are started: without bytecode each would compile envdoctor, and each worker the tests.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    slow = "--slow" in arguments
    rest = [argument for argument in arguments if argument != "--slow"]
    python = sys.executable
    lint = [
        ("ruff check", [python, "-m", "ruff", "check", *CODE]),
        ("ruff format", [python, "-m", "ruff", "format", "--check", "--quiet", *CODE]),
        ("mypy", [python, "-m", "mypy"]),
        ("budget", [python, "tools/budget.py"]),
    ]
    rules = [python, "-m", "envdoctor", "matrix", "lint"]
    tests = [python, "-m", "pytest", *IN_PARALLEL, *(["-m", "not gpu"] if slow else []), *rest]
    return _together(lint) or _together([("matrix lint", rules), ("pytest", tests)], shown="pytest")


def _together(steps: list[tuple[str, list[str]]], shown: str = "") -> int:
    """Run steps beside each other, show their output one after another (of the one that is ``shown`` as it comes), and
    return the first exit code that is not 0."""
    started = time.monotonic()
    running = []
    for name, command in steps:
        kept = {} if name == shown else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running.append((name, subprocess.Popen(command, cwd=ROOT, text=True, **kept)))
    codes = []
    for name, process in running:
        print(f"== {name}", flush=True)
        print(process.communicate()[0] or "", end="")
        codes.append(process.returncode)
        state = f"exit {process.returncode}" if process.returncode else "ok"
        print(f"== {name}: {state}, {time.monotonic() - started:.0f} s", flush=True)
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
