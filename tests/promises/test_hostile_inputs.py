"""Whatever a reader is given is read, refused in a sentence, or left unknown; memory is bounded."""

from __future__ import annotations

import sys

import pytest
from hostile_inputs import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits its own memory, which Windows cannot")


@pytest.fixture
def gigabyte():
    """No more than a gigabyte above what this process holds already."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.usefixtures("gigabyte")
@pytest.mark.parametrize(("count", "seed"), [(400, 7), pytest.param(20_000, 1, marks=pytest.mark.slow)])
def test_no_input_fails_envdoctor_itself(count, seed):
    escaped = [f"{seen.kind} {seen.number}: {seen.escaped!r}" for seen in run(count, seed) if seen.escaped is not None]
    assert escaped == []
