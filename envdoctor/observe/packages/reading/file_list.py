"""The compiled files that the file list (RECORD) of a distribution names."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.text.files import Files

__all__ = ["RECORD_LIMIT", "Listed", "listed_libraries"]

RECORD_LIMIT = 8 << 20
_LIBRARY = re.compile(rb"\.so[,.]")
_NAME = re.compile(rb"\.so(?:\.[\d.]+)?\Z")
_MOST = 500
_LONGEST = 400


class Listed(NamedTuple):
    """A file by its name below the folder of packages, and its size in bytes when it was installed, where that is
    told."""

    name: str
    size: int | None


def listed_libraries(metadata: str, files: Files) -> list[Listed]:
    """What RECORD lists as extension modules and shared libraries below the folder of packages; none without a list."""
    found: list[Listed] = []
    try:
        for piece in files.lines(os.path.join(metadata, "RECORD"), RECORD_LIMIT):
            found += filter(None, map(_listed, _lines_with_libraries(piece)))
            if len(found) >= _MOST:
                break
    except OSError:
        return []
    return found[:_MOST]


def _lines_with_libraries(piece: bytes) -> Iterator[bytes]:
    for match in _LIBRARY.finditer(piece):
        start, end = piece.rfind(b"\n", 0, match.start()) + 1, piece.find(b"\n", match.end())
        yield piece[start : end if end >= 0 else len(piece)]


def _listed(line: bytes) -> Listed | None:
    """``numpy/_core/_simd.cpython-311-x86_64-linux-gnu.so,sha256=…,3527040``; None for other files, and for names that
    are quoted or lead out of the folder."""
    name, _, rest = line.rstrip(b"\r").partition(b",")
    if not _NAME.search(name) or name[:1] in (b'"', b"/") or b".." in name or b"\0" in name or len(name) > _LONGEST:
        return None
    size = rest.rpartition(b",")[2]
    return Listed(name.decode("utf-8", "replace"), int(size) if size.isdigit() and len(size) < 16 else None)
