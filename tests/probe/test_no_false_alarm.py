"""New inputs on a right torch raise no alarm; recordings of right releases are in test_replay.py."""

from collections import Counter
from dataclasses import replace

import pytest
from planted import jobs, seen

from envdoctor.experiments import Outcome

#: On a CPU torch takes one of these by itself.
BACKENDS = ("math", "flash")
JOB = jobs("attention")[0]
#: One seed of those that ``benchmarks/probe_calibration.py`` takes, and what no quick suite asks.
WANTED = {
    dtype: (
        None,
        [
            replace(JOB, dtype=dtype, backend=backend, options={"grid": "quick"}, seed=10, seconds=600.0)
            for backend in BACKENDS
        ],
    )
    for dtype in ("bf16", "fp16", "fp32")
}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_new_inputs_raise_no_alarm(outcomes: dict[str, list[Outcome]], dtype: str) -> None:
    verdicts = Counter(case.verdict.verdict for case in seen(outcomes[dtype]).cases)
    assert verdicts.keys() <= {"pass", "skip"}
    assert verdicts["pass"] >= 330
