"""What really failed when it was imported, in environments that nobody chose: check names it, and nothing that works.

What the imports said is recorded (`fixtures/imports`); of the environments the source is fetched again from the
released wheels. That is 146 MB, and took 138 s of processor time on a busy machine: more than every run of the tests
can spend on one, so it runs where it is asked for. `benchmarks/imports.py --seed 2 --from 117 --count 25` does the same
with whole wheels and real imports.
"""

import os
import platform
import shutil
import sys
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
    reason="two minutes of processor time, and 146 MB of wheels: ENVDOCTOR_TEST_IMPORTS=1 asks for it",
)
@pytest.mark.skipif(HERE != ("linux", "x86_64", (3, 11)), reason="the stacks are wheels for Python 3.11 on x86-64")
def test_failing_imports_of_25_random_environments_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from import_sources import Sources, Unreachable
    from imports import passes, run, table

    shutil.copytree(RECORDED, tmp_path / "seed-2")
    workshop = Sources(tmp_path, find_uv_bin())
    try:
        workshop.fetch([workshop.draw(2, number) for number in NUMBERS])
    except Unreachable as error:
        pytest.skip(f"the wheels could not be had: {error}")
    found = list(run(workshop, 2, NUMBERS, True, False))
    assert len(found) >= 25
    assert sum(one.verdict.failed for one in found if one.verdict) >= 99  # as many as were recorded
    assert passes([one.verdict for one in found if one.verdict], 95), table(found)
