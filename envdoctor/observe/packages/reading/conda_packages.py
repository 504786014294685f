"""What conda installed that is not a Python distribution: names and versions from ``conda-meta`` file names."""

from __future__ import annotations

import os
from collections.abc import Container

from envdoctor.facts.values import Unknown
from envdoctor.observe.locate.python_version import conda_name_version
from envdoctor.observe.packages.reading.metadata_directory import Distribution, checked_version
from envdoctor.text.files import Files
from envdoctor.versions.names import valid_name

__all__ = ["conda_packages"]


def conda_packages(prefix: str, known: Container[str], files: Files) -> list[Distribution]:
    """The packages of ``conda-meta`` whose names are not ``known`` as distributions already (conda's ``pytorch``,
    which installs a distribution called torch, is listed beside it). No ``conda-meta``: an empty list. Raises
    ``OSError`` when the folder is there and cannot be listed."""
    folder = os.path.join(prefix, "conda-meta")
    try:
        entries = files.names(folder)
    except FileNotFoundError:
        return []
    found: list[Distribution] = []
    for entry in entries:
        parts = conda_name_version(entry)
        name = valid_name(parts[0]) if parts is not None else None
        if parts is None or name is None or name in known:
            continue
        version: str | Unknown = checked_version(parts[1])
        path = os.path.join(folder, entry)
        found.append(Distribution(name, version, "conda", "conda", False, path, f"conda-meta/{entry}"))
    return found
