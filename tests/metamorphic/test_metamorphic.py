"""One run, all dialects: what a rule says of facts it says of the run that is written, whoever wrote it."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from dialects import DIALECTS
from observing import shipped
from pairs import MISSED, all_pairs, asks_recipe, said_by, summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTED = tomllib.loads(MISSED.read_text(encoding="utf-8"))


@cache
def values_of_rules() -> dict[str, set[tuple[str, str]]]:
    matrix = shipped()
    return {rule.id: said_by(matrix, rule.id) for rule in matrix.rules if asks_recipe(matrix, rule.id)}


def rules_for(dialect: str) -> list[str]:
    """The rules that ask something of the recipe. A script is read in a child, which takes a tenth of a second: of a
    dialect of Python so many that each value of each fact is said, others in each dialect. ``pairs.py`` tries all."""
    values = values_of_rules()
    if not DIALECTS[dialect].script:
        return list(values)
    chosen, said = [], set()
    for rule in sorted(values, key=lambda rule: (-len(values[rule]), crc32(f"{dialect} {rule}".encode()))):
        if not values[rule] <= said:
            chosen.append(rule)
            said |= values[rule]
    return chosen


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_rules_find_in_a_dialect_what_they_find_in_facts(dialect: str, tmp_path: Path) -> None:
    outcomes = all_pairs(shipped(), rules_for(dialect), [dialect], tmp_path)
    print(summary(outcomes, shipped()))
    missed = {rule: outcome for (rule, _), outcome in outcomes.items() if outcome.state == "missed"}
    new = {rule: outcome for rule, outcome in missed.items() if rule not in LISTED.get(dialect, ())}
    assert not new, f"{dialect}: missed, and not listed in {MISSED.name}: {new}"


def test_few_pairs_are_missed() -> None:
    """2 % of the 2,192 that can be said; ``pairs.py`` tries them all and writes the list."""
    assert sum(map(len, LISTED.values())) <= 43
