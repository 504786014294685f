"""Healthy cases raise no alarm: the recordings of right releases, and new inputs on a right torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import recordings

from envdoctor.probe.verdict import judge

ROOT = Path(__file__).resolve().parents[2]

#: Recorded on releases whose attention is right.
HEALTHY = ("sp_250", "sp_251", "sp_213", "sdpa_full_213")


def _recorded() -> int:
    seen = 0
    for name in HEALTHY:
        for record, observation in recordings.judged(name):
            verdict = judge(observation)
            assert verdict is not None
            if record["kind"] == "case" and verdict.verdict != "skip":
                assert verdict.verdict == "pass", record
                seen += 1
    for name in ("mp_241", "mp_250", "mp_251", "mp_213", "mp_long"):
        for record, observation in recordings.judged(name):
            # Left padding without position_ids moves RoPE: with weights × 40 in half that is worth a warning.
            if "kind" not in record and (record["side"] == "right" or record["posids"]):
                verdict = judge(observation)
                assert verdict
                assert verdict.verdict == "pass", record
                seen += 1
    return seen


def test_no_recorded_case_of_a_right_release_raises_an_alarm() -> None:
    assert _recorded() > 3500


@pytest.mark.slow
@pytest.mark.torch
def test_new_inputs_raise_no_alarm(torch_python: str) -> None:
    """One seed of those that the benchmark takes."""
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / "probe_calibration.py",
            "--python",
            torch_python,
            "--first=10",
            "--seeds=1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r": (\d+) pass", done.stdout)
    assert passed
    assert int(passed[1]) >= 1_000
