"""The distributions of one folder of packages, and what contradicts itself in it."""

import os
import re
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Unknown
from envdoctor.observe.packages.reading.metadata_directory import (
    Distribution,
    Problem,
    checked_version,
    invalid_name,
    named_by,
    read_directory,
    readable,
)
from envdoctor.text.files import Files
from envdoctor.versions.names import valid_name

__all__ = ["FolderScan", "scan_folder"]

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
            detail = f"{name} is what an interrupted pip left behind"
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
    version = Unknown(f"{entry} carries no version") if raw_version is None else checked_version(raw_version)
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
            detail = f"{entries} are in the same folder"
            scan.problems.append(Problem(name, "duplicate", detail, versions or ABSENT, folder))
