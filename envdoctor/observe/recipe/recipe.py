"""``--recipe FILE``: the normalised recipe as facts, each with the line that says it or the default that holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.facts.values import ABSENT, Fact, Records, Value
from envdoctor.observe.recipe.completing import complete
from envdoctor.observe.recipe.files import RecipeFile, read_files
from envdoctor.observe.recipe.formats import NO_RECIPES, Formats
from envdoctor.observe.recipe.statements import Statements

__all__ = ["Recipe", "kinds_of", "read_recipe", "recipe_of"]

#: What switches a variable of LLaMA-Factory on (llamafactory/extras/misc.py: is_env_enabled).
_ON = ("true", "y", "1")


class Recipe(NamedTuple):
    """What the files say: facts ``recipe.*``, ``env.*``, ``recipe_file`` and ``recipe_key``; ``model`` and
    ``revision`` as the files name them; ``missing`` are files that they name and that could not be read: the name, the
    place, and why (a clause after "which")."""

    facts: tuple[Fact, ...]
    model: Fact | None
    revision: Fact | None
    missing: tuple[tuple[str, str, str], ...]


def read_recipe(
    given: Sequence[str],
    cwd: str,
    rows: Iterable[Mapping[str, object]],
    registry: Registry,
    installed: Callable[[str], Value],
) -> Recipe:
    """Read the files that were given and those that they name; ``rows`` are those of the table recipe-formats,
    ``installed`` gives the facts of the environment, for defaults that changed with a release and for variables.

    Raises :class:`RecipeFileError`.
    """
    formats = Formats(rows)
    files = list(read_files(given, cwd, formats, kinds_of(registry)))
    return recipe_of(files, formats, registry, installed, ", ".join(given))


def kinds_of(registry: Registry) -> dict[str, str]:
    """The types of the recipe's fields."""
    return {spec.key[7:]: spec.type for spec in registry if spec.key.startswith("recipe.")}


def recipe_of(
    files: Sequence[RecipeFile],
    formats: Formats,
    registry: Registry,
    installed: Callable[[str], Value],
    origin: str,
) -> Recipe:
    """What files that were taken apart say together; ``origin`` names them all."""
    parts = [(file.name, part, form) for file in files for part, form in file.parts]
    statements = Statements(formats, registry)
    # A command line stands above the files that it names; what must agree with the others comes behind them.
    for name, part, form in sorted(
        parts, key=lambda one: (one[2].authority < 0, one[2].authority, one[1].program > "")
    ):
        statements.read(name, part, form)
    missing = tuple(one for file in files for one in file.missing)

    def is_on(name: str) -> bool:
        fact = statements.said.get(f"env.{name}")
        return str(installed(f"env.{name}") if fact is None else fact.value).lower() in _ON

    there = [form for form in formats if form.name in statements.files]
    complete(statements, there, installed, [name for name, *_ in missing])
    lenient = {form.name for form in there if is_on(form.row.get("lenient", ""))}
    keys = [{**item, "call": ABSENT} if item["format"] in lenient else item for item in statements.keys]
    named = dict.fromkeys((name, form.name) for name, _, form in parts if form.name not in NO_RECIPES)
    listed: dict[str, Value] = {
        "recipe.arguments": tuple(dict.fromkeys(str(item["key"]) for item in keys)),
        "recipe_file": Records(tuple({"path": name, "format": form} for name, form in named)),
        "recipe_key": Records(tuple(keys)),
    }
    facts = [fact for fact in statements.said.values() if registry.find(fact.key) is not None]
    facts += [Fact(key, value, origin, "recipe") for key, value in listed.items()]
    return Recipe(tuple(facts), statements.said.get("model"), statements.said.get("revision"), missing)
