"""The loopback Hub, and what traces say, for acceptance tests that speak to a Hub or ask for memory."""

from pathlib import Path

import pytest
from hub_fixtures import hub

__all__ = ["hub"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what traces say: tests that ask for the same model and recipe trace it once."""
    return tmp_path_factory.mktemp("cache")
