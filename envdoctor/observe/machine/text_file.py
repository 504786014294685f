"""Reading one small text file of the machine without being held up by it."""

from __future__ import annotations

import os
import stat

__all__ = ["exists", "names", "read_text"]


def read_text(path: str, limit: int = 65536) -> str | None:
    """The first ``limit`` bytes of a regular file as text, or None when there is no such file or it cannot be read.

    Opened without blocking, so that a pipe put in the place of a version file does not stop the program.
    Bytes that are not UTF-8 become replacement characters.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        parts: list[bytes] = []
        while limit > 0:
            # Files of /proc say that they are empty and give less than was asked for: read until they end.
            part = os.read(handle, limit)
            if not part:
                break
            parts.append(part)
            limit -= len(part)
    except OSError:
        return None
    finally:
        os.close(handle)
    return b"".join(parts).decode("utf-8", "replace")


def exists(path: str) -> bool:
    """Whether something is there, whatever it is; False also where looking is forbidden."""
    return os.path.exists(path)


def names(folder: str, limit: int = 4096) -> list[str]:
    """Sorted names in a folder, at most ``limit``; empty when there is no such folder or it cannot be listed."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) == limit:
                    break
                found.append(entry.name)
    except (OSError, ValueError):
        return []
    return sorted(found)
