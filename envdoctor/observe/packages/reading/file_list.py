"""The compiled files that the file list (RECORD) of a distribution names."""

import errno
import os
from typing import NamedTuple

from envdoctor.text.files import Files
from envdoctor.text.message import Message

RECORD_LIMIT = 8 << 20
_ENDINGS = (b".so", b".pyd", b".dll")
_MOST = 500
_LONGEST = 400


class Listed(NamedTuple):
    """A file by its name below the folder of packages, and its size in bytes when it was installed, where that is
    told."""

    name: str
    size: int | None


def listed_libraries(metadata: str, files: Files) -> list[Listed]:
    """What RECORD lists as extension modules and shared libraries below the folder of packages. Raises ``OSError``,
    ``FileNotFoundError`` for an empty list too."""
    found: list[Listed] = []
    piece = b""
    for piece in files.lines(os.path.join(metadata, "RECORD"), RECORD_LIMIT):
        found += filter(None, map(_listed, piece.split(b"\n")))
        if len(found) >= _MOST:
            break
    if not piece:
        raise FileNotFoundError(errno.ENOENT, Message("it is empty"), metadata)
    return found[:_MOST]


def is_library(name: bytes) -> bool:
    """Whether a file of that name is an extension module or a shared library."""
    return name.endswith(_ENDINGS) or name.rstrip(b".0123456789").endswith(b".so")


def _listed(line: bytes) -> Listed | None:
    """``numpy/_core/_simd.cpython-311-x86_64-linux-gnu.so,sha256=…,3527040``; None for other files, and for names that
    are quoted or lead out of the folder."""
    name, _, rest = line.partition(b",")
    if not is_library(name):
        return None
    if name[:1] in (b'"', b"/") or b".." in name or b"\0" in name or len(name) > _LONGEST:
        return None
    size = rest.rstrip(b"\r").rpartition(b",")[2]
    return Listed(name.decode("utf-8", "replace"), int(size) if size.isdigit() and len(size) < 16 else None)
