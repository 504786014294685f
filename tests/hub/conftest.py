"""The loopback Hub for the tests of this folder, with a small repository on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loopback import Hub, Repo, virtual
from small_models import SHARD, header, transport

from envdoctor.hub.access import Access

ALIASES = {"THUDM": "zai-org"}


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
        target = tmp_path_factory.getbasetemp() / f"huggingface_hub-{version}"
        if not target.is_dir():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target)]
            subprocess.run([*pip, f"huggingface_hub=={version}"], check=True, timeout=600, capture_output=True)
        return target

    return install


@pytest.fixture
def repo(hub: Hub) -> Repo:
    """A repository of three commits: weights and code, other code, another README; it was renamed."""
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}", "modeling.py": "a = 1", "m.safetensors": virtual(header(), SHARD)}, title="first")
    repo.commit({"modeling.py": "a = 2"}, title="code")
    repo.commit({"README.md": "2"}, title="readme")
    hub.move("THUDM/tiny", "zai-org/tiny")
    return repo


@pytest.fixture
def access(hub: Hub, tmp_path: Path) -> Callable[..., Access]:
    """What a command in a folder with a Hub cache of its own may ask for."""

    def make(**options: object) -> Access:
        environ = {"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
        given = {"cwd": str(tmp_path), "environ": environ, "aliases": ALIASES, "transport": transport(hub)}
        return Access(**{**given, **options})  # type: ignore[arg-type]

    return make
