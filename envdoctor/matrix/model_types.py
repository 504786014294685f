"""Find the first release of transformers that knows a model type (table transformers-model-types), and of serving
engines and trainers that know a family of models (table framework-models)."""

from collections.abc import Mapping
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import base_release, release_of, satisfies
from envdoctor.versions.releases import contains, parse_ranges

_LATER = Unknown(Message("the table begins with a later release"))


def _releases(first: Mapping[str, Any], last: Mapping[str, Any], name: str, oldest: str) -> str | None:
    """Return the releases that know a name, ``>=4.33,<5.6``; an empty text for all of them, None if no release does.
    The ``oldest`` release of the table stands for all before it too."""
    since = next((release for release, names in first.items() if name in names), None)
    if since is None:
        return None
    until = [f"<{release}" for release, names in last.items() if name in names]
    return ",".join([*([f">={since}"] if since != oldest else []), *until])


class ModelTypes:
    """The releases of transformers that have a class, by model type."""

    def __init__(self, matrix: Matrix) -> None:
        self._since, self._until = (matrix.part("transformers-model-types", part) for part in ("since", "until"))
        self._never = matrix.part("transformers-model-types", "never").get("names", ())
        self._oldest = min(self._since, key=lambda release: release_of(release) or (), default="")

    def is_never(self, kind: str) -> bool:
        """Return whether no release registers it, although many models have it."""
        return kind in self._never

    def since(self, kind: str) -> str | None:
        """Return the first release that registers it; None for a type that the table does not list."""
        return next((str(release) for release, kinds in self._since.items() if kind in kinds), None)

    def releases(self, kind: str) -> str | None:
        """Return the releases that register it as a range, ``>=4.33,<5.6``; an empty text for all releases."""
        return _releases(self._since, self._until, kind, self._oldest)

    def has(self, kind: str, installed: str) -> bool | Unknown:
        """Return whether a release registers it. A development version has what its release has."""
        releases, release = self.releases(kind), release_of(installed)
        if releases is None or release is None:
            return Unknown(Message("not a type, or not a release, of the table"))
        if not contains(parse_ranges(releases), release):
            return False
        is_before = self.since(kind) == self._oldest and release < (release_of(self._oldest) or ())
        return _LATER if is_before else True


def knows(matrix: Matrix, framework: str, family: str, installed: str) -> bool | Unknown:
    """Return whether a release of an engine or trainer has something of its own for the family."""
    table, release = matrix.part("framework-models", framework), base_release(installed)
    first = next(iter(table["since"]))
    releases = _releases(table["since"], table["until"], family, first)
    if releases is None or release is None:
        return Unknown(Message("the table framework-models does not tell of {} in {}", family, framework))
    return _LATER if ">=" not in releases and satisfies(release, f"<{first}") else satisfies(release, releases)


def asked_release(matrix: Matrix, framework: str, family: str, installed: str | None) -> str | None:
    """Return the requirement of a family on an engine or trainer, ``vllm>=0.6.5``; None if unknown, or if this release
    runs models without classes of its own with transformers'."""
    table = matrix.part("framework-models", framework)
    releases = _releases(table["since"], table["until"], family, next(iter(table["since"])))
    release, fallback = base_release(installed) if installed else None, table.get("fallback")
    if releases is not None and release and fallback and not satisfies(release, releases):
        releases = None if satisfies(release, f">={fallback}") else releases
    return None if releases is None else framework + releases
