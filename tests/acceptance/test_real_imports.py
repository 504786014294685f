"""What really failed when it was imported, in environments that nobody chose: check names it, and nothing that works.

What the imports said is recorded (`fixtures/imports`); the environments are made again from the released wheels.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "fixtures" / "imports" / "seed-2"
NUMBERS = sorted(int(path.name.partition("-")[0]) for path in RECORDED.glob("*-truth.json"))
HERE = (sys.platform, platform.machine(), sys.version_info[:2])


@pytest.mark.slow
@pytest.mark.skipif(
    "ENVDOCTOR_TEST_IMPORTS" not in os.environ,
    reason="takes gigabytes of wheels and many minutes: name a folder for them in ENVDOCTOR_TEST_IMPORTS",
)
@pytest.mark.skipif(HERE != ("linux", "x86_64", (3, 11)), reason="the stacks are wheels for Python 3.11 on x86-64")
def test_failing_imports_of_25_random_environments_are_named(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from import_cases import Workshop
    from imports import Judged, passes, run, table

    kept = os.environ.get("ENVDOCTOR_TEST_IMPORTS")
    home = Path(kept) if kept else tmp_path_factory.mktemp("imports")
    shutil.copytree(RECORDED, home / "seed-2", dirs_exist_ok=True)
    workshop = Workshop(home, find_uv_bin())
    cases = [workshop.draw(2, number) for number in NUMBERS]
    try:
        for case in cases:
            workshop.stack(case.stack)
            for name, version in case.pins.items():
                workshop.unpacked(name, version)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the wheels could not be had: {error}")

    def judged(numbers: Sequence[int]) -> list[Judged]:
        return list(run(workshop, 2, numbers, True, False))

    with ThreadPoolExecutor(2) as pool:
        found = [one for half in pool.map(judged, (NUMBERS[::2], NUMBERS[1::2])) for one in half]
    assert len(found) >= 25
    assert sum(one.verdict.failed for one in found if one.verdict) >= 99  # as many as were recorded
    assert passes([one.verdict for one in found if one.verdict], 95), table(found)
