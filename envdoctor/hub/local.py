"""A snapshot whose files lie on this machine: in the cache of huggingface_hub, or in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envdoctor.hub.headers import Room, announced
from envdoctor.hub.snapshot import FileEntry, Unread, entry_of, places_of
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

_FILES = Files()


@dataclass
class LocalSnapshot:
    """Where each of the files lies is in ``places``; of a file that has none ``absent`` says why.

    ``largest_header`` bounds each header in bytes. Each file is opened when it is read, and only as a regular file.
    """

    asked: str
    label: str
    files: Mapping[str, FileEntry]
    places: Mapping[str, str]
    refused: tuple[Unread, ...]
    largest_header: int
    absent: Message
    repo: str | None = None
    revision: str | None = None
    complete: bool = True

    def read(self, path: str, limit: int) -> bytes | Unread:
        """The whole file."""
        entry = entry_of(self, path, limit)
        found = entry if isinstance(entry, Unread) else self._ranges(path, [(0, entry.size)])
        return found if isinstance(found, Unread) else found[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        """Byte ranges of one file."""
        entry = entry_of(self, path)
        places = entry if isinstance(entry, Unread) else places_of(entry, ranges)
        return places if isinstance(places, Unread) else self._ranges(path, places)

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """The headers, one file after the other: a disk is not faster side by side."""
        room = Room(self.largest_header)
        return {path: self._header(path, room) for path in paths}

    def _header(self, path: str, room: Room) -> bytes | Unread:
        size = self.files[path].size if path in self.files else 0
        first = self.read_ranges(path, [(0, min(size, 8))])
        if isinstance(first, Unread):
            return first
        length = announced(first[0], size)
        if length is None:
            return first[0]
        problem = room.take(length)
        whole = Unread(path, problem) if problem else self.read_ranges(path, [(0, length)])
        return whole if isinstance(whole, Unread) else whole[0]

    def _ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        if path not in self.places:
            return Unread(path, self.absent)
        try:
            return _FILES.ranges(self.places[path], ranges)
        except OSError as error:
            return Unread(path, Message("it cannot be read: {}", because_of(error)))
