"""The recorded environments and the broken ones, built below one temporary folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from environments import Store  # noqa: E402


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The recorded wheels, unpacked where hard links can reach them."""
    return Store(tmp_path_factory.mktemp("wheels"))
