"""The contract of a snapshot: one state of a model repository, whatever it is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["FileEntry", "Snapshot", "SnapshotError", "Unread"]


class SnapshotError(Exception):
    """A snapshot as a whole cannot be had: no such repository or revision, gated, private, offline, no answer in time.

    The message is one sentence for the user: what was asked for, what came back, what to do. ``kind`` is one of
    not-found, revision-not-found, gated, private, disabled, offline, network, timeout, protocol, usage.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Unread(NamedTuple):
    """A part of a snapshot that could not be read, with the reason as a clause. It is never "unchanged"."""

    path: str
    reason: str


class FileEntry(NamedTuple):
    """One file of a snapshot.

    ``oid`` names the content: ``sha1:<hex>`` for the git blob of a small file, ``sha256:<hex>`` for an LFS file. Equal
    oids mean equal bytes; oids of different kinds say nothing of each other. It is None where finding it out would
    mean reading a large file. ``size`` is in bytes.
    """

    path: str
    size: int
    oid: str | None


class Snapshot(Protocol):
    """One state of a repository. Reading is lazy; what was read is kept for the snapshot's life time.

    ``repo`` is the repository as the source calls it now (``zai-org/chatglm3-6b``) or None for a folder; ``asked`` is
    the name the user gave; ``revision`` the commit, or None; ``label`` is short and for people
    (``zai-org/chatglm3-6b @ b098244``, ``./model``). ``refused`` are listed files that are not in ``files``, because
    their names or oids cannot be trusted or they are not at hand.
    """

    repo: str | None
    asked: str
    revision: str | None
    label: str
    files: Mapping[str, FileEntry]
    refused: tuple[Unread, ...]

    def read(self, path: str, limit: int) -> bytes | Unread:
        """The whole file, unread when it is larger than ``limit`` bytes or cannot be fetched."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        """Byte ranges ``(offset, length)`` of one file, of exactly those lengths; a negative offset counts from the
        end."""
        ...

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """The safetensors headers of many files at once (the 8 length bytes and the JSON), read side by side."""
        ...
