"""The version of an installation's interpreter, from files that carry it."""

import os
import re
from typing import NamedTuple

from envdoctor.observe.locate.installation import WINDOWS, Installation
from envdoctor.text.files import Files

_PY_VERSION = re.compile(rb'^#define[ \t]+PY_VERSION[ \t]+"(\d{1,3}\.\d{1,3}\.\d{1,3}(?:(?:a|b|rc)\d{1,3})?)\+?"', re.M)
_FULL = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3})(?:(a|b|rc)(\d{1,3})|\.(alpha|beta|candidate)\.(\d{1,3}))?")
_LEVELS = {"alpha": "a", "beta": "b", "candidate": "rc"}
#: Debian's list of installed packages; a few MB on a desktop.
_DPKG_STATUS = "var/lib/dpkg/status"
_DPKG_LIMIT = 64 << 20


class PythonVersion(NamedTuple):
    """A version ("3.11.9") and the file that says so."""

    version: str
    origin: str


def version_from_files(installation: Installation, files: Files) -> PythonVersion | None:
    """The full version of the interpreter, or None when no file gives it.

    ``pyvenv.cfg`` is asked after the base installation's own files: it keeps the version of the day the environment was
    made, and a base that is upgraded in place leaves it behind.
    """
    base, library = installation.base, installation.library
    if base is not None:
        found = _from_conda(base, files) or _from_header(base, library, files)
        if found is not None:
            return found
    for key in ("version_info", "version"):
        match = _FULL.match(installation.settings.get(key, ""))
        if match:
            level = match[2] or _LEVELS.get(match[4] or "", "")
            return PythonVersion(match[1] + (level + (match[3] or match[5]) if level else ""), "pyvenv.cfg")
    return None if base is None else _from_dpkg(base, library, files)


def conda_name_version(entry: str) -> tuple[str, str, str] | None:
    """Name, version and build in a ``conda-meta`` file name, ``numpy-2.1.3-py311h71ddf71_0.json``."""
    if not entry.endswith(".json"):
        return None
    parts = entry[: -len(".json")].rsplit("-", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def _from_conda(base: str, files: Files) -> PythonVersion | None:
    for entry in files.names_or_none(os.path.join(base, "conda-meta")):
        if entry.startswith("python-"):
            parts = conda_name_version(entry)
            if parts is not None and parts[0] == "python" and _FULL.fullmatch(parts[1]):
                return PythonVersion(parts[1], f"conda-meta/{entry}")
    return None


def _from_header(base: str, library: str | None, files: Files) -> PythonVersion | None:
    if library is None:
        return None
    header = "include/patchlevel.h" if library == WINDOWS else f"include/{library}/patchlevel.h"
    try:
        match = _PY_VERSION.search(files.head(os.path.join(base, *header.split("/")), 1 << 16))
    except OSError:
        return None
    return PythonVersion(match[1].decode("ascii"), header) if match else None


def _from_dpkg(base: str, library: str | None, files: Files) -> PythonVersion | None:
    """Debian and Ubuntu keep no header beside their interpreter, but list it with its version."""
    top = files.root or os.sep
    if library is None or not library.startswith("python") or base != os.path.join(top, "usr"):
        return None
    try:
        status = files.head(os.path.join(top, *_DPKG_STATUS.split("/")), _DPKG_LIMIT)
    except OSError:
        return None
    for package in (f"{library}-minimal", f"lib{library}-minimal"):
        start = status.find(b"Package: " + package.encode("ascii") + b"\n")
        stanza = status[start : max(status.find(b"\n\n", start), start)] if start >= 0 else b""
        version = re.search(rb"^Version: (?:\d+:)?(\d+\.\d+\.\d+)(?:~(a|b|rc)(\d+))?", stanza, re.M)
        if b"\nStatus: install ok installed" in stanza and version:
            return PythonVersion(b"".join(part or b"" for part in version.groups()).decode("ascii"), _DPKG_STATUS)
    return None
