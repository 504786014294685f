"""What really fails when it is imported, in environments that nobody chose: check names it, no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "imports.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or sys.version_info[:2] != (3, 11), reason="its stacks are for Python 3.11")
@pytest.mark.parametrize(("options", "bar"), [([], "95"), (["--versions"], "85")], ids=["files", "versions"])
def test_failing_imports_of_25_random_environments_are_named(
    tmp_path_factory: pytest.TempPathFactory, options: list[str], bar: str
) -> None:
    keep = Path(os.environ.get("ENVDOCTOR_TEST_IMPORTS") or tmp_path_factory.getbasetemp() / "imports")
    drawn = ["--seed", "2026", "--count", "25", "--keep", str(keep), "--uv", find_uv_bin(), "--bar", bar]
    command = [sys.executable, str(BENCHMARK), *drawn, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
