"""Read the one file of the ledger that holds the packages that only lists ask for.

Its first line has their names; the rest is their texts, one after the other, compressed. A check of an environment reads
the names alone; the texts are read once a process, when one of these packages is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["PACKED", "Packed"]

#: No package has this name: it begins with an underscore.
PACKED = "_metadata.xz"
#: Bytes that the names and the texts may have at most.
_LONGEST_NAMES, _LONGEST = 1 << 20, 32 << 20
_BEGIN = b"envdoctor-ledger\t"


class Packed:
    """The packages of the file in the folder ``home``; none when the file is missing or invalid."""

    def __init__(self, home: Path) -> None:
        self._path = home / PACKED
        self._names: tuple[str, ...] | None = None
        self._texts: Mapping[str, bytes] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the packages, sorted."""
        if self._names is None:
            try:
                with open(self._path, "rb") as file:
                    line = file.readline(_LONGEST_NAMES).decode()
            except (OSError, ValueError):
                line = ""
            self._names = tuple(line.split()) if line.endswith("\n") else ()
        return self._names

    def text(self, name: str) -> bytes | None:
        """Return the text of a package as other packages have it in their own file, or None if it is not here."""
        if name not in self.names:
            return None
        if self._texts is None:
            try:
                self._texts = dict(zip(self.names, _texts(self._path.read_bytes()), strict=True))
            except (OSError, ValueError):
                self._texts = {}
        return self._texts.get(name)


def _texts(data: bytes) -> list[bytes]:
    """Raises :class:`ValueError` for what cannot be read."""
    try:
        from lzma import LZMADecompressor, LZMAError
    except ImportError:  # a Python that was built without it
        return []
    reader = LZMADecompressor()
    try:
        whole = reader.decompress(data[data.find(b"\n") + 1 :], _LONGEST)
    except (LZMAError, EOFError) as error:
        raise ValueError(str(error)) from None
    if not reader.eof or reader.unused_data:
        raise ValueError("it is longer than it may be, or cut off")
    _, *parts = (b"\n" + whole.removesuffix(b"\n")).split(b"\n" + _BEGIN)
    return [_BEGIN + part + b"\n" for part in parts]
