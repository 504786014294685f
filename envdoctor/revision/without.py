"""A snapshot without some of its files, for comparing what both sides can vouch for."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from envdoctor.hub.snapshot import FileEntry, Snapshot, Unread

__all__ = ["Without"]


class Without:
    """The snapshot with ``paths`` left out of its list; reading goes to the snapshot itself."""

    def __init__(self, snapshot: Snapshot, paths: Container[str]) -> None:
        self.repo = snapshot.repo
        self.asked = snapshot.asked
        self.revision = snapshot.revision
        self.label = snapshot.label
        self.files: Mapping[str, FileEntry] = {
            path: entry for path, entry in snapshot.files.items() if path not in paths
        }
        self.refused = snapshot.refused
        self._snapshot = snapshot

    def read(self, path: str, limit: int) -> bytes | Unread:
        """The whole file, as the snapshot reads it."""
        return self._snapshot.read(path, limit)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        """Byte ranges, as the snapshot reads them."""
        return self._snapshot.read_ranges(path, ranges)

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """Headers, as the snapshot reads them."""
        return self._snapshot.headers(paths)
