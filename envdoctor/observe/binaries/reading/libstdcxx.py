"""The fact ``os.libstdcxx``: which GLIBCXX versions the C++ library has that a process of this environment would load.

The order is the loader's (ld.so(8)): LD_PRELOAD, LD_LIBRARY_PATH, then the system's cache of libraries. In a conda
environment it is usually conda's own, by the path that is written into conda's programs, and the system's when a
library from elsewhere was loaded first: there the answer is given only if it is the same for both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.binaries.reading.loader import LIBSTDCXX, LOADER_CACHE, SYSTEM_FOLDERS
from envdoctor.observe.binaries.reading.result_cache import ResultCache, identity
from envdoctor.observe.locate.layout import Layout
from envdoctor.text.files import Files

__all__ = ["find_libstdcxx"]


def find_libstdcxx(
    wanted: Sequence[str], layout: Layout, environ: Mapping[str, str], *, cache: str | None = None, root: str = ""
) -> Fact:
    """The highest GLIBCXX version that the process would find, for extensions that ask for ``wanted`` ones.

    ``cache`` is envdoctor's cache folder, and ``root`` is put before the system's paths (a test's own tree).
    """
    preloaded = [
        path for path in environ.get("LD_PRELOAD", "").replace(":", " ").split() if path.endswith("/" + LIBSTDCXX)
    ]
    named = [f"{path}/{LIBSTDCXX}" for path in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if path]
    own = [os.path.join(layout.prefix, "lib", LIBSTDCXX)] if layout.kind == "conda" and not preloaded else []
    files = Files()
    looked_at = [
        *preloaded,
        *named,
        *own,
        root + LOADER_CACHE,
        *(f"{root}{folder}/{LIBSTDCXX}" for folder in SYSTEM_FOLDERS),
    ]
    key: list[object] = [sorted(set(wanted)), *(identity(path, files) for path in looked_at)] if cache else []
    kept = ResultCache(cache, ("libstdc++", *looked_at), key)
    if (known := kept.get()) is not None and len(known[0]) == 1 and known[0][0]:
        found = known[0][0]
        return _fact(found.get("glibcxx", Unknown("not known")), str(found.get("path")))
    from envdoctor.observe.binaries.reading.libstdcxx_versions import choose_libstdcxx

    value, path = choose_libstdcxx(wanted, [*preloaded, *named], own, root)
    kept.put(([{"glibcxx": value, "path": path}], None))
    return _fact(value, path)


def _fact(value: Value, origin: str) -> Fact:
    return Fact("os.libstdcxx", value, origin, "machine")
