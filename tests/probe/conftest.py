"""A real torch for the tests that need one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The interpreter of ENVDOCTOR_TEST_TORCH, or that of the tests when torch is installed there; else the test is
    skipped."""
    python = os.environ.get("ENVDOCTOR_TEST_TORCH") or sys.executable
    there = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    if there.returncode:
        pytest.skip(f"{python} has no torch; ENVDOCTOR_TEST_TORCH may name an interpreter that has")
    return python
