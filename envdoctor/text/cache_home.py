"""The folder below which envdoctor keeps what it may read again: tensor headers, and results of compiled files."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["cache_home"]


def cache_home(environ: Mapping[str, str]) -> str | None:
    """Envdoctor's cache folder with these variables; None when no place is named. It need not be there yet."""
    for name, below in (("XDG_CACHE_HOME", ""), ("LOCALAPPDATA", ""), ("HOME", ".cache"), ("USERPROFILE", ".cache")):
        folder = environ.get(name)
        if folder and os.path.isabs(folder) and "\0" not in folder:
            return os.path.join(folder, below, "envdoctor")
    return None
