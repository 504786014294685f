"""The stand-alone script of an attention case: short, runs with torch alone, on exactly the inputs of the probe."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envdoctor.probe import LINES, PAYLOAD, Case, Verdict, script_of

_GRID = PAYLOAD / "probing" / "attention_grid.py"
_SPEC = importlib.util.spec_from_file_location("attention_grid", _GRID)
assert _SPEC
assert _SPEC.loader
grid = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(grid)


def _script(case: dict[str, Any], dtype: str, backend: str = "default") -> str:
    params = {**case, "seed": 1000 + case["number"]}
    observation = {"judge": "attention", "params": params, "dtype": dtype, "device": "cpu", "backend": backend}
    lines = script_of(Case(observation, Verdict("fail", "inaccurate")), {})
    assert lines is not None
    return "\n".join(lines)


@pytest.mark.parametrize("suite", ["quick", "full"])
def test_every_case_has_a_script_of_at_most_thirty_lines(suite: str) -> None:
    for case in grid.cases(suite):
        script = _script(case, "bf16", "flash")
        assert len(script.splitlines()) <= LINES
        assert max(map(len, script.splitlines())) <= 130, script
        compile(script, "script", "exec")


def _sample() -> list[dict[str, Any]]:
    """Every seventh case, and the first with each length, head dimension, mask, layout, stress, …"""
    chosen, had = [], set()
    for case in grid.cases("quick"):
        new = {(key, value) for key, value in case.items() if key != "number"} - had
        if new or case["number"] % 7 == 0:
            chosen.append(case)
            had |= new
    return chosen


@pytest.mark.torch
def test_scripts_run_on_the_inputs_of_the_probe_and_print_finite_errors(torch_python: str) -> None:
    asked = [
        {"grid": "quick", "number": case["number"], "dtype": dtype, "script": _script(case, dtype)}
        for case in _sample()
        for dtype in ("bf16", *(["fp32"] if case["number"] % 21 == 0 else []))
    ]
    done = subprocess.run(
        [torch_python, "-B", Path(__file__).parent / "inside" / "same_inputs.py", PAYLOAD],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked)
    for answer, one in zip(answers, asked, strict=True):
        assert answer["differs"] == [], (answer, one["script"])
        assert answer["printed"][0] == "not finite in out, dq, dk, dv: [0, 0, 0, 0]"
        assert answer["printed"][1].startswith("relative errors: [")
