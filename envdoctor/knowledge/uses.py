"""Uses of names beside those of the user's code: of a model's code, and the keywords that a recipe's keys become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from envdoctor.facts.values import ABSENT, Records, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.vocabulary import ENGINES, OWN_MODELS


def of_model(value: Callable[[str], Value]) -> Iterator[Mapping[str, Value]]:
    """The uses of the model's code: optional where transformers has a class for the type; serving engines and trainers
    with models of their own run none of it. Methods that it overrides are left to rules of their own: training
    frameworks replace some."""
    uses = value("model_use")
    if not isinstance(uses, Records) or value("recipe.framework") in ENGINES | OWN_MODELS:
        return
    for item in uses:
        module, kind, lacks = str(item.get("module")), item.get("kind"), item.get("lacks")
        if kind == "override":
            continue
        optional = {"reach": "optional"} if value("model.registered") is True else {}
        yield {**item, **optional}
        if kind in ("module", "name"):
            # Before it loads a file, transformers asks for every package that is imported anywhere in it.
            top = module.partition(".")[0]
            seen = {} if lacks is None else {"lacks": top if lacks == top else ABSENT}
            asked = {name: cell for name, cell in item.items() if name != "lacks"}
            yield {**asked, **seen, "kind": "module", "module": top, "name": ABSENT, "reach": "start", **optional}


def of_recipe(value: Callable[[str], Value], matrix: Matrix) -> Records | None:
    """The keywords that become of a recipe's keys (``recipe_key``); of ``recipe.arguments``, where only their names are
    known, by the table ``recipe-calls``. None when neither is known. ``others`` are calls that take what this one does
    not: a parser hands each key to the class that has it."""
    rows = matrix.rows("recipe-calls")
    keys, names, framework, stage = map(value, ("recipe_key", "recipe.arguments", "recipe.framework", "recipe.stage"))
    passed: list[tuple[str, Value, Value]] = []
    if isinstance(keys, Records):
        passed = [(str(item["call"]), item["key"], item.get("place", ())) for item in keys if _is_passed(item)]
    elif isinstance(names, tuple):
        calls = [row["call"] for row in rows if row["framework"] == framework and row.get("stage", stage) == stage]
        passed = [(call, name, ()) for call in calls for name in names]
    else:
        return None
    others = {row["call"]: tuple(row.get("others", ())) for row in rows}
    items: list[Mapping[str, Value]] = []
    for call, keyword, place in passed:
        module, _, name = call.rpartition(".")
        use = {"kind": "keyword", "module": module, "name": name, "keyword": keyword, "place": place}
        items.append({**use, "others": others.get(call, ())})
    return Records(tuple(items), keys.incomplete if isinstance(keys, Records) else None)


def _is_passed(item: Mapping[str, Value]) -> bool:
    return isinstance(item.get("call"), str) and isinstance(item.get("key"), str)
