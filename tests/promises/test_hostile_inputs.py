"""Whatever a reader is given is read, refused in a sentence, or left unknown; memory is bounded."""

import re
import sys
from pathlib import Path

import pytest
from hostile_inputs import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits its own memory, which Windows cannot")


@pytest.fixture
def gigabyte():
    """No more than a gigabyte above what this process holds already."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    # What the limit counts is the data that is mapped, be it in use or not; other tests of this process mapped some.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    held = 1024 * int(re.findall(r"VmData:\s+(\d+)", status)[0])
    resource.setrlimit(resource.RLIMIT_DATA, (held + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.usefixtures("gigabyte")
#: Of 8,000 inputs that ``benchmarks/hostile.py`` makes, those after number 4,000 reached 29 of 6,382 lines first.
@pytest.mark.parametrize(("count", "seed"), [(400, 7), pytest.param(4_000, 1, marks=pytest.mark.slow)])
def test_no_input_fails_envdoctor_itself(count, seed):
    escaped = [f"{seen.kind} {seen.number}: {seen.escaped!r}" for seen in run(count, seed) if seen.escaped is not None]
    assert escaped == []
