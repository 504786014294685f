"""Pins everything that the tests install: writes tests/requirements again from what the package index has today.

    python tools/pin.py        needs uv, which asks the index that it is configured for

``tests.txt`` is what the tests run in, with hashes (`tools/install_tests.py` installs it); ``torch.txt`` limits what
torch brings on a machine, without hashes, for its builds differ. The others limit what a test installs while it runs.
Each holds for every Python from 3.10 on.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "requirements"
#: What tests install beside what they run in; one test makes its environment with Python 3.8.
BESIDE = {
    "pyarrow": "3.10",
    "ray": "3.10",
    "huggingface-hub==0.23.5": "3.10",
    "huggingface-hub==0.36.2": "3.10",
    "huggingface-hub==1.33.0": "3.10",
    "huggingface-hub==2.4.0": "3.10",
    "transformers==4.46.3": "3.8",
}
#: torch and what no other package asks for: its libraries of CUDA, which are on machines with a CUDA build alone.
OF_TORCH = re.compile(r"(?:torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z]+)==")
HEAD = "# Written by tools/pin.py\n"


def main() -> int:
    """Write the files, and remove those that nothing asks for any more."""
    asked = ["--extra", "test", "pyproject.toml", "tests/torch-requirements.txt"]
    found = pins(*asked, "--generate-hashes", given="editables")  # which hatchling needs for an editable
    texts = {
        "tests": "".join(one for one in found if not OF_TORCH.match(one)),
        "torch": "".join(one.partition(" \\\n")[0] + "\n" for one in found if OF_TORCH.match(one)),
    }
    for wanted, python in BESIDE.items():
        texts[wanted.replace("==", "-")] = "".join(pins(given=wanted, python=python))
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / f"{name}.txt").write_text(HEAD + text, encoding="utf-8")
    return 0


def pins(*asked: str, given: str, python: str = "3.10") -> list[str]:
    """Return the pins of all that is asked for, one a package and a marker, each with the lines of its hashes."""
    command = [find_uv_bin(), "pip", "compile", "-", *asked, "--universal", "--python-version", python, "--quiet"]
    command += ["--no-header", "--no-annotate", "--no-build"]
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return re.findall(r"^[a-z0-9].*\n(?: +--hash.*\n)*", done.stdout, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
