"""Pairs of a rule and a dialect: is the rule's matching case, written in the dialect, found as it is with ``--set``?

    PYTHONPATH=tests/metamorphic python tests/metamorphic/pairs.py [--write] [RULE ...]

prints what was missed, and how many pairs could be said and were found; ``--write`` lists what was missed.
"""

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dialects import DIALECTS, other_kind, written
from frameworks import openrlhf_attention
from saying import CannotSay

from envdoctor.app import Sources, UsageProblem, collect_facts
from envdoctor.judge import Policy, facts_of, judge
from envdoctor.matrix import Matrix, load_source

MATRICES = Path(__file__).resolve().parents[2] / "matrices"
MISSED = Path(__file__).with_name("missed.toml")
_HEAD = """# Rules that a dialect says and nobody reads there: the test fails for a pair that is not listed.
# Written by `PYTHONPATH=tests/metamorphic python tests/metamorphic/pairs.py --write`.

"""


class Outcome(NamedTuple):
    """What became of a pair: ``restricted`` (the rule does not hold there), ``other kind`` (the dialect is not for such
    runs), ``unsayable``, ``found`` or ``missed``, and why; ``files`` are what was written."""

    state: str
    why: str = ""
    files: Mapping[str, str] = {}


def asks_recipe(matrix: Matrix, rule_id: str) -> bool:
    """Return whether the rule has a condition on the recipe."""
    rule = matrix.find(rule_id)
    assert rule is not None
    keys = [condition.key for clause in rule.affects for condition in clause]
    return any(key.startswith(("recipe.", "recipe_key")) for key in keys)


def said_by(test: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the facts of the recipe, each with its value, that a case says."""
    return {(key, str(value)) for key, value in test["facts"].items() if key.startswith("recipe")}


def on_framework(matrix: Matrix, rule_id: str) -> bool:
    """Return whether each clause of the rule names its frameworks."""
    rule = matrix.find(rule_id)
    assert rule is not None
    return all(any(condition.key == "recipe.framework" for condition in clause) for clause in rule.affects)


def judged(
    matrix: Matrix, rule_id: str, dialect: str, folder: Path, tests: Iterable[Mapping[str, Any]] | None = None
) -> Outcome:
    """Return the outcome of a pair: the worst of these cases of the rule (all that are chosen) that can be said."""
    alone = matrix.only(lambda other: other.id == rule_id)
    tests = chosen(matrix, rule_id) if tests is None else tests
    outcomes = [_judged(test, dialect, folder, matrix, alone) for test in tests]
    for state in ("missed", "found", "unsayable", "other kind"):
        for outcome in outcomes:
            if outcome.state == state:
                return outcome
    return Outcome("restricted")


def _judged(test: Mapping[str, Any], dialect: str, folder: Path, matrix: Matrix, alone: Matrix) -> Outcome:
    meant = _meant(test["facts"], dialect, matrix)
    if not _found(facts_of({**test, "facts": meant}, matrix), alone):
        return Outcome("restricted")
    if other_kind(dialect, meant):
        return Outcome("other kind")
    try:
        files = written(dialect, meant)
    except CannotSay as reason:
        return Outcome("unsayable", str(reason))
    try:
        facts = _seen(files, {**test, "facts": meant}, folder, matrix)
    except UsageProblem as problem:
        return Outcome("missed", f"refused: {str(problem).partition(': ')[2][:60]}", files)
    return Outcome("found", "", files) if _found(facts, alone) else Outcome("missed", _difference(meant, facts), files)


def chosen(matrix: Matrix, rule_id: str) -> list[Mapping[str, Any]]:
    """Return the matching cases of a rule that say something of the recipe, one for each thing that is said."""
    rule = matrix.find(rule_id)
    assert rule is not None
    cases: dict[str, Mapping[str, Any]] = {}
    for test in matrix.texts(rule)["test"]:
        said = {key: test["facts"][key] for key in sorted(test["facts"]) if key.startswith("recipe")}
        said.pop("recipe.framework", None)
        if test["expect"] == "match" and any(key.startswith("recipe") for key in test["facts"]):
            cases.setdefault(json.dumps(said), test)
    return list(cases.values())


def _meant(facts: Mapping[str, Any], dialect: str, matrix: Matrix) -> dict[str, Any]:
    """The facts of a case as they are where the run is written in the dialect."""
    one = DIALECTS[dialect]
    meant = {**one.implied, **facts}
    if one.framework == "openrlhf" and "recipe.attn" not in facts:
        meant["recipe.attn"] = openrlhf_attention(facts)
    meant.pop("recipe.framework", None)
    spec = matrix.registry.find("recipe.framework")
    assert spec is not None
    if one.framework is not None and one.framework in spec.values:
        meant["recipe.framework"] = one.framework
    return meant


def _found(facts: Any, alone: Matrix) -> bool:
    return bool(judge(facts, alone, Policy()).findings)


def _seen(files: Mapping[str, str], test: Mapping[str, Any], folder: Path, matrix: Matrix) -> Any:
    """Return the facts of a case whose recipe is read from files, all others given."""
    given = {key: value for key, value in test["facts"].items() if not key.startswith("recipe")}
    document = {"schema": "envdoctor.facts/1", "facts": given, "complete": test.get("complete", [])}
    (folder / "facts.json").write_text(json.dumps(document))
    for name, text in files.items():
        (folder / name).write_text(text)
    model = [
        f"{key}={_plain(value)}"
        for key, value in given.items()
        if key.startswith("model.") and key != "model.repo" and given.get("model.repo", "absent") != "absent"
    ]
    sources = Sources(
        facts=str(folder / "facts.json"),
        recipe=[str(folder / next(iter(files)))],
        assignments=model,
        cwd=folder,
        gpu=False,
        cache=False,
        environ={},
    )
    return collect_facts(sources, matrix).facts


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _difference(meant: Mapping[str, Any], facts: Any) -> str:
    """What the recipe's facts should be and are."""
    said = []
    for key, value in meant.items():
        if key.startswith("recipe."):
            seen = facts.value(key)
            wanted = tuple(value) if isinstance(value, list) else value
            if str(seen) != str(wanted) and not (
                isinstance(wanted, str) and wanted == "absent" and str(seen) == "absent"
            ):
                said.append(f"{key[7:]} {value!r} read as {seen!r}")
    return "; ".join(said) or "read as it is meant"


def summary(outcomes: Mapping[tuple[str, str], Outcome], matrix: Matrix) -> str:
    """Return the counts of pairs and the reasons of what could not be said."""
    count = Counter(outcome.state for outcome in outcomes.values())
    free = [outcome for (rule, _), outcome in outcomes.items() if not on_framework(matrix, rule)]
    asked = [outcome for outcome in free if outcome.state not in ("restricted", "other kind")]
    other = sum(outcome.state == "other kind" for outcome in free)
    mute = [outcome for outcome in asked if outcome.state == "unsayable"]
    sayable = count["found"] + count["missed"]

    def share(part: int, whole: int) -> str:
        return f"{100 * part / max(whole, 1):.1f} %"

    lines = [
        f"{len(outcomes)} pairs of a rule and a dialect; {count['restricted']} of them no case of the rule",
        f"{sayable} sayable: {count['found']} found ({share(count['found'], sayable)}), {count['missed']} missed",
        f"{count['unsayable']} unsayable; of rules without a condition on the framework {len(mute)} of {len(asked)} "
        f"({share(len(mute), len(asked))})",
        f"{count['other kind']} where an engine would train or a trainer serve, and with them "
        f"{share(len(mute) + other, len(asked) + other)} of these",
        "",
    ]
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, dialect), outcome in outcomes.items():
        by[dialect][outcome.state] += 1
    lines += [
        f"{dialect:30} "
        + " ".join(
            f"{state} {states[state]:3}" for state in ("found", "missed", "unsayable", "other kind", "restricted")
        )
        for dialect, states in by.items()
    ]
    return "\n".join(lines)


