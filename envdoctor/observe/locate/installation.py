"""Recognising a Python installation or virtual environment by the files around its interpreter, and the
version of that from files that carry it."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.system.files import Files
from envdoctor.system.message import Message

#: ``Installation.library`` of the Windows layout, where the library folder ``Lib`` carries no version.
WINDOWS = "Lib"

_LIBRARY = re.compile(r"(python|pypy|graalpy)(\d{1,3})\.(\d{1,3})(t?)\Z")
_NAMED_FOR = r"(python|pypy|graalpy)(\d\.\d{1,3})(t?)"
_PYTHON_NAME = r"(?i)(python|pypy|graalpy)w?[\d.]*t?(\.exe)?\Z"
_INTERPRETERS = ("bin/python", "bin/python3", "bin/pypy3", "python.exe", "Scripts/python.exe", "bin/python.exe")
#: How far above the interpreter its library folder is looked for.
_CLIMB = 6
_PY_VERSION = r'(?m)^#define[ \t]+PY_VERSION[ \t]+"(\d{1,3}\.\d{1,3}\.\d{1,3}(?:(?:a|b|rc)\d{1,3})?)\+?"'
_FULL = r"(\d{1,3}\.\d{1,3}\.\d{1,3})(?:(a|b|rc)(\d{1,3})|\.(alpha|beta|candidate)\.(\d{1,3}))?"
_LEVELS = {"alpha": "a", "beta": "b", "candidate": "rc"}
#: Debian's list of installed packages; a few MB on a desktop.
_DPKG_STATUS = "var/lib/dpkg/status"
_DPKG_LIMIT = 64 << 20


class Installation(NamedTuple):
    """A prefix that holds a Python.

    ``kind`` is venv, conda or system. ``library`` is the name of the library folder (``python3.11``, ``python3.13t``,
    ``pypy3.10``, :data:`WINDOWS`), or None when there is none. ``settings`` are those of ``pyvenv.cfg``. ``base`` is
    the prefix of the installation that a virtual environment was made from: the prefix itself for others, None when it
    is gone.
    """

    prefix: str
    kind: str
    library: str | None
    settings: dict[str, str]
    base: str | None


def is_python_name(path: str) -> bool:
    """Return whether a file is called like an interpreter (``python3.11``, ``pypy3``, ``python.exe``)."""
    return re.match(_PYTHON_NAME, os.path.basename(path)) is not None


def of_interpreter(executable: str, files: Files) -> Installation | None:
    """Return the installation that an interpreter belongs to, or None when files do not tell.

    A virtual environment's interpreter is usually a link to its base: so ``pyvenv.cfg`` is looked for beside the link,
    as CPython does, and only what is no virtual environment is resolved.
    """
    folder = os.path.dirname(executable)
    above = os.path.dirname(folder)
    for place in (folder, above):
        if files.is_file(os.path.join(place, "pyvenv.cfg")):
            return at_prefix(place, files)
    real = files.resolved(executable)
    library = _library_named_by(os.path.basename(real))
    prefix = _climb(os.path.dirname(real), library, files)
    return None if prefix is None else at_prefix(prefix, files, library)


def at_prefix(prefix: str, files: Files, named: str | None = None) -> Installation | None:
    """Return the installation whose ``sys.prefix`` is this folder, or None when it is none.

    ``named`` is the library folder its interpreter is named for, which decides when there are several.
    """
    settings = read_settings(prefix, files)
    if settings is not None:
        version = re.match(r"(\d{1,3}\.\d{1,3})(\.|\Z)", settings.get("version_info") or settings.get("version") or "")
        implementation = settings.get("implementation", "").lower()
        kind = implementation if implementation in ("pypy", "graalpy") else "python"
        named = kind + version[1] if version else None
        library = _library(prefix, named, files, made=True) or named
        return Installation(prefix, "venv", library, settings, _base(settings, library, files))
    library = _library(prefix, named, files)
    if files.is_folder(os.path.join(prefix, "conda-meta")):
        return Installation(prefix, "conda", library, {}, prefix)
    return None if library is None else Installation(prefix, "system", library, {}, prefix)


def has_standard_library(prefix: str, library: str, files: Files) -> bool:
    """Return whether a library folder is an interpreter's, and does not only hold packages of another prefix's."""
    return any(files.is_file(os.path.join(prefix, lib, library, "os.py")) for lib in ("lib", "lib64"))


def interpreter_in(prefix: str) -> str | None:
    """Return the interpreter of a prefix, as its own path; a link counts even when what it leads to is gone."""
    for name in _INTERPRETERS:
        path = os.path.join(prefix, *name.split("/"))
        if os.path.lexists(path):
            return path
    return None


def read_settings(prefix: str, files: Files) -> dict[str, str] | None:
    """Return the ``key = value`` lines of ``pyvenv.cfg``, keys in lower case; None without such a file."""
    try:
        text = files.text(os.path.join(prefix, "pyvenv.cfg"), 1 << 16)
    except OSError:
        return None
    settings: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            settings.setdefault(key.strip().lower(), value.strip())
    return settings


def implementation_of(installation: Installation) -> str | Unknown:
    """cpython, pypy or graalpy, by ``pyvenv.cfg`` or the name of the library folder."""
    named = installation.settings.get("implementation", "").lower()
    if named:
        return named
    if installation.library is None:
        return Unknown(Message("there is no library folder that would tell"))
    for name in ("pypy", "graalpy"):
        if installation.library.startswith(name):
            return name
    return "cpython"


def named_for_another(installation: Installation, executable: str | None) -> str | None:
    """Return the Python ("3.12") that a virtual environment's interpreter leads to, where its packages lie in the
    folder of another one: the Python it was made from was upgraded, or its link was changed."""
    if installation.kind != "venv" or executable is None or not installation.library:
        return None
    library = _LIBRARY.match(_library_named_by(os.path.basename(os.path.realpath(executable))) or "")
    own = _LIBRARY.match(installation.library)
    if library is None or own is None or library.group(1, 2, 3) == own.group(1, 2, 3):
        return None
    return f"{library[2]}.{library[3]}"


def _library_named_by(name: str) -> str | None:
    match = re.match(_NAMED_FOR, name)
    return match.group(0) if match else None


def _libraries(prefix: str, files: Files) -> Iterator[str]:
    seen: set[str] = set()
    for lib in ("lib", "lib64"):
        for name in files.names_or_none(os.path.join(prefix, lib)):
            if name in seen or not _LIBRARY.match(name):
                continue
            folder = os.path.join(prefix, lib, name)
            if any(files.is_folder(os.path.join(folder, inner)) for inner in ("site-packages", "dist-packages")) or (
                files.is_file(os.path.join(folder, "os.py"))
            ):
                seen.add(name)
                yield name


def _library(prefix: str, named: str | None, files: Files, *, made: bool = False) -> str | None:
    """Return the library folder of a prefix. Of several, the one that is ``named`` counts before the one that the
    interpreter leads to; after it where the name is that of the Python with which the environment was ``made``."""
    libraries = list(_libraries(prefix, files))
    if not libraries:
        lib = os.path.join(prefix, WINDOWS)
        windows = files.is_folder(os.path.join(lib, "site-packages")) or files.is_file(os.path.join(lib, "os.py"))
        return WINDOWS if windows else None
    if len(libraries) > 1:
        links = (os.path.join(prefix, "bin", name) for name in ("python3", "python", "pypy3"))
        led_to = (_library_named_by(os.path.basename(files.resolved(link))) for link in links)
        # A free-threaded build of 3.13 calls itself python3.13 in pyvenv.cfg, and its library folder python3.13t.
        choices = (named, f"{named}t")
        for choice in (*led_to, *choices) if made else (*choices, *led_to):
            if choice in libraries:
                return choice
    return max(libraries, key=lambda name: (name.startswith("python"), *map(int, re.findall(r"\d+", name))))


def _climb(folder: str, library: str | None, files: Files) -> str | None:
    """Return the nearest folder at or above this one with a standard library, as CPython looks for its prefix."""
    for _ in range(_CLIMB):
        for name in (library,) if library is not None else _libraries(folder, files):
            if has_standard_library(folder, name, files):
                # Where /lib is a link to /usr/lib, a Python that seems to live in / lives in /usr.
                merged = folder in (os.sep, files.root)
                return os.path.dirname(files.resolved(os.path.join(folder, "lib"))) if merged else folder
        if files.is_file(os.path.join(folder, WINDOWS, "os.py")):
            return folder
        above = os.path.dirname(folder)
        if folder in (above, files.root):
            break
        folder = above
    return None


def _base(settings: dict[str, str], library: str | None, files: Files) -> str | None:
    """Return the prefix that a virtual environment was made from. ``home`` is the folder of the base interpreter."""
    library = None if library == WINDOWS else library
    places: list[str] = []
    if settings.get("home"):
        home = files.inside(settings["home"])
        places.append(home)
        places.extend(
            os.path.dirname(files.resolved(os.path.join(home, name))) for name in (library, "python3") if name
        )
    if settings.get("executable"):
        places.append(os.path.dirname(files.resolved(files.inside(settings["executable"]))))
    for place in dict.fromkeys(places):
        prefix = _climb(place, library, files) if os.path.isabs(place) and files.is_folder(place) else None
        if prefix is not None:
            return prefix
    return None


def version_from_files(installation: Installation, files: Files) -> tuple[str, str] | None:
    """Return the full version of the interpreter ("3.11.9") and the file that says so, or None when no file gives it.

    ``pyvenv.cfg`` is asked after the base installation's own files: it keeps the version of the day the environment was
    made, and a base that is upgraded in place leaves it behind.
    """
    base, library = installation.base, installation.library
    if base is not None:
        for entry in files.names_or_none(os.path.join(base, "conda-meta")):
            name, version = conda_name_version(entry)
            if name == "python" and re.fullmatch(_FULL, version):
                return version, f"conda-meta/{entry}"
        header = "include/patchlevel.h" if library == WINDOWS else f"include/{library}/patchlevel.h"
        text = files.text_or_empty(os.path.join(base, *header.split("/")), 1 << 16) if library is not None else ""
        if match := re.search(_PY_VERSION, text):
            return match[1], header
    for key in ("version_info", "version"):
        match = re.match(_FULL, installation.settings.get(key, ""))
        if match:
            level = match[2] or _LEVELS.get(match[4] or "", "")
            return match[1] + (level + (match[3] or match[5]) if level else ""), "pyvenv.cfg"
    return None if base is None else _from_dpkg(base, library, files)


def conda_name_version(entry: str) -> tuple[str, str]:
    """Name and version in a ``conda-meta`` file name, ``numpy-2.1.3-py311h71ddf71_0.json``; empty in any other."""
    match = re.fullmatch(r"(?s)(.+)-([^-]+)-[^-]+\.json", entry)
    return (match[1], match[2]) if match else ("", "")


def _from_dpkg(base: str, library: str | None, files: Files) -> tuple[str, str] | None:
    """Debian and Ubuntu keep no header beside their interpreter, but list it with its version."""
    top = files.root or os.sep
    if library is None or not library.startswith("python") or base != os.path.join(top, "usr"):
        return None
    status = files.text_or_empty(os.path.join(top, *_DPKG_STATUS.split("/")), _DPKG_LIMIT)
    for package in (f"{library}-minimal", f"lib{library}-minimal"):
        start = status.find(f"Package: {package}\n")
        stanza = status[start : max(status.find("\n\n", start), start)] if start >= 0 else ""
        version = re.search(r"^Version: (?:\d+:)?(\d+\.\d+\.\d+)(?:~(a|b|rc)(\d+))?", stanza, re.M)
        if "\nStatus: install ok installed" in stanza and version:
            return "".join(part or "" for part in version.groups()), _DPKG_STATUS
    return None
