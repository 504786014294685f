"""The fact ``libc_need``: the C library that compiled files ask for, of packages whose wheel does not vouch for it.

A wheel's tag (``manylinux_2_17``) promises the oldest glibc it works with. Read are the files of packages that were
built elsewhere without such a promise (``linux_x86_64``), and of those that promise only a newer glibc than this
system's.
"""

import os
import re

from envdoctor.facts.values import NOT_KNOWN, Fact, Records, Unknown, Value
from envdoctor.observe.packages.reading.file_list import listed_libraries
from envdoctor.observe.request import Request
from envdoctor.system.files import Files
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import rank

KEPT = True
KEYS = ("libc_need",)
NEEDS = ("dist", "os.libc_version")

_MANYLINUX = re.compile(r"manylinux_(\d{1,3})_(\d{1,3})_")
#: One build makes all files of a package.
_MOST = 8


def observe(request: Request) -> list[Fact]:
    """One item for each such package. Extensions for torch are looked at by themselves (``extension``)."""
    dists, system = request.value("dist"), request.value("os.libc_version")
    if not isinstance(dists, Records):
        return [Fact("libc_need", Unknown(Message("the installed packages are not known")), "", "environment")]
    others = {row["name"] for row in request.rows("torch-extensions", "package")}
    found: list[dict[str, Value]] = []
    for item in dists:
        tags = item.get("tags")
        if not isinstance(tags, tuple) or item.get("active") is not True or item["name"] in others:
            continue
        vouched = not any("-linux_" in tag for tag in tags) and not _newer(tags, system)
        needs = None if vouched else _needs(str(item["path"]), request.place.files)
        if needs is not None:
            named = {"package": item["name"], "version": item.get("version", NOT_KNOWN)}
            found.append({**named, "file": needs[1], "glibc": needs[0]})
    return [Fact("libc_need", Records(tuple(found), dists.incomplete), Message("compiled files"), "environment")]


def _newer(tags: tuple[str, ...], system: Value) -> bool:
    promised = [f"{match[1]}.{match[2]}" for tag in tags for match in _MANYLINUX.finditer(tag)]
    old = any(name in tag for tag in tags for name in ("manylinux1_", "manylinux2010_", "manylinux2014_"))
    known = isinstance(system, str) and bool(promised) and not old
    return known and rank(min(promised, key=rank)) > rank(str(system))


def _needs(metadata: str, files: Files) -> tuple[str, str] | None:
    """The highest version of glibc that a file asks for, and the file."""
    from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile, newest

    found: list[tuple[str, str]] = []
    try:
        listed = listed_libraries(metadata, files)
    except OSError:
        return None
    for name in listed[:_MOST]:
        try:
            with ElfFile(os.path.join(os.path.dirname(metadata), *name.split("/")), files) as file:
                version = newest(file.versions(), "GLIBC")
        except (ElfError, OSError, ValueError):
            continue
        found += [(version, name)] if version else []
    return max(found, key=lambda entry: rank(entry[0]), default=None)
