"""One run, all dialects: what a rule says of facts it says of the run that is written, whoever wrote it."""

from __future__ import annotations

import sys
from pathlib import Path
from zlib import crc32

import pytest
from dialects import DIALECTS
from observing import shipped
from pairs import MISSED, all_pairs, asks_recipe, summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTED = tomllib.loads(MISSED.read_text(encoding="utf-8"))
#: A script is read in a child, which takes a tenth of a second: a rule is tried in one of so many dialects of Python.
TURNS = 4


def rules_for(dialect: str, turns: int) -> list[str]:
    """The rules that ask something of the recipe; of a dialect of Python those whose turn it is."""
    rules = [rule.id for rule in shipped().rules if asks_recipe(shipped(), rule.id)]
    turn = list(DIALECTS).index(dialect)
    return [one for one in rules if not DIALECTS[dialect].script or (crc32(one.encode()) + turn) % turns == 0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_rules_find_in_a_dialect_what_they_find_in_facts(dialect: str, tmp_path: Path) -> None:
    outcomes = all_pairs(shipped(), rules_for(dialect, TURNS), [dialect], tmp_path)
    print(summary(outcomes, shipped()))
    missed = {rule: outcome for (rule, _), outcome in outcomes.items() if outcome.state == "missed"}
    new = {rule: outcome for rule, outcome in missed.items() if rule not in LISTED.get(dialect, ())}
    assert not new, f"{dialect}: missed, and not listed in {MISSED.name}: {new}"


@pytest.mark.slow
def test_nearly_all_that_can_be_said_is_found(tmp_path: Path) -> None:
    outcomes = all_pairs(shipped(), [], DIALECTS, tmp_path)
    print(summary(outcomes, shipped()))
    missed = [pair for pair, outcome in outcomes.items() if outcome.state == "missed"]
    found = [pair for pair, outcome in outcomes.items() if outcome.state == "found"]
    assert len(missed) <= 0.02 * len(found + missed), missed
