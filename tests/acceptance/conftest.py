"""The loopback Hub and header-true models, for acceptance tests that speak to a Hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
for folder in ("hub", "hub_formats"):
    if str(TESTS / folder) not in sys.path:
        sys.path.insert(0, str(TESTS / folder))

from loopback import Hub  # noqa: E402


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty loopback Hub, running."""
    with Hub() as running:
        yield running
