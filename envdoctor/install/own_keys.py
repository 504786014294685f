"""Settings of a fix in the words of the user's own recipe."""

from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.view import View
from envdoctor.knowledge.matrix import Matrix


def own_keys(settings: Mapping[str, str], facts: FactSet, matrix: Matrix) -> dict[str, str]:
    """Spell each setting (``recipe.attn``: ``flash_attn: sdpa``) for which the recipe's format has a key.

    Of several keys it is one that the recipe uses already, or else the first."""
    records = facts.items("recipe_key") if settings else ()
    used = {str(item.get("key")): (View.of(item).words("place") or ("",))[0] for item in records}
    if not used:
        return {}
    forms = {row["name"]: row for row in matrix.rows("recipe-formats", "format")}
    keys = list(_keys(facts, forms))
    written: dict[str, str] = {}
    for fact, value in settings.items():
        fitting = [
            (key, word)
            for key, meaning in keys
            if (word := _written_for(meaning, fact.partition(".")[2], value)) is not None
        ]
        for key, word in sorted(fitting, key=lambda one: one[0] not in used)[:1]:
            written[fact] = _line_for(key, word, used.get(key, next(iter(used.values()))))
    return written


def _keys(facts: FactSet, forms: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The keys of the framework's formats, those that stand beside their own among them."""
    for row in forms.values():
        if row.get("framework") == facts.value("recipe.framework"):
            yield from row.get("keys", {}).items()
            yield from forms.get(row.get("includes", {}).get("", ""), {}).get("keys", {}).items()


def _written_for(meaning: Any, field: str, value: str) -> str | None:
    """What is written behind a key so that the field has the value; None where the key says nothing of it."""
    for one in meaning if isinstance(meaning, list) else [meaning]:
        said_of, words = (one["field"], one.get("words", {})) if isinstance(one, dict) else (one, {})
        if said_of == field:
            named = next((word for word, said in words.items() if said == value and word and "*" not in word), None)
            as_it_is = value != "absent" and not words.keys() & {"true", "false", "*"}
            return named or (value if as_it_is else None)
    return None


def _line_for(key: str, word: str, place: str) -> str:
    file: str = getattr(place, "path", place)
    if file.endswith((".yaml", ".yml")):
        return f"{key}: {word}"
    if file.endswith((".py", ".ipynb")):
        return f"{key}={word.capitalize()}" if word in ("true", "false") else f"{key}={word}"
    return f'"{key}": {word}' if file.endswith((".json", ".jsonc")) else f"--{key} {word}"
