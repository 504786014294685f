"""One version a package, out of several metadata directories and the package's own version file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import Fact, Unknown
from envdoctor.observe.environment.files import Files
from envdoctor.observe.environment.metadata_directory import Distribution, Problem, checked_version
from envdoctor.observe.environment.version_files import VERSION_FILES, VersionFile, read_version_file

__all__ = ["PackageVersions", "decide_versions"]


class PackageVersions(NamedTuple):
    """``facts`` are ``pkg.*``. ``distributions`` carry the local tags that version files add. ``problems`` are
    contradictions between METADATA and version files. ``torch_file`` is torch/version.py and ``torch_record`` the path
    of RECORD in the metadata directory beside it (without it, in the only one that is left), or unknown with the
    reason."""

    facts: list[Fact]
    distributions: list[Distribution]
    problems: list[Problem]
    torch_file: VersionFile | Unknown
    torch_record: str | Unknown


def decide_versions(
    in_folders: Mapping[str, list[Distribution]], folders: tuple[str, ...], files: Files
) -> PackageVersions:
    """Decide the version of each package.

    ``in_folders`` are the distributions of each folder, in import order, and ``folders`` those that packages are
    imported from. The first folder that has a name decides, as it does for ``import``; two versions in that folder
    leave it unknown. A version file that adds a local tag, or says something else, wins.
    """
    chosen: dict[str, Fact] = {}
    for items in in_folders.values():
        here: dict[str, Fact] = {}
        for item in items:
            name = item.name
            if name in chosen:
                continue
            earlier = here.get(name)
            if earlier is None:
                here[name] = Fact(f"pkg.{name}", item.version, item.origin, "environment")
            elif item.version != earlier.value:
                origin = f"{earlier.origin}, {item.origin}"
                here[name] = earlier._replace(value=_several(earlier, item), origin=origin)
        chosen.update(here)
    problems: list[Problem] = []
    torch_file: VersionFile | Unknown = Unknown("torch is not installed")
    distributions = [item for items in in_folders.values() for item in items]
    for name in VERSION_FILES:
        file = read_version_file(name, folders, files)
        if isinstance(file, Unknown):
            if name == "torch" and name in chosen:
                torch_file = file
            continue
        if name == "torch":
            torch_file = file
        _prefer_file(name, file, chosen, distributions, problems)
    record = _record(torch_file, distributions, folders)
    return PackageVersions(list(chosen.values()), distributions, problems, torch_file, record)


def _several(earlier: Fact, item: Distribution) -> Unknown:
    if isinstance(earlier.value, Unknown):
        return earlier.value
    if isinstance(item.version, Unknown):
        return item.version
    return Unknown(f"two metadata directories in one folder say {earlier.value} and {item.version}")


def _prefer_file(
    name: str,
    file: VersionFile,
    chosen: dict[str, Fact],
    distributions: list[Distribution],
    problems: list[Problem],
) -> None:
    said = file.get("__version__")
    version = checked_version(said) if isinstance(said, str) else Unknown(f"{file.origin} does not say")
    fact = chosen.get(name)
    path = os.path.join(file.folder, *file.origin.split("/"))
    if isinstance(version, Unknown):
        if fact is None:
            chosen[name] = Fact(f"pkg.{name}", version, file.origin, "environment")
        return
    if fact is None:
        detail = f"{file.origin} is there, and no metadata directory"
        problems.append(Problem(name, "no-metadata", detail, version, path))
    elif isinstance(fact.value, str) and not _same_release(fact.value, version):
        detail = f"{fact.origin} says {fact.value}, {file.origin} says {version}"
        problems.append(Problem(name, "mismatch", detail, f"{fact.value}, {version}", path))
    elif isinstance(fact.value, str) and "+" in fact.value and "+" not in version:
        return  # here it is METADATA that has the tag
    chosen[name] = Fact(f"pkg.{name}", version, file.origin, "environment")
    for index, item in enumerate(distributions):
        beside = item.name == name and os.path.dirname(item.path) == file.folder
        if beside and isinstance(item.version, str) and _same_release(item.version, version):
            distributions[index] = item._replace(version=version)


def _same_release(one: str, other: str) -> bool:
    """Whether two versions differ in nothing but the local tag."""
    one, other = one.partition("+")[0], other.partition("+")[0]
    if one == other:
        return True
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False


def _record(
    torch_file: VersionFile | Unknown, distributions: list[Distribution], folders: Sequence[str]
) -> str | Unknown:
    """RECORD of the torch whose version file was read; without one, of the metadata that is left of it in the first
    folder that has any."""
    installed = [item for item in distributions if item.name == "torch" and item.kind == "dist-info"]
    if isinstance(torch_file, Unknown):
        places = [os.path.dirname(item.path) for item in installed]
        first = next((folder for folder in folders if folder in places), None)
        left = [item for item, place in zip(installed, places, strict=True) if place == first]
        return os.path.join(left[0].path, "RECORD") if len(left) == 1 else torch_file
    said = torch_file.get("__version__")
    beside = [item for item in installed if os.path.dirname(item.path) == torch_file.folder]
    if len(beside) > 1:
        beside = [item for item in beside if item.version == said]
    if len(beside) != 1:
        return Unknown("there is no metadata directory of this torch that would list its files")
    return os.path.join(beside[0].path, "RECORD")
