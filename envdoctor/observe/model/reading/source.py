"""What ``--model`` was found to mean."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.facts.values import Fact, Unknown

__all__ = ["ModelSource"]


class ModelSource(NamedTuple):
    """A model as given, and its files on this machine.

    ``folder`` is the absolute path of the folder with config.json, or None when no files are here; ``missing`` then
    says why, as a clause for the user. ``repo`` is ``ORG/NAME`` (or a name alone) where it is known, ``revision`` the
    commit of the files. ``origin`` is ``--model`` or names the Hub cache; ``cached`` is True for a folder of the Hub
    cache, which may hold some of the repository's files only.
    """

    given: str
    folder: str | None
    repo: str | None
    revision: str | None
    origin: str
    missing: str = ""
    cached: bool = False

    def unread(self, keys: tuple[str, ...]) -> list[Fact]:
        """The facts of a model without files on this machine."""
        return [Fact(key, Unknown(self.missing), self.origin, "model") for key in keys]
