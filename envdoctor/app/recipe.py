"""``--recipe FILE``: what the recipe says, as facts of this run, and what is to be said of the recipe itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Absent, Fact, Records
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.recipe.recipe import Recipe, read_recipe
from envdoctor.report.report import Notice

__all__ = ["RecipeFacts", "recipe_facts"]

_MOST_NOTICES = 3


class RecipeFacts(NamedTuple):
    """The facts with those of the recipe; the model as ``--model`` would name it, and who says so; notices."""

    facts: FactSet
    model: str | None
    model_origin: str
    notices: tuple[Notice, ...]


def recipe_facts(facts: FactSet, files: Sequence[str], cwd: str, matrix: Matrix) -> RecipeFacts:
    """The facts of the recipe files. Raises :class:`~envdoctor.observe.errors.ObservationError`."""
    recipe = read_recipe(files, cwd, matrix.rows("recipe-formats", "format"), matrix.registry, facts.value)
    for key in ("recipe.", "recipe_file", "recipe_key"):
        facts.drop(key)
    facts.update(recipe.facts)
    model = _text(recipe.model)
    if model is not None and (revision := _text(recipe.revision)) is not None:
        model = f"{model}@{revision}"
    origin = recipe.model.origin if recipe.model is not None else ""
    return RecipeFacts(facts, model, origin, tuple(_notices(facts, recipe)))


def _text(fact: Fact | None) -> str | None:
    return fact.value if fact is not None and isinstance(fact.value, str) and fact.value else None


def _notices(facts: FactSet, recipe: Recipe) -> list[Notice]:
    keys = facts.value("recipe_key")
    said: dict[str, list[str]] = {"unknown": [], "unusable": []}
    for item in keys if isinstance(keys, Records) else ():
        state, key, other = str(item["state"]), item["key"], item["other"]
        if state not in said:
            continue
        place = item["place"]
        where = place[0] if isinstance(place, tuple) else place
        if state == "unusable":
            said[state].append(f"{where}: {key} has no value that can be used: {other}")
        elif isinstance(other, Absent):
            said[state].append(f"{where}: {key} is not known")
        else:
            said[state].append(f"{where}: {key} is not known; did you mean {other}?")
    notices = [
        Notice("warning", f"{place} names {name}, which {why}: what it sets is not known")
        for name, place, why in recipe.missing
    ]
    for texts in said.values():
        notices += [Notice("warning", text) for text in texts[:_MOST_NOTICES]]
        if len(texts) > _MOST_NOTICES:
            more = (
                f"{len(texts) - _MOST_NOTICES} more like this: `envdoctor facts --format json` lists them in recipe_key"
            )
            notices.append(Notice("warning", more))
    return notices
