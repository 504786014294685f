"""Where the system's loader finds shared libraries: its cache (ld.so(8)) and its own folders."""

from __future__ import annotations

import os
import struct

from envdoctor.text.files import Files

LOADER_CACHE = "/etc/ld.so.cache"
#: Where a library is when the cache does not name it.
SYSTEM_FOLDERS = ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")
_LARGEST_CACHE = 16 << 20
#: The format of glibc 2.2 and later, alone or behind the older one: magic, number of entries, …; an entry is flags,
#: the places of name and path, and what the processor must have.
_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD = 48
_ENTRY = struct.Struct("<iIIIQ")


def cached_library(name: str, path: str = LOADER_CACHE) -> list[str]:
    """Absolute paths that the loader's cache has for a library, in its order; none when it cannot be read."""
    try:
        data = Files().head(path, _LARGEST_CACHE)
    except OSError:
        return []
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEAD:
        return []
    (count,) = struct.unpack_from("<I", data, start + len(_MAGIC))
    key = name.encode() + b"\0"
    found: list[str] = []
    for index in range(min(count, (len(data) - start - _HEAD) // _ENTRY.size)):
        _, place, value, _, _ = _ENTRY.unpack_from(data, start + _HEAD + index * _ENTRY.size)
        if data.startswith(key, start + place):
            text, end, _ = data[start + value : start + value + 4096].partition(b"\0")
            if end and text.startswith(b"/"):
                found.append(os.fsdecode(text))
    return found
