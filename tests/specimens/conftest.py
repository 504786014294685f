"""The recorded environments and the broken ones, built below one temporary folder."""

import pytest
from environments import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The recorded wheels, unpacked where hard links can reach them."""
    return Store(tmp_path_factory.mktemp("wheels"))
