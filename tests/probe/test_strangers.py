"""A fault that stands in torch's dispatcher is met by the experiments, and is gone behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import jobs, seen
from strangers import CAUSES, FLAKY, MACHINE, SECOND, SECOND_MACHINE

from envdoctor.experiments import Outcome

RULES = Path(__file__).resolve().parents[2] / "matrices" / "rules" / "probe"
FAULT = "grouped keys laid out by turns from groups of 4"
KERNEL = "bf16 attention loses columns of heads that are no multiple of 32"
WANTED = {
    name: (name if name in CAUSES else None, jobs("attention")) for name in (FAULT, KERNEL, "healthy behind them")
}


def test_each_has_a_rule_that_names_its_cause() -> None:
    assert {
        cause for cause in {**CAUSES, **FLAKY, **SECOND}.values() if not (RULES / f"{cause}.toml").is_file()
    } == set()
    assert len(CAUSES) == 40 and len(MACHINE) >= 25 and len(FLAKY) == 10
    assert len(SECOND) == 20 and len(SECOND_MACHINE) >= 13 and not SECOND.keys() & (CAUSES.keys() | FLAKY.keys())


@pytest.mark.torch
def test_a_kernel_that_errs_is_named_and_is_gone_behind_it(outcomes: dict[str, list[Outcome]]) -> None:
    said = {name: seen(some).roots for name, some in outcomes.items()}
    assert said == {FAULT: {CAUSES[FAULT]}, KERNEL: {CAUSES[KERNEL]}, "healthy behind them": set()}
