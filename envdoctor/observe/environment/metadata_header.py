"""The Name and Version of a METADATA or PKG-INFO file, read from its header and no further."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from envdoctor.observe.environment.files import read_regular

__all__ = ["Header", "read_header"]

#: Name and Version stand in the first 600 bytes of all 313 files of the benchmark environment.
_FIRST_READ = 1024
_HEADER_LIMIT = 1 << 20
_FIELD = rb"(?im)^(name|version)[ \t]*:[ \t]*([^\r\n]*)"
_BLANK_LINE = rb"\r?\n\r?\n"


class Header(NamedTuple):
    """``name`` and ``version`` as written, None when they are not there. ``cut`` is true when the file ends within the
    line of its version, so that the version may have lost its end."""

    name: str | None
    version: str | None
    cut: bool = False


def read_header(descriptor: int) -> Header:
    """Read from an open file; the header ends at the first blank line or after 1 MiB. Raises ``OSError``."""
    first = os.read(descriptor, _FIRST_READ)
    name = first.find(b"\nName: ") + 7
    version = first.find(b"\nVersion: ") + 10
    if name > 6 and version > 9:
        last = max(name, version)
        name_end, version_end = first.find(b"\n", name), first.find(b"\n", version)
        if (
            name_end > 0
            and version_end > 0
            and not (first.find(b"\n\n", 0, last) >= 0 or first.find(b"\n\r\n", 0, last) >= 0)
        ):
            return Header(_text(first[name:name_end]), _text(first[version:version_end]))
    return _parse(first + read_regular(descriptor, _HEADER_LIMIT - len(first)))


def _parse(data: bytes) -> Header:
    blank = re.search(_BLANK_LINE, data)
    header = data[: blank.end()] if blank else data
    found: dict[bytes, re.Match[bytes]] = {}
    for match in re.finditer(_FIELD, header):
        found.setdefault(match[1].lower(), match)
    name, version = found.get(b"name"), found.get(b"version")
    return Header(
        name=_text(name[2]) if name and name.end() < len(header) else None,
        version=_text(version[2]) if version else None,
        cut=version is not None and version.end() == len(header),
    )


def _text(value: bytes) -> str | None:
    return value.decode("utf-8", "replace").strip() or None
