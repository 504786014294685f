"""One version a package, out of several metadata directories and the package's own version file."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.facts.values import Fact, Unknown
from envdoctor.observe.packages.reading.metadata_directory import Distribution, Problem, checked_version
from envdoctor.observe.packages.reading.version_files import VERSION_FILES, VersionFile, read_version_file
from envdoctor.text.files import Files
from envdoctor.versions.pep440 import same_release

__all__ = ["CodeVersion", "PackageVersions", "decide_versions"]


class PackageVersions(NamedTuple):
    """``facts`` are ``pkg.*``. ``distributions`` carry the local tags that version files add. ``problems`` are
    contradictions between METADATA and version files."""

    facts: list[Fact]
    distributions: list[Distribution]
    problems: list[Problem]


class CodeVersion(NamedTuple):
    """A version that code gives itself, the file that says it below ``folder``, a folder of packages."""

    version: str
    origin: str
    folder: str


def decide_versions(
    in_folders: Mapping[str, list[Distribution]],
    folders: tuple[str, ...],
    files: Files,
    replaced: Mapping[str, CodeVersion] | None = None,
) -> PackageVersions:
    """Decide the version of each package.

    ``in_folders`` are the distributions of each folder, in import order, and ``folders`` those that packages are
    imported from. The first folder that has a name decides, as it does for ``import``; two versions in that folder
    leave it unknown. A version file that adds a local tag, or says something else, wins; so does code that was
    ``replaced`` by another release.
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
    distributions = [item for items in in_folders.values() for item in items]
    for name in VERSION_FILES:
        file = read_version_file(name, folders, files)
        if not isinstance(file, Unknown):
            _prefer_file(name, file, chosen, distributions, problems)
    for name, code in (replaced or {}).items():
        said = VersionFile(code.folder, code.origin, {"__version__": code.version})
        _prefer_file(name, said, chosen, distributions, problems)
    return PackageVersions(list(chosen.values()), distributions, problems)


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
    elif isinstance(fact.value, str) and not same_release(fact.value, version):
        detail = f"{fact.origin} says {fact.value}, {file.origin} says {version}"
        problems.append(Problem(name, "mismatch", detail, f"{fact.value}, {version}", path))
    elif isinstance(fact.value, str) and "+" in fact.value and "+" not in version:
        return  # here it is METADATA that has the tag
    chosen[name] = Fact(f"pkg.{name}", version, file.origin, "environment")
    for index, item in enumerate(distributions):
        beside = item.name == name and os.path.dirname(item.path) == file.folder
        if beside and isinstance(item.version, str) and same_release(item.version, version):
            distributions[index] = item._replace(version=version)
