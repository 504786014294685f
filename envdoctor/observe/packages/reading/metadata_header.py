"""What a METADATA or PKG-INFO file says in its header: name, version, requirements."""

import os
import re
from typing import NamedTuple

from envdoctor.text.files import Files, read_regular

__all__ = ["Header", "read_header"]

#: The header of 95 % of the 313 files of the benchmark environment ends within it; the longest has 76 KB.
_FIRST_READ = 8192
_HEADER_LIMIT = 1 << 20
_FIELD = rb"(?im)^(name|version)[ \t]*:[ \t]*([^\r\n]*)"
_BLANK_LINE = rb"\r?\n\r?\n"
_REQUIREMENT = rb"(?im)^requires-dist[ \t]*:([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)"
_PYTHON = rb"(?im)^requires-python[ \t]*:[ \t]*([^\r\n]*)"


class Header(NamedTuple):
    """``name`` and ``version`` as written, None when they are not there. ``cut`` is true when the file ends within the
    line of its version, so that the version may have lost its end.

    ``requires`` are the values of Requires-Dist, without those that only an extra asks for; ``requires_python`` is that
    of Requires-Python. ``partial`` is true when the header is longer than what was read of it, ``utf8`` false when its
    beginning is no UTF-8 text."""

    name: str | None
    version: str | None
    cut: bool = False
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    partial: bool = False
    utf8: bool = True


def read_header(descriptor: int, files: Files) -> Header:
    """Read from a file that ``files`` opened; the header ends at the first blank line or after 1 MiB. Raises
    ``OSError``."""
    data = os.read(descriptor, _FIRST_READ)
    if not data.isascii() and not _is_utf8(data):
        return _parse(data)._replace(utf8=False)
    quick = _usual(data)
    if quick is not None:
        return quick
    data += read_regular(descriptor, _HEADER_LIMIT - len(data))
    files.use(0, 8 * len(data))  # it is looked through more than once
    return _usual(data) or _parse(data)


def _is_utf8(data: bytes) -> bool:
    """Whether the whole lines of it are; a character may be cut at the end."""
    try:
        data[: data.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return False
    return True


def _usual(data: bytes) -> Header | None:
    """What nearly every file looks like; None for anything else, and for a header that does not end in ``data``."""
    end = data.find(b"\n\n")
    windows = data.find(b"\r\n\r\n", 0, end if end >= 0 else len(data))
    header = data[: end + 1] if windows < 0 else data[: windows + 2].replace(b"\r\n", b"\n")
    name, version = header.find(b"\nName: ") + 7, header.find(b"\nVersion: ") + 10
    if name < 7 or version < 10 or b"\r" in header:
        return None
    requires, requires_python = _requirements(header)
    return Header(
        _text(header[name : header.index(b"\n", name)]),
        _text(header[version : header.index(b"\n", version)]),
        False,
        requires,
        requires_python,
    )


def _parse(data: bytes) -> Header:
    blank = re.search(_BLANK_LINE, data)
    header = data[: blank.end()] if blank else data
    found: dict[bytes, re.Match[bytes]] = {}
    for match in re.finditer(_FIELD, header):
        found.setdefault(match[1].lower(), match)
    name, version = found.get(b"name"), found.get(b"version")
    requires, requires_python = _requirements(header)
    return Header(
        name=_text(name[2]) if name and name.end() < len(header) else None,
        version=_text(version[2]) if version else None,
        cut=version is not None and version.end() == len(header),
        requires=requires,
        requires_python=requires_python,
        partial=blank is None and len(data) >= _HEADER_LIMIT,
    )


def _requirements(header: bytes) -> tuple[tuple[str, ...], str | None]:
    """Requires-Dist, without those of extras, and Requires-Python."""
    fields = header.lower().count(b"\nrequires-")
    at = header.find(b"\nRequires-Python: ")
    parts = header.split(b"\nRequires-Dist: ")[1:]
    if fields == len(parts) + (at >= 0) and b"\r" not in header and not _folded(header):
        values = [part.partition(b"\n")[0] for part in parts]
    else:
        values = [match[1] for match in re.finditer(_REQUIREMENT, header)]
    if at >= 0:
        end = header.find(b"\n", at + 1)
        python = _text(header[at + 18 : end if end >= 0 else len(header)])
    else:
        match = re.search(_PYTHON, header) if fields > len(parts) else None
        python = _text(match[1]) if match else None
    return tuple(_line(value) for value in _without_extras(values)), python


def _folded(header: bytes) -> bool:
    """Whether a requirement may go on on a second line."""
    start, last = header.find(b"\nRequires-Dist: "), header.rfind(b"\nRequires-Dist: ")
    end = header.find(b"\n", last + 1) + 2
    return header.find(b"\n ", start, end) >= 0 or header.find(b"\n\t", start, end) >= 0


def _without_extras(values: list[bytes]) -> list[bytes]:
    """The requirements whose marker does not have ``extra == "name"`` among conditions that must all hold.

    The name of a package may end in the same word, so that only what is behind a semicolon counts. What is less plain
    is left to who evaluates the marker.
    """
    everything = b"\n".join(values)
    if b" or " in everything or b"''" in everything or b'""' in everything:
        return [value for value in values if b"extra == " not in value or not _only_for_an_extra(value)]
    return [
        value
        for value in values
        if b"; extra == " not in value and (b"extra == " not in value or b"extra == " not in value.partition(b";")[2])
    ]


def _only_for_an_extra(value: bytes) -> bool:
    odd = b" or " in value or b"''" in value or b'""' in value
    return not odd and b"extra == " in value.partition(b";")[2]


def _line(value: bytes) -> str:
    """A value on one line: continuation lines are joined with a blank."""
    return " ".join(value.decode("utf-8", "replace").split())


def _text(value: bytes) -> str | None:
    return value.decode("utf-8", "replace").strip() or None
