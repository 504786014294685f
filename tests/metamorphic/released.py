"""The arguments of released trainers and servers (``arguments/``), and which release a run with given packages has."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envdoctor.matrix import load_toml

_FOLDER = Path(__file__).with_name("arguments")


@cache
def _releases(project: str) -> list[Mapping[str, Any]]:
    """The releases of a project that were read, oldest first."""
    found: list[Mapping[str, Any]] = load_toml(_FOLDER / f"{project}.toml")["release"]
    return found


def _read(project: str, packages: Mapping[str, str]) -> Mapping[str, Any]:
    """The newest release that was read and is no newer than the installed one; where no release is told, the newest
    that takes the installed transformers."""
    releases = _releases(project)
    own = packages.get(project)
    if own is not None:
        return next((one for one in reversed(releases) if Version(one["version"]) <= Version(own)), releases[0])
    needed = packages.get("transformers")
    for one in reversed(releases):
        # A pin is taken for a floor: people run other releases with it.
        asked = one.get("requires", {}).get("transformers", "").replace("==", ">=")
        if needed is None or SpecifierSet(asked).contains(needed, prereleases=True):
            return one
    return releases[0]


def release(project: str, packages: Mapping[str, str]) -> str:
    """Return the release whose arguments a run with these packages has."""
    version: str = _read(project, packages)["version"]
    return version


def arguments(project: str, group: str, packages: Mapping[str, str]) -> frozenset[str]:
    """Return the arguments of a group in that release."""
    return frozenset(_read(project, packages)[group])
