"""The loopback Hub, what traces say, and what is released of this checkout, for acceptance tests."""

import subprocess
from pathlib import Path

import pytest
from hub_fixtures import hub
from sharing import once
from uv import find_uv_bin

__all__ = ["hub"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what traces say: tests that ask for the same model and recipe trace it once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of this checkout."""

    def build(folder: Path) -> Path:
        command = [find_uv_bin(), "build", "--quiet", "--out-dir", folder, Path(__file__).parents[2]]
        subprocess.run(command, check=True, capture_output=True)
        return folder

    return once(tmp_path_factory, "dist", build)
