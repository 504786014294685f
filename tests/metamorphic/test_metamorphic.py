"""One run, all dialects: what a rule says of facts it says of the run that is written, whoever wrote it."""

import sys
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from dialects import DIALECTS
from observing import shipped
from pairs import MISSED, Outcome, asks_recipe, judged, said_by, summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTED = tomllib.loads(MISSED.read_text(encoding="utf-8"))


@cache
def values_of_rules() -> dict[str, set[tuple[str, str]]]:
    matrix = shipped()
    return {rule.id: said_by(matrix, rule.id) for rule in matrix.rules if asks_recipe(matrix, rule.id)}


def tried(dialect: str, folder: Path) -> dict[tuple[str, str], Outcome]:
    """The outcomes of so many rules that each value of each fact that can be said in the dialect is found there: first
    rules with many, then others in each dialect. ``pairs.py`` tries all."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    values, found = values_of_rules(), set()
    for rule in sorted(values, key=lambda rule: (-len(values[rule]), crc32(f"{dialect} {rule}".encode()))):
        if not values[rule] <= found:
            outcomes[rule, dialect] = outcome = judged(shipped(), rule, dialect, folder)
            found |= values[rule] if outcome.state == "found" else set()
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
