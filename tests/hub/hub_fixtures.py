"""Fixtures around the loopback Hub, for the ``conftest.py`` of this folder and others."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loopback import Hub
from pinned import installing, pinned
from sharing import once


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty loopback Hub, running."""
    with Hub() as running:
        yield running


@pytest.fixture(scope="session")
def packages_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of one release of huggingface_hub with what it needs, installed from the package index.

    Set ENVDOCTOR_TEST_CLIENTS to a folder with one folder a release to install nothing.
    """

    def install(version: str) -> Path:
        given = os.environ.get("ENVDOCTOR_TEST_CLIENTS")
        if given and (Path(given) / version).is_dir():
            return Path(given) / version

        def make(target: Path) -> Path:
            wanted = f"huggingface-hub=={version}"
            pins = pinned(tmp_path_factory.mktemp("pins"), wanted)
            install = installing(sys.executable, "--target", target, *pins)
            subprocess.run([*install, wanted], check=True, timeout=600, capture_output=True)
            return target

        return once(tmp_path_factory, f"huggingface_hub-{version}", make)

    return install
