"""The compiled files that the file list (RECORD) of a distribution names."""

import errno
import os

from envdoctor.system.files import Files
from envdoctor.system.message import Message

RECORD_LIMIT = 8 << 20
_ENDINGS = (b".so", b".pyd", b".dll")
_MOST = 500
_LONGEST = 400


def listed_libraries(metadata: str, files: Files) -> list[str]:
    """What RECORD lists as extension modules and shared libraries, by their names below the folder of packages. Raises
    ``OSError``, ``FileNotFoundError`` for an empty list too."""
    found: list[str] = []
    piece = b""
    for piece in files.lines(os.path.join(metadata, "RECORD"), RECORD_LIMIT):
        names = (line.partition(b",")[0] for line in piece.split(b"\n"))
        found += [name.decode("utf-8", "replace") for name in names if is_library(name) and _lies_below(name)]
        if len(found) >= _MOST:
            break
    if not piece:
        raise FileNotFoundError(errno.ENOENT, Message("it is empty"), metadata)
    return found[:_MOST]


def is_library(name: bytes) -> bool:
    """Whether a file of that name is an extension module or a shared library."""
    return name.endswith(_ENDINGS) or name.rstrip(b".0123456789").endswith(b".so")


def _lies_below(name: bytes) -> bool:
    """Whether a name is plain: neither quoted nor too long, and not one that leads out of the folder."""
    return name[:1] not in (b'"', b"/") and b".." not in name and b"\0" not in name and len(name) <= _LONGEST
