"""What was found in an environment's compiled files, kept for the next run: one small JSON file an environment.

An entry counts only for the same files: their paths, sizes, times and samples of their content, torch's libraries among
them. Whatever else a cache file holds, it is ignored; every failure of the disk means "not there".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from zlib import adler32, crc32

from envdoctor import __version__
from envdoctor.facts.values import ABSENT, Absent, Unknown, Value
from envdoctor.text.cache import CacheFolder
from envdoctor.text.files import Files, because_of

__all__ = ["ResultCache", "identity"]

#: Changes when what is found in the same files does, or how it is written down.
_FORMAT = 2
_LARGEST = 1 << 20
_MOST_ENTRIES = 32
_LONGEST = 4096
_SAMPLE = 4096
_COLUMNS = frozenset(
    (
        *("path", "file", "problem", "arch", "glibc_needs", "glibcxx_needs", "built_cuda"),
        *("unresolved", "example", "missing_library", "glibcxx"),
    )
)

Columns = dict[str, Value] | None
Result = tuple[list[Columns], str | None]


def identity(path: str, files: Files) -> list[object]:
    """What tells a file from another one without reading all of it: path, size, times of change (the
    second of them nobody can set), and a checksum of its first and last 4 KiB (headers with the build's own id, and the
    table of sections). Why, when it cannot be read."""
    try:
        descriptor = files.open(path)
    except OSError as error:
        return [path, because_of(error)]
    except ValueError:
        return [path, "no path"]
    try:
        status = os.fstat(descriptor)
        sample = crc32(_part(descriptor, 0))
        if status.st_size > _SAMPLE:
            sample = crc32(_part(descriptor, status.st_size - _SAMPLE), sample)
        return [path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, sample]
    except OSError as error:
        return [path, because_of(error)]
    finally:
        os.close(descriptor)


def _part(descriptor: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, _SAMPLE)


class ResultCache:
    """The entry of one environment below ``home`` (envdoctor's cache folder); without a home there is none.

    ``environment`` names the environment (its folders of packages) and ``key`` all that the result depends on, as JSON
    can hold it.
    """

    def __init__(self, home: str | None, environment: Sequence[str], key: Sequence[object]) -> None:
        name = "\0".join(environment).encode("utf-8", "surrogatepass")
        self._entries = CacheFolder(home, "abi")
        self._name = f"{crc32(name):08x}{adler32(name):08x}.json"
        self._key = [_FORMAT, __version__, *key]

    def get(self) -> Result | None:
        """The result for these files, or None."""
        data = self._entries.read(self._name, _LARGEST)
        try:
            document = json.loads(data or b"")
            if document["key"] != self._key:
                return None
            why = document["why"]
            items = [_columns(item) for item in document["items"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return (items, why) if why is None or _is_text(why) else None

    def put(self, result: Result) -> None:
        """Keep a result; whole or not at all."""
        items = [None if item is None else {key: _written(item[key]) for key in item} for item in result[0]]
        data = json.dumps({"key": self._key, "items": items, "why": result[1]}, separators=(",", ":")).encode()
        if len(data) <= _LARGEST:
            self._entries.write(self._name, data)
            self._entries.trim(_MOST_ENTRIES, ".json")


def _written(cell: Value) -> object:
    if isinstance(cell, Unknown):
        return {"unknown": cell.reason}
    return None if isinstance(cell, Absent) else cell


def _columns(item: object) -> Columns:
    """The columns of one distribution. Raises ``ValueError`` and ``TypeError`` for anything else."""
    if item is None:
        return None
    if not isinstance(item, Mapping) or not _COLUMNS.issuperset(item):
        raise ValueError("not columns of a compiled file")
    return {key: _cell(key, cell) for key, cell in item.items()}


def _cell(key: str, cell: object) -> Value:
    if cell is None:
        return ABSENT
    if isinstance(cell, Mapping):
        reason = cell["unknown"]
        if not _is_text(reason):
            raise ValueError("not a reason")
        return Unknown(str(reason))
    if key == "unresolved":
        if isinstance(cell, int) and not isinstance(cell, bool) and 0 <= cell < 1 << 32:
            return cell
    elif isinstance(cell, str) and _is_text(cell):
        return cell
    raise ValueError("not a value of this column")


def _is_text(text: object) -> bool:
    """Whether it is text of a sane length that can be written out (a lone surrogate cannot)."""
    return isinstance(text, str) and len(text) <= _LONGEST and text.isascii() | _encodes(text)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
