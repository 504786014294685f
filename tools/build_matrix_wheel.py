"""Build envdoctor-matrix, the distribution that holds the compiled matrix alone, dated as the matrix is.

    python tools/build_matrix_wheel.py DIST

Installed beside envdoctor it is used where it is newer than the matrix that envdoctor brings.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from compiling import compile_matrix

from envdoctor.matrix import load_source

ROOT = Path(__file__).resolve().parents[1]
PROJECT = """[build-system]
requires = ["hatchling>=1.18"]
build-backend = "hatchling.build"

[project]
name = "envdoctor-matrix"
version = "{version}"
description = "What envdoctor knows, as of {version}: rules, tables and the ledger of released packages"
license = "Apache-2.0"
requires-python = ">=3.10"

[tool.hatch.build.targets.wheel]
packages = ["envdoctor_matrix"]
"""


def build(source: Path, dist: Path) -> Path:
    """Compile the matrix of ``source`` (a matrices folder) and return the wheel in ``dist``."""
    version = load_source(source, source="checkout").version
    with TemporaryDirectory() as scratch:
        compile_matrix(source, Path(scratch, "envdoctor_matrix"))
        Path(scratch, "pyproject.toml").write_text(PROJECT.format(version=version), encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist.resolve())],
            cwd=scratch,
            check=True,
        )
    (wheel,) = dist.glob("envdoctor_matrix-*.whl")
    return wheel


if __name__ == "__main__":
    print(build(ROOT / "matrices", Path(sys.argv[1])))
