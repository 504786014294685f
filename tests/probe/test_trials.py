"""Faults in torch, transformers and peft are named by their cause; without a fault, nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import jobs, seen
from trials import CAUSES, HEALTHY, trial

from envdoctor.experiments import Outcome

pytestmark = pytest.mark.torch

#: Run by default: faults of transformers, of torch's optimizers, of evaluation, of autocast.
FAST = (
    *("scale + 2 % inside transformers", "AdamW without bias correction", "KV cache disagrees with prefill"),
    "loss in bf16 under autocast",
)
#: Only the full suite has a model with windows.
WINDOW = "sliding window one key too long"


WANTED = {
    **{
        name: (name, [job for probe in ("model-code", "optimizer-step", "eval-mode") for job in jobs(probe)])
        for name in FAST
    },
    WINDOW: (WINDOW, jobs("model-code", "full")),
}


def test_a_fault_is_named_by_its_cause_and_by_nothing_else(outcomes: dict[str, list[Outcome]]) -> None:
    assert {name: seen(outcomes[name]).roots for name in WANTED} == {name: {CAUSES[name]} for name in WANTED}


@pytest.mark.slow
def test_the_whole_suite_names_faults_and_nothing_else(torch_python: str, tmp_path: Path) -> None:
    """Every eighth of the 39; ``benchmarks/probe_faults.py`` plants all, which takes eight minutes of a processor."""
    some = list(CAUSES)[1::8]
    said = {name: found.rules for name, found in trial(torch_python, tmp_path, some)}
    assert said == {**dict.fromkeys(HEALTHY, ()), **{name: (CAUSES[name],) for name in some}}
