"""Reading a snapshot whose files lie on this machine: what the cache and a folder have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.hub.header_plan import Room
from envdoctor.hub.local_files import read_header, read_ranges, read_whole
from envdoctor.hub.snapshot import FileEntry, Unread

__all__ = ["LocalSnapshot"]


class LocalSnapshot:
    """``files`` by path, each of which ``_place`` finds on the disk, or says why it is not there.

    ``largest_header`` bounds each header in bytes.
    """

    files: Mapping[str, FileEntry] = {}

    def __init__(self, largest_header: int) -> None:
        self._largest_header = largest_header

    def read(self, path: str, limit: int) -> bytes | Unread:
        """The whole file."""
        place = self._place(path)
        return place if isinstance(place, Unread) else read_whole(place, path, limit)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        """Byte ranges of one file."""
        place = self._place(path)
        return place if isinstance(place, Unread) else read_ranges(place, path, ranges)

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """The headers, one file after the other: a disk is not faster side by side."""
        found: dict[str, bytes | Unread] = {}
        room = Room(self._largest_header)
        for path in paths:
            place = self._place(path)
            size = self.files[path].size if path in self.files else 0
            found[path] = place if isinstance(place, Unread) else read_header(place, path, size, room)
        return found

    def _place(self, path: str) -> str | Unread:
        raise NotImplementedError
