"""What a plot of the error against length, dtype and backend needs stands in the report."""

from __future__ import annotations

from typing import Any

from envdoctor.probe import Job, Outcome, cases_of
from envdoctor.probe.errors import errors_by_length


def seen(length: int, error: float, **more: Any) -> dict[str, Any]:
    ratio = dict.fromkeys(("o", "dq", "dk", "dv"), error)
    stamp = {"probe": "attention", "device": "cpu", "dtype": "bf16", "backend": "flash"}
    return {**stamp, "judge": "attention", "params": {"S": length}, "ratio": ratio, **more}


def test_the_worst_case_of_each_length_is_a_point():
    lost = seen(64, 1.0, nonfinite={"dq": 3})
    outcome = Outcome(Job("attention", "cpu", "quick"), (seen(192, 9.5), seen(64, 0.9), lost, seen(192, 1.2)), "ok")
    points = errors_by_length(cases_of([outcome]))
    told = [(point["length"], point["cases"], point["wrong"], point["not_finite"], point["ratio"]) for point in points]
    assert told == [(64, 2, 1, True, 1.0), (192, 2, 1, False, 9.5)]
    assert {(point["name"], point["dtype"], point["backend"]) for point in points} == {("attention", "bf16", "flash")}
    assert errors_by_length(cases_of([outcome._replace(observations=(seen(64, 1.0, params={"S": "6" * 5000}),))])) == []
