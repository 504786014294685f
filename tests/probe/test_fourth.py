"""Each fault of the fourth and the fifth set errs where it says and nowhere beside it, and is gone behind a check."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import fifth
import fourth
import pytest
from planted import inside
from strangers import CAUSES as FIRST
from strangers import SECOND
from third import CAUSES as THIRD

RULES = Path(__file__).resolve().parents[2] / "matrices" / "rules" / "probe"


@pytest.mark.parametrize("planted", [fourth, fifth])
def test_each_has_rules_that_name_its_cause(planted: ModuleType) -> None:
    named = {rule for rules in {**planted.CAUSES, **planted.FLAKY}.values() for rule in rules}
    assert {rule for rule in named if not (RULES / f"{rule}.toml").is_file()} == set()
    assert len(planted.CAUSES) == 20 and len(planted.MACHINE) >= 12 and len(planted.FLAKY) == 5


def test_no_fault_is_planted_twice() -> None:
    names = [name for planted in (FIRST, SECOND, THIRD, fourth.CAUSES, fifth.CAUSES) for name in planted]
    assert len(names) == len(set(names))


@pytest.mark.torch
@pytest.mark.parametrize("checks", ["fourth_checks.py", "fifth_checks.py"])
def test_each_errs_where_it_says_alone(torch_python: str, checks: str) -> None:
    assert inside(torch_python, checks) == ""
