"""The attention that transformers takes by itself, where nobody asks for one: by its release and the model's class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import NOT_GIVEN, Absent, Range, Unknown, Value, spell
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.ranges import contains, parse_ranges, plain_release

#: What a recipe that was seen says at least one of.
_SEEN = ("recipe_file", "recipe.framework", "recipe.method")
INPUTS = (
    *("recipe.attn", *_SEEN, "recipe.packing", "recipe.dialect", "pkg.openrlhf"),
    *("model.type", "model.family", "model.remote_code", "model.run_by", "pkg.transformers", "pkg.torch"),
)
OUTPUTS = ("recipe.attn",)

_TABLE = "default-attention"
#: Older releases choose none: modules have one class for each.
_FIRST = (4, 36)
#: With an older torch no release takes SDPA.
_TORCH = ">=2.1.1"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``recipe.attn`` where nobody asks for an attention: what the framework passes on, else sdpa or eager by the table
    default-attention; of a model of which nothing is known sdpa, which nearly all take.

    Nothing of a model that runs by code of its own, by an engine or by a trainer's classes, nor of releases that the
    table does not know. Where the release is not known, all that know the model's type must agree.
    """
    asked = value("recipe.attn")
    if not (asked == NOT_GIVEN or isinstance(asked, Absent)):
        return {}
    passed = _passed_on(value, matrix)
    if passed is not None:
        return {"recipe.attn": passed}
    if value("model.remote_code") is True or value("model.run_by") in ("engine", "trainer"):
        return {}
    kinds = _kinds(value, matrix)
    torch, installed = value("pkg.torch"), value("pkg.transformers")
    answers = {_taken(kind, release, matrix) for kind in kinds for release in _releases(installed, kind, matrix)}
    taken = answers.pop() if len(answers) == 1 else None
    if taken is None:
        return {}
    if taken == "sdpa" and isinstance(torch, str) and satisfies(torch, _TORCH) is False:
        return {"recipe.attn": Derived("eager", f"default: torch {torch} is older than SDPA asks for", "default")}
    seen = any(not isinstance(value(key), Unknown) for key in _SEEN)
    if kinds == [""]:
        source = "default" if seen and isinstance(value("model.family"), str) else "unasked"
        return {"recipe.attn": Derived(taken, "transformers takes SDPA for nearly every model", source)}
    if not seen:
        return {"recipe.attn": Derived(taken, "transformers takes it by itself, and no recipe was seen", "unasked")}
    release = f"transformers {installed}" if isinstance(installed, str) else "every transformers that knows it"
    return {"recipe.attn": Derived(taken, f"default of {release} for {', '.join(kinds)}", "default")}


def _passed_on(value: Callable[[str], Value], matrix: Matrix) -> Derived | None:
    """What a framework hands to transformers by itself; a guess where its releases differ and a recipe was read."""
    guess = None
    for row in matrix.rows("recipe-formats", "format"):
        if row.get("framework") != value("recipe.framework"):
            continue
        for one in row.get("implied", ()):
            by = value(f"recipe.{one['by']}")
            if one["field"] == "attn" and spell(by).lower() in one["words"]:
                return Derived(one["value"], f"default of {row['title']}", "default")
        for one in row.get("versioned", ()):
            if one["field"] != "attn":
                continue
            installed = value(f"pkg.{one['package']}")
            if isinstance(installed, str) and satisfies(installed, one["releases"]) is True:
                return Derived(one["value"], f"default of {row['title']} {installed}", "default")
            guess = guess or Derived(one["value"], f"default of {one['package']} {one['releases']}", "assumed")
    return guess if isinstance(value("recipe.attn"), Absent) else None


def _kinds(value: Callable[[str], Value], matrix: Matrix) -> list[str]:
    """The model's type, or those of its family; an empty one where no type is known."""
    kind, family = value("model.type"), value("model.family")
    if isinstance(kind, str):
        return [kind]
    if isinstance(family, str):
        rows = matrix.rows("families", "family")
        return [kind for row in rows if row["id"] == family for kind in row.get("types", ())] or [""]
    return [""]


def _releases(installed: Value, kind: str, matrix: Matrix) -> Iterable[tuple[int, ...]]:
    """The releases that the run may have and that know the type: that which is installed, those of a range, or all."""
    if isinstance(installed, str):
        texts: Iterable[str] = [installed]
    elif isinstance(installed, Range):
        texts = map(str, installed.releases)
    else:
        texts = matrix.part("releases", "releases").get("transformers", ())
    releases = [release for release in map(_read, texts) if release is not None]
    if not kind:
        return [release for release in releases if release >= _FIRST]
    from envdoctor.knowledge.model_types import ModelTypes

    known = ModelTypes(matrix).releases(kind)
    return [release for release in releases if known is not None and contains(parse_ranges(known), release)]


def _read(version: str) -> tuple[int, ...] | None:
    try:
        return plain_release(version.partition("+")[0])
    except ValueError:  # a candidate: nobody can tell
        return None


def _taken(kind: str, release: tuple[int, ...], matrix: Matrix) -> str | None:
    if release < _FIRST:
        return "eager"
    if not contains(parse_ranges(matrix.part(_TABLE, "table").get("covers", "<0")), release):
        return None
    if not kind:
        return "sdpa"
    for part, taken in (("open", None), ("sdpa", "sdpa")):
        spans = matrix.part(_TABLE, part).get(kind)
        if spans is not None and contains(parse_ranges(spans), release):
            return taken
    return "eager"
