"""What a user's text names: a folder, or a repository and perhaps a revision of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.hub.snapshot import SnapshotError
from envdoctor.observe.model.reading.reference import is_repo_name

__all__ = ["Named", "parse_name"]

_URL = re.compile(
    r"https?://(?:[^/\s@]+)/((?!datasets/|spaces/)[\w.-]+/[\w.-]+?)(?:/(?:tree|blob|commit)/([^\s?#]+?))?/?\Z"
)


class Named(NamedTuple):
    """What a text names: a folder's path, or a repository and perhaps a revision of it."""

    folder: str | None
    repo: str | None
    revision: str | None


def parse_name(text: str, cwd: str, environ: Mapping[str, str]) -> Named:
    """What a text names. An existing folder wins over a repository's name; a config.json means its folder.

    Forms: a path, ``ORG/NAME``, ``ORG/NAME@REVISION``, the address of a model's page. Raises :class:`SnapshotError`.
    """
    shown = text if text.isprintable() and len(text) <= 200 else ascii(text)[1:200]
    if not text.strip() or "\0" in text or len(text) > 4096:
        raise SnapshotError("the model has no name: give ORG/NAME or a folder", "usage")
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    path = home + text[1:] if home and text.startswith(("~/", "~\\")) else text
    path = os.path.join(cwd, path)
    if os.path.isfile(path) and os.path.basename(path) == "config.json":
        path = os.path.dirname(path)
    if os.path.isdir(path):
        return Named(os.path.abspath(path), None, None)
    match = _URL.match(text)
    if match:
        return Named(None, match[1], match[2] or None)
    if text.startswith(("ms:", "modelscope:")):
        raise SnapshotError(f"{shown}: ModelScope is not read yet; download the model and give its folder", "usage")
    name, at, revision = text.partition("@")
    if not is_repo_name(name):
        if os.path.exists(path):
            raise SnapshotError(f"{shown} is a file: give the folder that holds it", "usage")
        raise SnapshotError(f"{shown} is no folder here and no name of a repository (ORG/NAME)", "usage")
    return Named(None, name, revision or None if at else None)
