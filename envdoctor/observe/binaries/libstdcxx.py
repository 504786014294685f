"""The fact ``os.libstdcxx``: which GLIBCXX versions the C++ library has that a process of this environment would load.

The order is the loader's (ld.so(8)): LD_PRELOAD, LD_LIBRARY_PATH, then the system's cache of libraries. In a conda
environment it is usually conda's own, by the path that is written into conda's programs, and the system's when a
library from elsewhere was loaded first: there the answer is given only if it is the same for both.
"""

import os
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import Fact, Unknown
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.request import Request
from envdoctor.system.files import Files
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import rank

KEYS = ("os.libstdcxx",)
NEEDS = ("extension",)
_LIBSTDCXX = "libstdc++.so.6"


def observe(request: Request) -> list[Fact]:
    """``os.libstdcxx`` of an environment that runs on this machine."""
    wanted = [needs for item in request.items("extension") if isinstance(needs := item.get("glibcxx_needs"), str)]
    if not wanted or not request.place.live:
        reason = (
            Message("no extension asks for a version of it")
            if request.place.live
            else Message("the environment does not run here")
        )
        return [Fact("os.libstdcxx", Unknown(reason), "", "machine")]
    return [find_libstdcxx(wanted, request.place, request.environ)]


def find_libstdcxx(wanted: Sequence[str], layout: Layout, environ: Mapping[str, str], *, root: str = "") -> Fact:
    """The highest GLIBCXX version that the process would find, for extensions that ask for ``wanted`` ones.

    ``root`` is put before the system's paths (a test's own tree).
    """
    preloaded = [
        path for path in environ.get("LD_PRELOAD", "").replace(":", " ").split() if path.endswith("/" + _LIBSTDCXX)
    ]
    named = [f"{path}/{_LIBSTDCXX}" for path in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if path]
    own = [os.path.join(layout.prefix, "lib", _LIBSTDCXX)] if layout.kind == "conda" and not preloaded else []
    first, conda = _first([*preloaded, *named]), _first(own)
    if first is None:
        from envdoctor.observe.binaries.reading.elf_file import LOADER_CACHE, SYSTEM_FOLDERS, cached_library

        system = [*cached_library(_LIBSTDCXX, root + LOADER_CACHE), *(f"{one}/{_LIBSTDCXX}" for one in SYSTEM_FOLDERS)]
        first = _first([root + path for path in system])
    found = sorted((one for one in (conda, first) if one is not None), key=lambda one: rank(one[0]))
    if not found:
        reason = Message("no {} of this machine could be read", _LIBSTDCXX)
        return Fact("os.libstdcxx", Unknown(reason), "", "machine")
    low, high = found[0], found[-1]
    if any(rank(low[0]) < rank(one) <= rank(high[0]) for one in wanted):
        reason = Message(
            "{} has {}, {} has {}: which is loaded depends on what is first", low[1], low[0], high[1], high[0]
        )
        return Fact("os.libstdcxx", Unknown(reason), "", "machine")
    # Either is enough, or neither is: then the higher one says how much is missing.
    version, path = high if any(rank(one) > rank(high[0]) for one in wanted) else low
    return Fact("os.libstdcxx", version, path, "machine")


def _first(paths: Sequence[str]) -> tuple[str, str] | None:
    """The version of the first of these files that can be read (the loader too passes over what is not for this
    machine), and its path."""
    from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile, newest

    machine = os.uname().machine if hasattr(os, "uname") else ""
    files = Files()
    for path in paths:
        try:
            with ElfFile(path, files) as file:
                version = newest(file.defined_versions(), "GLIBCXX") if file.machine == machine else None
        except (ElfError, OSError, ValueError):
            continue
        if version:
            return version, path
    return None
