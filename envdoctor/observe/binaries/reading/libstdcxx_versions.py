"""The GLIBCXX versions of the C++ libraries that a process might load, and which of them it loads."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from envdoctor.facts.values import Unknown
from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile
from envdoctor.observe.binaries.reading.loader import LIBSTDCXX, LOADER_CACHE, SYSTEM_FOLDERS, cached_library
from envdoctor.text.files import Files
from envdoctor.versions.dotted import rank

__all__ = ["choose_libstdcxx"]

_VERSION = re.compile(r"GLIBCXX_(\d{1,3}(?:\.\d{1,4}){1,2})\Z")


def choose_libstdcxx(
    wanted: Sequence[str], named: Sequence[str], own: Sequence[str], root: str
) -> tuple[str | Unknown, str]:
    """The version (or why it is not known) and the path of the library that would be loaded.

    ``wanted`` are the versions that extensions ask for, ``named`` the files that variables put first, ``own`` that of a
    conda environment.
    """
    first, conda = _first(named), _first(own)
    if first is None:
        system = [*cached_library(LIBSTDCXX, root + LOADER_CACHE), *(f"{one}/{LIBSTDCXX}" for one in SYSTEM_FOLDERS)]
        first = _first([root + path for path in system])
    found = sorted((one for one in (conda, first) if one is not None), key=lambda one: rank(one[0]))
    if not found:
        return Unknown(f"no {LIBSTDCXX} of this machine could be read"), ""
    low, high = found[0], found[-1]
    if any(rank(low[0]) < rank(one) <= rank(high[0]) for one in wanted):
        return Unknown(f"{low[1]} has {low[0]}, {high[1]} has {high[0]}: which is loaded depends on what is first"), ""
    # Either is enough, or neither is: then the higher one says how much is missing.
    return high if any(rank(one) > rank(high[0]) for one in wanted) else low


def _first(paths: Sequence[str]) -> tuple[str, str] | None:
    """The version of the first of these files that can be read (the loader too passes over what is not for this
    machine), and its path."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    files = Files()
    for path in paths:
        try:
            with ElfFile(path, files) as file:
                if file.machine != machine:
                    continue
                versions = [match[1] for name in file.defined_versions() if (match := _VERSION.match(name))]
        except (ElfError, OSError, ValueError):
            continue
        if versions:
            return max(versions, key=rank), path
    return None