def all_pairs(
    matrix: Matrix, rules: list[str], dialects: Iterable[str], folder: Path
) -> dict[tuple[str, str], Outcome]:
    """Return the outcome of each pair of these rules (none: all that ask something of the recipe) and dialects."""
    rules = rules or [rule.id for rule in matrix.rules if asks_recipe(matrix, rule.id)]
    return {(rule, dialect): judged(matrix, rule, dialect, folder) for rule in rules for dialect in dialects}


def main(words: list[str]) -> None:
    """Print the outcomes; write missed.toml with ``--write``."""
    matrix = load_source(MATRICES, source="checkout")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = all_pairs(matrix, [word for word in words if word != "--write"], DIALECTS, Path(folder))
    missed = {pair: outcome.why for pair, outcome in outcomes.items() if outcome.state == "missed"}
    print("\n".join(f"missed {rule} in {dialect}: {why}" for (rule, dialect), why in missed.items()))
    print(summary(outcomes, matrix))
    reasons = Counter(outcome.why for outcome in outcomes.values() if outcome.state == "unsayable")
    print("\n".join(f"{count:5} {why}" for why, count in reasons.most_common()))
    if "--write" in words:
        MISSED.write_text(_HEAD + "".join(_listed(dialect, missed) for dialect in DIALECTS), encoding="utf-8")


def _listed(dialect: str, missed: Iterable[tuple[str, str]]) -> str:
    rules = sorted(rule for rule, other in missed if other == dialect)
    lines = "".join(f'  "{rule}",\n' for rule in rules)
    return f'"{dialect}" = [\n{lines}]\n' if rules else ""


if __name__ == "__main__":
    main(sys.argv[1:])
