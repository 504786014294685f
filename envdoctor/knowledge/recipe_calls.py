"""What a framework calls with the keys of a recipe: uses of keywords, as a script has them (fact ``use``)."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.facts.values import Records, Value
from envdoctor.knowledge.matrix import Matrix

__all__ = ["passed_on"]


def passed_on(
    matrix: Matrix, keys: Value, names: Value, framework: Value, stage: Value
) -> tuple[Mapping[str, Value], ...] | None:
    """The keywords that become of a recipe's keys (``recipe_key``); of ``recipe.arguments``, where only their names are
    known, by the table ``recipe-calls``. None when neither is known. ``others`` are calls that take what this one does
    not: a parser hands each key to the class that has it."""
    rows = matrix.rows("recipe-calls")
    passed: list[tuple[str, Value, Value]]
    if isinstance(keys, Records):
        passed = [(str(item["call"]), item["key"], item.get("place", ())) for item in keys if _is_passed(item)]
    elif isinstance(names, tuple):
        calls = [row["call"] for row in rows if row["framework"] == framework and row.get("stage", stage) == stage]
        passed = [(call, name, ()) for call in calls for name in names]
    else:
        return None
    others = {row["call"]: tuple(row.get("others", ())) for row in rows}
    uses: list[Mapping[str, Value]] = []
    for call, keyword, place in passed:
        module, _, name = call.rpartition(".")
        use = {"kind": "keyword", "module": module, "name": name, "keyword": keyword, "place": place}
        uses.append({**use, "others": others.get(call, ())})
    return tuple(uses)


def _is_passed(item: Mapping[str, Value]) -> bool:
    return isinstance(item.get("call"), str) and isinstance(item.get("key"), str)
