"""The distributions of one folder of packages, and what contradicts itself in it."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Unknown
from envdoctor.observe.packages.reading.metadata_directory import (
    Distribution,
    Problem,
    checked_version,
    invalid_name,
    named_by,
    read_directory,
    readable,
)
from envdoctor.observe.packages.reading.version_files import VERSION_FILES, VersionFile, read_version_file
from envdoctor.text.files import Files
from envdoctor.text.message import Message
from envdoctor.versions.names import valid_name
from envdoctor.versions.pep440 import same_release

_NAMED = 3
_EDITABLE_PTH = r"__editable__\.(?P<name>.+)-[^-]+\.pth\Z"


class FolderScan(NamedTuple):
    """What one folder holds. ``linked`` are the source folders that its ``.egg-link`` files lead to."""

    distributions: list[Distribution]
    problems: list[Problem]
    linked: list[str]


def scan_folder(folder: str, files: Files) -> FolderScan:
    """List a folder and read the header of each metadata directory in it.

    Raises ``OSError`` when the folder cannot be listed; what is wrong with one distribution is a :class:`Problem`.
    """
    scan = FolderScan([], [], [])
    if folder.endswith(".egg"):
        _scan_egg(folder, files, scan)
        return scan
    editable: set[str | None] = set()
    for entry in files.names(folder):
        if entry.startswith("~"):
            name = readable(entry)
            detail = Message("{} is what an interrupted pip left behind", name)
            scan.problems.append(Problem(name, "leftover", detail, ABSENT, os.path.join(folder, entry)))
        elif entry.endswith(".dist-info"):
            _keep(read_directory(f"{folder}{os.sep}{entry}", entry, "METADATA", "dist-info", files), scan)
        elif entry.endswith(".egg-info"):
            _keep(read_directory(f"{folder}{os.sep}{entry}", entry, "PKG-INFO", "egg-info", files), scan)
        elif entry.endswith(".egg-link"):
            _follow_egg_link(folder, entry, files, scan)
        elif entry.startswith("__editable__."):
            match = re.match(_EDITABLE_PTH, entry)
            editable.add(valid_name(match["name"]) if match else None)
    if editable:
        scan.distributions[:] = [
            item._replace(editable=True) if item.name in editable else item for item in scan.distributions
        ]
    _report_duplicates(folder, scan)
    return scan


def _keep(read: tuple[Distribution | None, Problem | None], scan: FolderScan) -> None:
    found, problem = read
    if found is not None:
        scan.distributions.append(found)
    if problem is not None:
        scan.problems.append(problem)


def _scan_egg(folder: str, files: Files, scan: FolderScan) -> None:
    """An egg on the import path: a folder with EGG-INFO, or a zip file that has only its name to read."""
    entry = os.path.basename(folder)
    if files.is_folder(folder):
        _keep(read_directory(os.path.join(folder, "EGG-INFO"), entry, "PKG-INFO", "egg-info", files), scan)
        return
    raw_name, raw_version = named_by(entry)
    name = valid_name(raw_name)
    if name is None:
        scan.problems.append(invalid_name(raw_name, entry, folder))
        return
    version = Unknown(Message("{} carries no version", entry)) if raw_version is None else checked_version(raw_version)
    inside = os.path.join(folder, "EGG-INFO")  # in the zip file
    scan.distributions.append(Distribution(name, version, "egg-info", ABSENT, False, inside, entry))


def _follow_egg_link(folder: str, entry: str, files: Files, scan: FolderScan) -> None:
    """``setup.py develop``: the first line names the source folder, which a ``.pth`` line puts on the path."""
    line = files.text_or_empty(os.path.join(folder, entry), 4096).partition("\n")[0].strip()
    if line and "\0" not in line:
        target = files.inside(line) if os.path.isabs(line) else os.path.join(folder, line)
        scan.linked.append(os.path.normpath(target))


def _first(names: list[str]) -> list[str]:
    """As many as a message can name, and how many more there are."""
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"… +{len(names) - _NAMED}"]


def _report_duplicates(folder: str, scan: FolderScan) -> None:
    """The same name twice in one folder. Which of the two the files on disk belong to, metadata cannot tell."""
    if len({item.name for item in scan.distributions}) == len(scan.distributions):
        return
    groups: dict[str, list[Distribution]] = {}
    for item in scan.distributions:
        groups.setdefault(item.name, []).append(item)
    for name, items in groups.items():
        if len(items) > 1:
            versions = ", ".join(_first(sorted({item.version for item in items if isinstance(item.version, str)})))
            entries = " and ".join(_first([os.path.basename(item.path) for item in items]))
            detail = Message("{} are in the same folder", entries)
            scan.problems.append(Problem(name, "duplicate", detail, versions or ABSENT, folder))


def decide_versions(
    in_folders: Mapping[str, list[Distribution]],
    folders: tuple[str, ...],
    files: Files,
    replaced: Mapping[str, VersionFile],
) -> tuple[list[Fact], list[Distribution], list[Problem]]:
    """Decide the version of each package: ``pkg.*``, the distributions with the local tags that version files add, and
    contradictions between METADATA and version files.

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
    said = {name: read_version_file(name, folders, files) for name in VERSION_FILES}
    for name, file in (*said.items(), *replaced.items()):
        if not isinstance(file, Unknown):
            _prefer_file(name, file, chosen, distributions, problems)
    return list(chosen.values()), distributions, problems


def _several(earlier: Fact, item: Distribution) -> Unknown:
    if isinstance(earlier.value, Unknown):
        return earlier.value
    if isinstance(item.version, Unknown):
        return item.version
    return Unknown(Message("two metadata directories in one folder say {} and {}", earlier.value, item.version))


def _prefer_file(
    name: str, file: VersionFile, chosen: dict[str, Fact], distributions: list[Distribution], problems: list[Problem]
) -> None:
    said = file.get("__version__")
    version = checked_version(said) if isinstance(said, str) else Unknown(Message("{} does not say", file.origin))
    fact = chosen.get(name)
    path = os.path.join(file.folder, *file.origin.split("/"))
    if isinstance(version, Unknown):
        if fact is None:
            chosen[name] = Fact(f"pkg.{name}", version, file.origin, "environment")
        return
    if fact is None:
        detail = Message("{} is there, and no metadata directory", file.origin)
        problems.append(Problem(name, "no-metadata", detail, version, path))
    elif isinstance(fact.value, str) and not same_release(fact.value, version):
        detail = Message("{} says {}, {} says {}", fact.origin, fact.value, file.origin, version)
        problems.append(Problem(name, "mismatch", detail, f"{fact.value}, {version}", path))
    elif isinstance(fact.value, str) and "+" in fact.value and "+" not in version:
        return  # here it is METADATA that has the tag
    chosen[name] = Fact(f"pkg.{name}", version, file.origin, "environment")
    for index, item in enumerate(distributions):
        beside = item.name == name and os.path.dirname(item.path) == file.folder
        if beside and isinstance(item.version, str) and same_release(item.version, version):
            distributions[index] = item._replace(version=version)
