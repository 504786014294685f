"""The attention that transformers takes by itself, where nobody asks for one: by its release and the model's class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import NOT_GIVEN, Absent, Range, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.ranges import contains, parse_ranges, release_of

INPUTS = ("recipe.attn", "model.type", "model.remote_code", "model.run_by", "pkg.transformers", "pkg.torch")
OUTPUTS = ("recipe.attn",)

_TABLE = "default-attention"
#: Older releases choose none: modules have one class for each.
_FIRST = (4, 36)
#: With an older torch no release takes SDPA.
_TORCH = ">=2.1.1"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``recipe.attn`` where nobody asks for an attention: sdpa or eager by the table default-attention.

    Nothing of a model that runs by code of its own, by an engine or by a trainer's classes, nor of releases that the
    table does not know. Where the release is not known, all that know the model's type must agree.
    """
    asked, kind = value("recipe.attn"), value("model.type")
    if not (asked == NOT_GIVEN or isinstance(asked, Absent)) or not isinstance(kind, str):
        return {}
    if value("model.remote_code") is True or value("model.run_by") in ("engine", "trainer"):
        return {}
    from envdoctor.knowledge.model_types import ModelTypes

    known = ModelTypes(matrix).releases(kind)
    if known is None:
        return {}
    torch, installed = value("pkg.torch"), value("pkg.transformers")
    old_torch = isinstance(torch, str) and satisfies(torch, _TORCH) is False
    answers = {_taken(kind, release, matrix) for release in _releases(installed, known, matrix)}
    taken = answers.pop() if len(answers) == 1 else None
    if taken is None:
        return {}
    if taken == "sdpa" and old_torch:
        return {"recipe.attn": Derived("eager", f"default: torch {torch} is older than SDPA asks for", default=True)}
    release = f"transformers {installed}" if isinstance(installed, str) else "every transformers that knows it"
    return {"recipe.attn": Derived(taken, f"default of {release} for {kind}", default=True)}


def _releases(installed: Value, known: str, matrix: Matrix) -> Iterable[tuple[int, ...]]:
    """The releases that the run may have: that which is installed, those of a range, or all that know the type."""
    if isinstance(installed, str):
        texts: Iterable[str] = [installed]
    elif isinstance(installed, Range):
        texts = installed.releases
    else:
        texts = matrix.part("releases", "releases").get("transformers", ())
    releases = [release for release in map(_read, texts) if release is not None]
    if isinstance(installed, str):
        return releases
    return [release for release in releases if contains(parse_ranges(known), release)]


def _read(version: str) -> tuple[int, ...] | None:
    try:
        return release_of(version.partition("+")[0])
    except ValueError:  # a candidate: nobody can tell
        return None


def _taken(kind: str, release: tuple[int, ...], matrix: Matrix) -> str | None:
    if release < _FIRST:
        return "eager"
    if not contains(parse_ranges(matrix.part(_TABLE, "table")["covers"]), release):
        return None
    for part, taken in (("open", None), ("sdpa", "sdpa")):
        spans = matrix.part(_TABLE, part).get(kind)
        if spans is not None and contains(parse_ranges(spans), release):
            return taken
    return "eager"
