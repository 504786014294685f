"""Small text files and folders of the machine, which may be missing."""

from __future__ import annotations

from envdoctor.text.files import Files

_FILES = Files()


def read_text(path: str, limit: int = 65536) -> str | None:
    """The first ``limit`` bytes of a regular file as text, or None when there is no such file or it cannot be read."""
    try:
        return _FILES.head(path, limit).decode("utf-8", "replace")
    except OSError:
        return None


def names(folder: str, limit: int = 4096) -> list[str]:
    """Sorted names in a folder, at most ``limit``; empty when there is none or it cannot be listed."""
    return Files().names_or_none(folder)[:limit]
