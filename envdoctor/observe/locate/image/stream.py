"""Reading a tar archive that a stranger made: forward only, in bounded pieces, whatever its headers say."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, Any, cast

from envdoctor.observe.locate.layout import EnvironmentUnreadable
from envdoctor.text.files import Budget

__all__ = ["BROKEN", "ImageUnreadable", "Stream", "entries", "plain"]

#: What Python's readers raise for an archive that is damaged or meant to be.
BROKEN = (tarfile.TarError, OSError, EOFError, ValueError, ArithmeticError, RecursionError, MemoryError)
#: Longer than any header of an image; what a header says of its own length is read at once.
_MOST_AT_ONCE = 1 << 20
_MOST_GLOBAL = 100
#: How compressed files begin, and what reads them.
_COMPRESSED = (
    (b"\x1f\x8b", "gzip", "GzipFile"),
    (b"BZh", "bz2", "BZ2File"),
    (b"\xfd7zXZ", "lzma", "LZMAFile"),
    (b"\x28\xb5\x2f\xfd", "compression.zstd", "ZstdFile"),
)


class ImageUnreadable(EnvironmentUnreadable):
    """The image cannot be read; the message is what follows its name in a sentence."""


class Stream:
    """Bytes as :mod:`tarfile` reads them, counted by the budget. ``start`` is where they begin in the file, None when
    they are compressed there; ``last`` is what was read last."""

    def __init__(self, content: IO[bytes], start: int | None, budget: Budget) -> None:
        self._content, self.start, self._budget = content, start, budget
        self._place = 0
        self.last = b""

    def read(self, size: int) -> bytes:
        """Raises :class:`ImageUnreadable` for more than any header has."""
        if not 0 <= size <= _MOST_AT_ONCE:
            raise ImageUnreadable("has a header that is too large")
        self.last = self._content.read(size)
        self._budget.use(1, len(self.last))
        self._place += len(self.last)
        return self.last

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._place

    def seek(self, place: int) -> None:
        """Go to a byte, of what is compressed by reading all before it."""
        if self.start is not None:
            self._place = self._content.seek(place)
        while self._place < place and self.read(min(place - self._place, _MOST_AT_ONCE)):
            pass

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next bytes, so many. Raises ``EOFError``."""
        while size > 0:
            if not (piece := self.read(min(size, _MOST_AT_ONCE))):
                raise EOFError
            size -= len(piece)
            yield piece


class _Part(io.RawIOBase):
    """A range of a file, as a file."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._start, self._size, self._place = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        self._place = place + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._place)
        found = self._file.read(max(0, min(len(buffer), self._size - self._place)))
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


def plain(file: IO[bytes], start: int, size: int, budget: Budget) -> Stream:
    """A range of a file without its compression. Raises :class:`ImageUnreadable` for one that this Python cannot
    undo."""
    part = _Part(file, start, size)
    head = part.read(6) or b""
    part.seek(0)
    buffered = cast(IO[bytes], io.BufferedReader(part, 1 << 16))
    for begins, module, name in _COMPRESSED:
        if head.startswith(begins):
            try:
                open_: Callable[..., IO[bytes]] = getattr(import_module(module), name)
            except ImportError:
                kind = module.rpartition(".")[2]
                raise ImageUnreadable(f"is compressed with {kind}, which needs Python 3.14 to be read") from None
            return Stream(open_(fileobj=buffered) if module == "gzip" else open_(buffered), None, budget)
    return Stream(buffered, start, budget)


def entries(stream: Stream) -> Iterator[tarfile.TarInfo]:
    """The entries, each while the stream stands at its content. Raises what stands in ``BROKEN``."""
    tar: Any = tarfile.TarFile(fileobj=cast(Any, stream), errors="surrogateescape")
    while (entry := tar.next()) is not None:
        tar.members.clear()  # or all would be kept
        if len(tar.pax_headers) > _MOST_GLOBAL:
            raise ImageUnreadable("has too many global headers")
        yield entry
    if stream.last != bytes(len(stream.last) or 1):
        raise EOFError  # tarfile takes a damaged header for the end
