"""Which transformers releases have a class for a model type: the table transformers-model-types."""

from __future__ import annotations

from envdoctor.facts.values import Unknown
from envdoctor.knowledge.matrix import Matrix
from envdoctor.text.message import Message
from envdoctor.versions.pep440 import release_of
from envdoctor.versions.releases import contains, parse_ranges

_TABLE = "transformers-model-types"


class ModelTypes:
    """The table's answers, by model type."""

    def __init__(self, matrix: Matrix) -> None:
        self._since, self._until = (matrix.part(_TABLE, part) for part in ("since", "until"))
        self._never = matrix.part(_TABLE, "never").get("names", ())
        # The oldest release of the table stands for all before it too.
        self._oldest = min(self._since, key=lambda release: release_of(release) or (), default="")

    def is_never(self, kind: str) -> bool:
        """Whether no release registers it, although many models have it."""
        return kind in self._never

    def since(self, kind: str) -> str | None:
        """The first release that registers it; None for a type that the table does not list."""
        return next((str(release) for release, kinds in self._since.items() if kind in kinds), None)

    def releases(self, kind: str) -> str | None:
        """The same as a range, ``>=4.33,<5.6``; an empty text for all releases."""
        since = self.since(kind)
        if since is None:
            return None
        until = [f"<{release}" for release, kinds in self._until.items() if kind in kinds]
        return ",".join([*([f">={since}"] if since != self._oldest else []), *until])

    def has(self, kind: str, installed: str) -> bool | Unknown:
        """Whether a release registers it. A development version has what its release has."""
        releases, release = self.releases(kind), release_of(installed)
        if releases is None or release is None:
            return Unknown(Message("not a type, or not a release, of the table"))
        if not contains(parse_ranges(releases), release):
            return False
        if self.since(kind) == self._oldest and release < (release_of(self._oldest) or ()):
            return Unknown(Message("the table begins with a later release"))
        return True
