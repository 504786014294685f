"""Find the releases that know a name, by tables of first and last releases: of transformers the model types
(transformers-model-types), of serving engines and trainers the families of models (framework-models)."""

from collections.abc import Mapping
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import base_release, satisfies


class KnownNames:
    """The names that releases know. ``table`` has them by the first release that knows them (``since``, oldest first),
    and by the first that does no more (``until``); ``fallback`` is the first release that runs others too."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._since, self._until, self._fallback = table.get("since", {}), table.get("until", {}), table.get("fallback")
        self._never = table.get("never", {}).get("names", ())
        self._oldest = next(iter(self._since), "")

    def is_never(self, name: str) -> bool:
        """Return whether no release knows it, although many models have it."""
        return name in self._never

    def since(self, name: str) -> str | None:
        """Return the first release that knows it; None for a name that the table does not list."""
        return next((str(release) for release, names in self._since.items() if name in names), None)

    def releases(self, name: str) -> str | None:
        """Return the releases that know it as a range, ``>=4.33,<5.6``; an empty text for all of them, None if no
        release does. The oldest release of the table stands for all before it too."""
        since = self.since(name)
        low = [f">={since}"] if since != self._oldest else []
        high = [f"<{release}" for release, names in self._until.items() if name in names]
        return None if since is None else ",".join(low + high)

    def has(self, name: str, installed: str) -> bool | Unknown:
        """Return whether a release knows it. A development version has what its release has."""
        releases, release = self.releases(name), base_release(installed)
        if releases is None or release is None:
            return Unknown(Message("the table has no such name, or no such release"))
        if self.since(name) == self._oldest and satisfies(release, f"<{self._oldest}"):
            return Unknown(Message("the table begins with a later release"))
        return satisfies(release, releases)

    def required(self, name: str, installed: str | None) -> str | None:
        """Return the releases that a name asks for; None if unknown, or if the installed release runs it all the same,
        with transformers' classes."""
        releases, release = self.releases(name), base_release(installed or "")
        runs_others = releases and release and self._fallback and satisfies(release, f">={self._fallback}")
        return None if runs_others and not satisfies(str(release), str(releases)) else releases


def transformers_types(matrix: Matrix) -> KnownNames:
    """Return the model types that releases of transformers register."""
    return KnownNames(matrix.table("transformers-model-types"))
