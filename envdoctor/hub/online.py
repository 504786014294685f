"""A snapshot on a Hub: one request for the list, and then only what is asked for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

from envdoctor.hub.attempts import Again
from envdoctor.hub.header_cache import HeaderCache
from envdoctor.hub.header_plan import LARGEST_HEADER, Wanted, read_headers
from envdoctor.hub.listing import Listing, fetch_listing
from envdoctor.hub.ranges import RemoteFile
from envdoctor.hub.refusals import file_refused, listing_refused
from envdoctor.hub.snapshot import FileEntry, Snapshot, SnapshotError, Unread
from envdoctor.hub.transport import Transport, is_web_page
from envdoctor.hub.transport_error import TransportError
from envdoctor.observe.model.reading.reference import is_repo_name

__all__ = ["HubSnapshot", "open_hub"]

Result = TypeVar("Result")

_LARGEST_RANGE = 128 << 20
_REVISION = re.compile(r"[^\s\x00-\x1f\x7f~^:?*\[\\]{1,255}\Z")


class HubSnapshot:
    """The files of one commit on a Hub.

    ``refused`` are listed files whose entries cannot be trusted (their names are shown and never used as paths);
    ``complete`` is True: the list has every file of the commit. A ``gated`` repository lists its files to everybody.
    """

    complete = True

    def __init__(
        self, transport: Transport, asked: str, listing: Listing, cache: HeaderCache | None, largest_header: int
    ) -> None:
        self.repo: str | None = listing.repo
        self.asked = asked
        self.revision: str | None = listing.commit
        self.label = f"{listing.repo} @ {listing.commit[:7]}"
        self.files: Mapping[str, FileEntry] = listing.files
        self.refused: tuple[Unread, ...] = listing.refused
        self.gated = listing.gated
        self.transport = transport
        self._local: Snapshot | None = None
        self._name = listing.repo
        self.cache = cache
        self.largest_header = largest_header
        self._read: dict[str, bytes | Unread] = {}
        self._headers: dict[str, bytes | Unread] = {}
        self._remote: dict[str, RemoteFile] = {}
        self._gate: str | None = None

    def read(self, path: str, limit: int) -> bytes | Unread:
        """The whole file, checked against the oid of the list."""
        entry = self._entry(path)
        if isinstance(entry, Unread):
            return entry
        if entry.size > limit:
            return Unread(path, f"it has {entry.size:,} bytes; at most {limit:,} are read")
        kept = self._local.read(path, limit) if self._local and self._is_local(entry) else None
        if isinstance(kept, bytes):
            return kept
        if path not in self._read:
            self._read[path] = self._ask(path, lambda: self._whole(entry))
        return self._read[path]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        """Byte ranges of one file, one request each; only the first goes through the Hub's redirect."""
        entry = self._entry(path)
        if isinstance(entry, Unread):
            return entry
        places = [(offset + entry.size if offset < 0 else offset, length) for offset, length in ranges]
        if any(offset < 0 or length < 0 or offset + length > entry.size for offset, length in places):
            return Unread(path, f"it has {entry.size:,} bytes, fewer than its contents say")
        if sum(length for _, length in places) > _LARGEST_RANGE:
            return Unread(path, f"more than {_LARGEST_RANGE >> 20} MiB of it would have to be read")
        kept = self._local.read_ranges(path, ranges) if self._local and self._is_local(entry) else None
        if isinstance(kept, list):
            return kept
        remote = self._remote.setdefault(path, RemoteFile(self.transport, self._url(path), entry.size))
        return self._ask(path, lambda: [remote.read(offset, length) for offset, length in places])

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """The headers, from the cache on disk where the file's sha256 is known there."""
        waiting: list[FileEntry] = []
        for path in dict.fromkeys(paths):
            entry = self._entry(path)
            if path in self._headers:
                continue
            if isinstance(entry, Unread):
                self._headers[path] = entry
                continue
            kept = self.cache.get(entry.oid) if self.cache else None
            if kept is None and self._local and self._is_local(entry):
                found = self._local.headers([path])[path]
                kept = found if isinstance(found, bytes) else None
            if kept is not None and len(kept) <= entry.size:
                self._headers[path] = kept
            elif self._gate:
                self._headers[path] = Unread(path, self._gate)
            else:
                waiting.append(entry)
        files = [Wanted(self._url(entry.path), entry.size) for entry in waiting]
        results = read_headers(self.transport, self._name, files, self.largest_header)
        for entry, result in zip(waiting, results, strict=True):
            if isinstance(result, TransportError):
                self._headers[entry.path] = Unread(entry.path, self._reason(result))
            else:
                self._headers[entry.path] = result
                if self.cache:
                    self.cache.put(entry.oid, result)
        return {path: self._headers[path] for path in paths}

    def read_locally(self, local: Snapshot) -> None:
        """Take what another source holds with the same oid from there."""
        self._local = local

    # --- the parts ---------------------------------------------------------------------------------------------------

    def _entry(self, path: str) -> FileEntry | Unread:
        return self.files.get(path) or Unread(path, f"it is not among the files of {self.label}")

    def _is_local(self, entry: FileEntry) -> bool:
        other = self._local.files.get(entry.path) if self._local else None
        return other is not None and entry.oid is not None and other.oid == entry.oid

    def _url(self, path: str) -> str:
        return f"{self.transport.endpoint}/{self._name}/resolve/{self.revision}/{quote(path)}"

    def _ask(self, path: str, call: Callable[[], Result]) -> Result | Unread:
        if self._gate:
            return Unread(path, self._gate)
        result = self.transport.side_by_side([call])[0]
        return Unread(path, self._reason(result)) if isinstance(result, TransportError) else result

    def _whole(self, entry: FileEntry) -> bytes:
        def once() -> bytes:
            answer = self.transport.fetch(self._url(entry.path), entry.size)
            if not _is(entry, answer.body):
                what = "a web page" if is_web_page(answer.headers, answer.body) else "other bytes than its list names"
                raise Again(f"the server sent {what} in its place")
            return answer.body

        return self.transport.persist(once)

    def _reason(self, error: TransportError) -> str:
        reason = file_refused(error, self._name, self.transport)
        if error.code == "GatedRepo":
            self._gate = reason
        return reason


def open_hub(
    repo: str,
    revision: str | None,
    transport: Transport,
    *,
    cache: HeaderCache | None = None,
    largest_header: int = LARGEST_HEADER,
) -> HubSnapshot:
    """The snapshot of a branch, tag, commit, beginning of a commit or ``refs/pr/N`` (None: ``main``).

    Raises :class:`SnapshotError`.
    """
    if not is_repo_name(repo):
        raise SnapshotError(f"{repo[:100]!r} is no name of a repository: give ORG/NAME or a folder", "usage")
    revision = revision or "main"
    if not _REVISION.match(revision) or ".." in revision:
        raise SnapshotError(f"{revision[:100]!r} is no revision: give a branch, a tag, a commit or refs/pr/N", "usage")
    try:
        listing = transport.in_time(lambda: fetch_listing(transport, repo, revision))
    except TransportError as error:
        raise listing_refused(error, repo, revision, transport) from None
    return HubSnapshot(transport, repo, listing, cache, largest_header)


def _is(entry: FileEntry, body: bytes) -> bool:
    """Whether the bytes are those that the list names."""
    if len(body) != entry.size:
        return False
    kind, _, digest = (entry.oid or "").partition(":")
    if kind == "sha1":
        return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest() == digest  # noqa: S324 (git's own)
    return kind != "sha256" or hashlib.sha256(body).hexdigest() == digest
