"""The tags in a distribution's WHEEL file: for which Python, ABI and platform it was built."""

from __future__ import annotations

import os
import re

from envdoctor.facts.values import ABSENT
from envdoctor.observe.packages.reading.metadata_directory import Distribution, Problem
from envdoctor.text.files import Files

__all__ = ["read_tags"]

_FOR_ALL = b"\nTag: py3-none-any\n"
_TAG = re.compile(rb"(?m)^Tag:[ \t]*([^\r\n]{1,200}?)[ \t]*\r?$")
_LIMIT = 1 << 14


def read_tags(item: Distribution, files: Files) -> tuple[tuple[str, ...], Problem | None]:
    """The tags; none when it runs everywhere, or says nothing about where it can run. A tag that is none is a problem,
    and then the file says nothing."""
    if item.kind != "dist-info":
        return (), None
    try:
        data = files.head(f"{item.path}{os.sep}WHEEL", _LIMIT)
    except OSError:
        return (), None
    if _FOR_ALL in data:
        return (), None
    tags = tuple(tag.decode("utf-8", "replace") for tag in _TAG.findall(data))
    broken = next((tag for tag in tags if tag.count("-") != 2), None)
    if broken is None:
        return tags, None
    detail = f"{os.path.basename(item.path)}/WHEEL has a tag that is none: {broken}"
    version = item.version if isinstance(item.version, str) else ABSENT
    return (), Problem(item.name, "unreadable", detail, version, item.path)
