"""Healthy cases raise no alarm: the recordings of right releases, and new inputs on a right torch."""

from __future__ import annotations

from collections import Counter

import pytest
import recordings
from planted import jobs, seen

from envdoctor.probe import Job, Outcome, judge

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


BACKENDS = ("default", "math", "flash")
#: One seed of those that ``benchmarks/probe_calibration.py`` takes, and what no quick suite asks.
WANTED = {
    **{
        dtype: (
            None,
            [
                Job("attention", "cpu", "quick", dtype, backend, options={"grid": "quick", "seed": 10}, seconds=600.0)
                for backend in BACKENDS
            ],
        )
        for dtype in ("bf16", "fp16", "fp32")
    },
    "all-reduce": (None, jobs("all-reduce")),
}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_new_inputs_raise_no_alarm(outcomes: dict[str, list[Outcome]], dtype: str) -> None:
    verdicts = Counter(case.verdict.verdict for case in seen(outcomes[dtype]).cases)
    assert verdicts.keys() <= {"pass", "skip"}
    assert verdicts["pass"] >= 330


@pytest.mark.slow
@pytest.mark.torch
def test_a_sum_over_two_healthy_processes_raises_no_alarm(outcomes: dict[str, list[Outcome]]) -> None:
    """The same with a fault is in test_models.py."""
    found = seen(outcomes["all-reduce"])
    assert {group.verdict for group in found.groups} == {"pass"}
    assert found.findings == ()
