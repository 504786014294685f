"""The loopback Hub for the tests of this folder, with a small repository on it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hub_fixtures import hub, packages_of
from loopback import Hub, Repo, virtual
from small_models import SHARD, header, transport

from envdoctor.revision import Access

__all__ = ["access", "hub", "packages_of", "repo"]

ALIASES = {"THUDM": "zai-org"}


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
