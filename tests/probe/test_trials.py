"""Faults in torch, transformers and peft are named by their cause; without a fault, nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from trials import CAUSES, HEALTHY, trial

pytestmark = pytest.mark.torch

#: Run by default: a fault of transformers, of torch's optimizers, and one of evaluation.
FAST = ("scale + 2 % inside transformers", "AdamW without bias correction", "KV cache disagrees with prefill")


def test_a_fault_is_named_by_its_cause_and_by_nothing_else(torch_python: str, tmp_path: Path) -> None:
    only = ("model-code", "optimizer-step", "eval-mode")
    said = {name: found.rules for name, found in trial(torch_python, tmp_path, FAST, only=only)}
    assert said == {name: (CAUSES[name],) for name in FAST}


@pytest.mark.slow
def test_the_whole_suite_names_faults_and_nothing_else(torch_python: str, tmp_path: Path) -> None:
    """Every sixth of the 39; ``benchmarks/probe_faults.py`` plants all, which takes eight minutes of a processor."""
    some = list(CAUSES)[1::6]
    said = {name: found.rules for name, found in trial(torch_python, tmp_path, some)}
    assert said == {**dict.fromkeys(HEALTHY, ()), **{name: (CAUSES[name],) for name in some}}
