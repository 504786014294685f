"""Each fault of the sets that are rows errs where it says and nowhere beside it, and is gone behind a check."""

from pathlib import Path

import pytest
from planted import inside
from trials import SETS

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "matrices" / "rules" / "probe"
CHECKS = ROOT / "benchmarks" / "planted" / "third_checks.py"
#: How many faults a set has, at least how many of them of a machine, and how many that come and go.
SIZES = {
    **{"trials": (39, 0, 0), "strangers": (40, 25, 10), "second": (20, 13, 0)},
    **{"third": (20, 12, 5), "fourth": (20, 12, 5), "fifth": (20, 12, 5)},
}


@pytest.mark.parametrize("name", SIZES)
def test_each_has_rules_that_name_its_cause(name: str) -> None:
    causes, (steady, machine, flaky) = SETS[name], SIZES[name]
    named = {rule for rules in {**causes.steady, **causes.flaky}.values() for rule in rules}
    assert {rule for rule in named if not (RULES / f"{rule}.toml").is_file()} == set()
    assert len(causes.steady) == steady and len(causes.machine) >= machine and len(causes.flaky) == flaky


def test_no_fault_is_planted_twice() -> None:
    names = [name for causes in SETS.values() for name in (*causes.machine, *causes.released, *causes.flaky)]
    assert len(names) == len(set(names)) and SETS.keys() == SIZES.keys()


@pytest.mark.slow  # of torch and its kin, nothing of envdoctor
@pytest.mark.torch
def test_each_errs_where_it_says_alone(torch_python: str) -> None:
    assert inside(torch_python, str(CHECKS), "fourth_checks", "fifth_checks") == ""
