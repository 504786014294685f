"""Each fault of the sets that are rows errs where it says and nowhere beside it, and is gone behind a check."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import fifth
import fourth
import pytest
import third
from planted import inside
from strangers import CAUSES as FIRST
from strangers import SECOND

RULES = Path(__file__).resolve().parents[2] / "matrices" / "rules" / "probe"
SETS = {rows.__name__: rows for rows in (third, fourth, fifth)}


@pytest.mark.parametrize("rows", SETS.values(), ids=SETS)
def test_each_has_rules_that_name_its_cause(rows: ModuleType) -> None:
    named = {rule for rules in {**rows.CAUSES, **rows.FLAKY}.values() for rule in rules}
    assert {rule for rule in named if not (RULES / f"{rule}.toml").is_file()} == set()
    assert len(rows.CAUSES) == 20 and len(rows.MACHINE) >= 12 and len(rows.FLAKY) == 5


def test_no_fault_is_planted_twice() -> None:
    names = [name for causes in (FIRST, SECOND, *(rows.CAUSES for rows in SETS.values())) for name in causes]
    assert len(names) == len(set(names))


@pytest.mark.torch
@pytest.mark.parametrize("rows", SETS)
def test_each_errs_where_it_says_alone(torch_python: str, rows: str) -> None:
    assert inside(torch_python, f"{rows}_checks.py") == ""
