"""Each fault of the fourth set errs where it says and nowhere beside it, and is gone behind a check."""

from __future__ import annotations

from pathlib import Path

import pytest
from fourth import CAUSES, FLAKY, MACHINE
from planted import inside
from strangers import CAUSES as FIRST
from strangers import SECOND
from third import CAUSES as THIRD

RULES = Path(__file__).resolve().parents[2] / "matrices" / "rules" / "probe"


def test_each_has_rules_that_name_its_cause() -> None:
    named = {rule for rules in {**CAUSES, **FLAKY}.values() for rule in rules}
    assert {rule for rule in named if not (RULES / f"{rule}.toml").is_file()} == set()
    assert len(CAUSES) == 20 and len(MACHINE) >= 12 and len(FLAKY) == 5
    assert not CAUSES.keys() & (FIRST.keys() | SECOND.keys() | THIRD.keys())


@pytest.mark.torch
def test_each_errs_where_it_says_alone(torch_python: str) -> None:
    assert inside(torch_python, "fourth_checks.py") == ""
