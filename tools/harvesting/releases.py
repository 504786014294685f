"""The releases of a project, from the files that an index lists, and which of them are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

__all__ = ["File", "Release", "chosen", "released"]

_BUILD = re.compile(r"[0-9][^-]*\Z")


class File(NamedTuple):
    """A file of a project, as the index describes it: ``size`` in bytes, ``python`` its Requires-Python or "",
    ``day`` when it was uploaded, ``described`` whether its metadata can be fetched apart (PEP 658)."""

    name: str
    url: str
    size: int
    python: str
    day: str
    yanked: bool
    described: bool

    @property
    def is_wheel(self) -> bool:
        return self.name.endswith(".whl")

    @property
    def tags(self) -> str:
        """Return ``cp311-cp311-manylinux_2_28_x86_64`` as in the file's name, or ``sdist``."""
        return "-".join(self.name.removesuffix(".whl").split("-")[-3:]) if self.is_wheel else "sdist"


class Release(NamedTuple):
    """A release and its files; those are in the order in which they are asked for metadata and names."""

    version: Version
    files: tuple[File, ...]

    @property
    def day(self) -> str:
        return min(file.day for file in self.files)

    @property
    def python(self) -> str:
        return next((file.python for file in self.files if file.python and _is_valid(file.python)), "")

    @property
    def yanked(self) -> bool:
        return all(file.yanked for file in self.files)


def _is_valid(python: str) -> bool:
    """Return whether a Requires-Python can be read; installers ignore others (``>=3.5.*``)."""
    try:
        SpecifierSet(python)
    except InvalidSpecifier:
        return False
    return True


def released(files: Iterable[File]) -> list[Release]:
    """Return every release that is not a pre-release, in order."""
    found: dict[Version, list[File]] = {}
    for file in files:
        parse = parse_wheel_filename if file.is_wheel else parse_sdist_filename
        try:
            version = parse(file.name)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        if not version.is_prerelease and not version.local:
            found.setdefault(version, []).append(file)
    return [Release(version, tuple(sorted(found[version], key=_readable))) for version in sorted(found)]


def _readable(file: File) -> tuple[bool, bool, bool, str]:
    """Return pure wheels first, then those for Linux on x86-64, then other wheels, then sdists."""
    tags = file.tags
    return not file.is_wheel, not tags.endswith("-none-any"), not re.search("linux.*x86_64", tags), file.name


def chosen(releases: Sequence[Release], since: str, patches: str = "ends") -> list[Release]:
    """Return the releases to read, of those uploaded from the day ``since`` on: the first and the last patch of each
    minor (``ends``), the last (``last``) or every one (``all``). Withdrawn ones count only if a minor has no other."""
    found: list[Release] = []
    recent = [release for release in releases if release.day >= since]
    for _, minor in groupby(
        recent, lambda release: (release.version.epoch, release.version.major, release.version.minor)
    ):
        every = list(minor)
        good = [release for release in every if not release.yanked] or every
        ends = {"ends": [good[0], good[-1]], "last": good[-1:], "all": every}[patches]
        found += [release for release in every if release in ends]
    return found
