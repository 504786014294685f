"""A fault that stands in torch's dispatcher is met by the experiments, and is gone behind them."""

from __future__ import annotations

import pytest
from planted import jobs, seen
from trials import SETS

from envdoctor.experiments import Outcome

CAUSES = SETS["strangers"].machine
FAULT = "grouped keys laid out by turns from groups of 4"
KERNEL = "bf16 attention loses columns of heads that are no multiple of 32"
WANTED = {
    name: (name if name in CAUSES else None, jobs("attention")) for name in (FAULT, KERNEL, "healthy behind them")
}


@pytest.mark.torch
def test_a_kernel_that_errs_is_named_and_is_gone_behind_it(outcomes: dict[str, list[Outcome]]) -> None:
    said = {name: seen(some).roots for name, some in outcomes.items()}
    assert said == {FAULT: set(CAUSES[FAULT]), KERNEL: set(CAUSES[KERNEL]), "healthy behind them": set()}
