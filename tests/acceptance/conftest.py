"""The loopback Hub, for acceptance tests that speak to a Hub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback import Hub


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty loopback Hub, running."""
    with Hub() as running:
        yield running
