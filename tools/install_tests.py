"""Installs what the tests need into the environment of this interpreter, and the checkout itself as an editable.

    python tools/install_tests.py [--newest]

Every release is the one that tests/requirements pins (`tools/pin.py` renews them). ``--newest``, or the variable
ENVDOCTOR_TEST_NEWEST, which the tests heed as well, takes the newest ones instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = "tests/requirements"
#: pip asks for all hashes or none, so torch, whose builds differ, and the checkout have steps of their own.
PINNED = (
    ["--no-deps", "-r", f"{PINS}/tests.txt"],
    ["-c", f"{PINS}/torch.txt", "torch"],
    ["--no-deps", "--no-build-isolation", "-e", "."],
)
NEWEST = (["--upgrade", "-e", ".[test]", "-r", "tests/torch-requirements.txt"],)


def main(arguments: list[str]) -> int:
    """Run the steps, and then pip's check that nothing is missing. Bytecode is made by all processors at the end."""
    newest = "--newest" in arguments or "ENVDOCTOR_TEST_NEWEST" in os.environ
    steps = [["pip", "install", "-q", "--no-compile", *step] for step in (NEWEST if newest else PINNED)]
    for step in (*steps, ["pip", "check"]):
        code = subprocess.run([sys.executable, "-m", *step], cwd=ROOT, check=False).returncode
        if code:
            return code
    compiling = [sys.executable, "-m", "compileall", "-qq", "-j", "0", sysconfig.get_path("purelib")]
    subprocess.run(compiling, check=False)  # some wheels bring templates that no Python compiles
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
