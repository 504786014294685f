"""What a METADATA or PKG-INFO file says in its header: name, version, requirements."""

import os
from collections.abc import Collection
from typing import NamedTuple

from envdoctor.text.files import Files, read_regular
from envdoctor.versions.names import normalise

__all__ = ["Header", "read_header"]

#: The header of 95 % of the 313 files of the benchmark environment ends within it; the longest has 76 KB.
_FIRST_READ = 8192
_HEADER_LIMIT = 1 << 20
#: The first letters of the fields that are read: most lines are others.
_STARTS = "NnVvRr"


class Header(NamedTuple):
    """``name`` and ``version`` as written, None when they are not there. ``cut`` is true when the file ends within the
    line of its version, so that the version may have lost its end.

    ``requires`` are the values of Requires-Dist, without those of extras that were not asked for; ``requires_python``
    is that of Requires-Python. ``partial`` is true when the header is longer than what was read of it, ``utf8`` false
    when its beginning is no UTF-8 text."""

    name: str | None
    version: str | None
    cut: bool = False
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    partial: bool = False
    utf8: bool = True


def read_header(descriptor: int, files: Files, extras: Collection[str] = ()) -> Header:
    """Read from a file that ``files`` opened; the header ends at the first blank line or after 1 MiB. ``extras`` are
    those whose requirements count, normalised. Raises ``OSError``."""
    data = os.read(descriptor, _FIRST_READ)
    utf8 = data.isascii() or _is_utf8(data)
    end = _end(data)
    if utf8 and end is None:
        data += read_regular(descriptor, _HEADER_LIMIT - len(data))
        files.use(0, 8 * len(data))  # it is looked through more than once
        end = _end(data)
    partial = end is None and len(data) >= _HEADER_LIMIT
    return _parse(_lines(data[:end]), end is not None, partial, utf8, extras)


def _is_utf8(data: bytes) -> bool:
    """Whether the whole lines of it are; a character may be cut at the end."""
    try:
        data[: data.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return False
    return True


def _end(data: bytes) -> int | None:
    """Where the first blank line begins; None without one."""
    end = data.find(b"\n\n")
    windows = data.find(b"\n\r\n", 0, end if end >= 0 else len(data))
    end = windows if windows >= 0 else end
    return end if end >= 0 else None


def _lines(data: bytes) -> list[str]:
    """The lines of a header, each with those that continue it. What stands behind a carriage return is left out."""
    header = data.decode("utf-8", "replace")
    if "\r" in header:
        header = "\n".join([line.partition("\r")[0] for line in header.split("\n")])
    return header.replace("\n ", " ").replace("\n\t", " ").split("\n")


def _parse(lines: list[str], ended: bool, partial: bool, utf8: bool, extras: Collection[str]) -> Header:
    first: dict[str, str] = {}
    requires: list[str] = []
    for line in lines:
        if line and line[0] in _STARTS:
            field = line.partition(":")[0].rstrip().lower()
            if field != "requires-dist":
                first.setdefault(field, line)
            elif not _only_for_another_extra(line, extras):
                requires.append(" ".join(line.partition(":")[2].split()))
    name, version, python = (first.get(field, "") for field in ("name", "version", "requires-python"))
    last = None if ended else lines[-1]  # the file may end within it
    named, cut = _value(name) if name is not last else None, version is last and version != ""
    return Header(named, _value(version), cut, tuple(requires), _value(python), partial, utf8)


def _value(line: str) -> str | None:
    return line.partition(":")[2].strip() or None


def _only_for_another_extra(value: str, extras: Collection[str]) -> bool:
    """Whether the marker has ``extra == "name"`` among conditions that must all hold, and names none of ``extras``.

    The name of a package may end in the same word, so that only what is behind a semicolon counts. What is less plain
    is left to who evaluates the marker.
    """
    marker = value.partition(";")[2]
    if "extra == " not in marker or " or " in marker or "''" in marker or '""' in marker:
        return False
    return not extras or not any(name in extras for name in normalise(marker).replace('"', "'").split("'"))
