"""The version that a package's code gives itself, where it is another one than its metadata's."""

from __future__ import annotations

import os
import re

from envdoctor.observe.packages.reading.file_list import RECORD_LIMIT
from envdoctor.text.files import Files
from envdoctor.versions.pep440 import is_version, same_release

_FILES = ("__init__.py", "version.py", "_version.py", "__version__.py")
_LIMIT = 1 << 16
_LITERAL = re.compile(rb"""__version__(?:[ \t]*:[ \t]*str)?[ \t]*=[ \t]*["']([0-9][^"'\\\r\n]{0,60})["']""")


def module_in(folder: str, module: str, files: Files) -> str | None:
    """The regular package or the module file that a folder gives under this name."""
    package = os.path.join(folder, module)
    if files.is_file(os.path.join(package, "__init__.py")):
        return package
    return f"{package}.py" if files.is_file(f"{package}.py") else None


def version_of_code(place: str, files: Files) -> tuple[str, str] | None:
    """The plain text that a package (or a module file) assigns to ``__version__``, and the name of the file below the
    package's folder. The text is matched, never run; None when no file says it so."""
    for name in _FILES if not place.endswith(".py") else ("",):
        path = os.path.join(place, name) if name else place
        try:
            version = _literal(b"\n" + files.head(path, _LIMIT))
        except OSError:
            continue
        if is_version(version):
            return version, f"{os.path.basename(place)}/{name}" if name else os.path.basename(place)
    return None


def _literal(text: bytes) -> str:
    at = text.find(b"\n__version__")
    while at >= 0:
        match = _LITERAL.match(text, at + 1)
        if match:
            return match[1].decode("ascii", "replace")
        at = text.find(b"\n__version__", at + 1)
    return ""


def another_version(
    metadata: str, version: str, place: str, files: Files, *, listed: bool = True
) -> tuple[str, str] | None:
    """The version of the code at ``place`` and its file, when it is another release than ``version`` of the metadata
    directory.

    ``listed``: the code is what an installer unpacked. Makers forget to raise ``__version__``; so the file must also
    be another one than RECORD lists. Where nothing lists it, nothing is said.
    """
    said = version_of_code(place, files)
    if said is None or same_release(said[0], version):
        return None
    return said if not listed or _replaced(metadata, place, said[1], files) else None


def _replaced(metadata: str, place: str, name: str, files: Files) -> bool:
    """Whether a file is another one than RECORD says, by its size or its hash."""
    try:
        record = files.head(os.path.join(metadata, "RECORD"), RECORD_LIMIT)
        content = files.head(os.path.join(os.path.dirname(place), *name.split("/")), _LIMIT << 4)
    except OSError:
        return False
    match = re.search(rb"^%s,sha256=([A-Za-z0-9_-]{43}),\d+\r?$" % re.escape(name.encode()), record, re.MULTILINE)
    if match is None:
        return False
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=") != match[1]
