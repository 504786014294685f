"""One run, all dialects: what a rule says of facts it says of the run that is written, whoever wrote it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from dialects import DIALECTS
from observing import shipped
from pairs import MISSED, Outcome, asks_recipe, chosen, judged, said_by, summary

from envdoctor.matrix import load_toml

LISTED = load_toml(MISSED)


@cache
def _cases() -> list[tuple[str, Mapping[str, Any], set[tuple[str, str]]]]:
    """Each rule about recipes with each of its cases, and the values that the case says."""
    matrix = shipped()
    rules = [rule.id for rule in matrix.rules if asks_recipe(matrix, rule.id)]
    return [(rule, case, said_by(case)) for rule in rules for case in chosen(matrix, rule)]


def tried(dialect: str, folder: Path) -> dict[tuple[str, str], Outcome]:
    """The outcomes of so many cases that each value of each fact that can be said in the dialect is found there: always
    one with most values that were not, of these another in each dialect. ``pairs.py`` tries all."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    found: set[tuple[str, str]] = set()
    left = sorted(_cases(), key=lambda one: crc32(f"{dialect} {one[:2]}".encode()))
    while left:
        rule, case, values = one = max(left, key=lambda one: len(one[2] - found))
        if values <= found:
            break
        left.remove(one)
        outcome = judged(shipped(), rule, dialect, folder, [case])
        found |= values if outcome.state == "found" else set()
        if outcome.state == "missed" or (rule, dialect) not in outcomes:
            outcomes[rule, dialect] = outcome
    return outcomes


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_rules_find_in_a_dialect_what_they_find_in_facts(dialect: str, tmp_path: Path) -> None:
    outcomes = tried(dialect, tmp_path)
    print(summary(outcomes, shipped()))
    missed = {rule: outcome for (rule, _), outcome in outcomes.items() if outcome.state == "missed"}
    new = {rule: outcome for rule, outcome in missed.items() if rule not in LISTED.get(dialect, ())}
    assert not new, f"{dialect}: missed, and not listed in {MISSED.name}: {new}"


def test_few_pairs_are_missed() -> None:
    """2 % of the 2,192 that can be said; ``pairs.py`` tries them all and writes the list."""
    assert sum(map(len, LISTED.values())) <= 43
