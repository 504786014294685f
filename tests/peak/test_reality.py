"""The trace against reality: peaks of real steps on a CPU, counted by torch's profiler, and what was predicted."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from observing import shipped
from traced_jobs import MadeUp

from envdoctor.peak import ClosedForm, Stage, Trace, staged
from envdoctor.system import PAYLOAD

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TOKENS = 192
ALLOWED = 0.02
STAGES = shipped().rows("memory-frameworks", "stage")


@pytest.fixture(scope="module")
def steps(torch_python: str) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("real_steps.py")
    run = subprocess.run(
        [torch_python, "-W", "ignore", script, str(PAYLOAD)], capture_output=True, text=True, check=False, timeout=1800
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def test_within_two_percent(steps: list[dict[str, Any]]) -> None:
    assert len(steps) >= 12
    errors = {}
    for step in steps:
        model, *points = step["records"]
        own = step["job"].get("own", "sft")
        row = next(row for row in STAGES if row["name"] == own and "framework" not in row)
        stage = Stage(drops=tuple(row.get("drops", ())))
        (trace,) = staged(MadeUp(Trace(model, tuple(points))), stage)([{**step["job"], "config": step["config"]}])
        assert isinstance(trace, Trace)
        predicted = ClosedForm(trace, 1).at(1, TOKENS).size
        errors[step["case"]] = predicted / step["measured"] - 1
    assert {case: error for case, error in errors.items() if abs(error) > ALLOWED} == {}
