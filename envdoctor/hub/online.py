"""A snapshot on a Hub: one request for the list, and then only what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

from envdoctor.hub.access import Access
from envdoctor.hub.headers import RemoteFile, read_headers
from envdoctor.hub.listing import Listing, fetch_listing
from envdoctor.hub.object_ids import agrees
from envdoctor.hub.refusals import file_refused, listing_refused
from envdoctor.hub.snapshot import FileEntry, Snapshot, SnapshotError, Unread, entry_of, places_of
from envdoctor.hub.transport import is_web_page
from envdoctor.hub.transport_error import Again, TransportError
from envdoctor.models.names import is_repo_name, is_revision, printable
from envdoctor.text.message import Message

Result = TypeVar("Result")


class HubSnapshot:
    """The files of one commit on a Hub.

    ``refused`` are listed files whose entries cannot be trusted (their names are shown and never used as paths);
    ``complete`` is True: the list has every file of the commit.
    """

    complete = True

    def __init__(self, access: Access, asked: str, listing: Listing) -> None:
        self.repo: str | None = listing.repo
        self.asked = asked
        self.revision: str | None = listing.commit
        self.label = f"{listing.repo} @ {listing.commit[:7]}"
        self.files: Mapping[str, FileEntry] = listing.files
        self.refused: tuple[Unread, ...] = listing.refused
        self.access = access
        self._hub = access.hub
        self._local: Snapshot | None = None
        self._name = listing.repo
        self._read: dict[str, bytes | Unread] = {}
        self._headers: dict[str, bytes | Unread] = {}
        self._remote: dict[str, RemoteFile] = {}
        self._gate: Message | None = None

    def read(self, path: str, limit: int) -> bytes | Unread:
        """The whole file, checked against the oid of the list."""
        entry = entry_of(self, path, limit)
        if isinstance(entry, Unread):
            return entry
        kept = self._local.read(path, limit) if self._local and self._is_local(entry) else None
        if isinstance(kept, bytes):
            return kept
        if path not in self._read:
            self._read[path] = self._ask(path, lambda: self._whole(entry))
        return self._read[path]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        """Byte ranges of one file, one request each; only the first goes through the Hub's redirect."""
        entry = entry_of(self, path)
        places = entry if isinstance(entry, Unread) else places_of(entry, ranges)
        if isinstance(entry, Unread) or isinstance(places, Unread):
            return entry if isinstance(entry, Unread) else Unread(*places)
        kept = self._local.read_ranges(path, ranges) if self._local and self._is_local(entry) else None
        if isinstance(kept, list):
            return kept
        remote = self._remote.setdefault(path, self._remote_file(entry))
        return self._ask(path, lambda: [remote.read(offset, length) for offset, length in places])

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """The headers, from the cache on disk where the file's sha256 is known there."""
        waiting: list[FileEntry] = []
        for path in dict.fromkeys(paths):
            if path in self._headers:
                continue
            entry = entry_of(self, path)
            if isinstance(entry, Unread):
                self._headers[path] = entry
                continue
            kept = self.access.kept_headers.get(entry.oid)
            if kept is None and self._local and self._is_local(entry):
                found = self._local.headers([path])[path]
                kept = found if isinstance(found, bytes) else None
            if kept is not None and len(kept) <= entry.size:
                self._headers[path] = kept
            elif self._gate:
                self._headers[path] = Unread(path, self._gate)
            else:
                waiting.append(entry)
        files = [self._remote_file(entry) for entry in waiting]
        results = read_headers(self._hub, self._name, files, self.access.largest_header)
        for entry, result in zip(waiting, results, strict=True):
            if isinstance(result, TransportError):
                self._headers[entry.path] = Unread(entry.path, self._reason(result))
            else:
                self._headers[entry.path] = result
                self.access.kept_headers.put(entry.oid, result)
        return {path: self._headers[path] for path in paths}

    def read_locally(self, local: Snapshot) -> None:
        """Take what another source holds with the same oid from there."""
        self._local = local

    # --- the parts ---------------------------------------------------------------------------------------------------

    def _is_local(self, entry: FileEntry) -> bool:
        other = self._local.files.get(entry.path) if self._local else None
        return other is not None and entry.oid is not None and other.oid == entry.oid

    def _remote_file(self, entry: FileEntry) -> RemoteFile:
        return RemoteFile(self._hub, self._url(entry.path), entry.size)

    def _url(self, path: str) -> str:
        return f"{self._hub.endpoint}/{self._name}/resolve/{self.revision}/{quote(path)}"

    def _ask(self, path: str, call: Callable[[], Result]) -> Result | Unread:
        if self._gate:
            return Unread(path, self._gate)
        result = self._hub.side_by_side([call])[0]
        return Unread(path, self._reason(result)) if isinstance(result, TransportError) else result

    def _whole(self, entry: FileEntry) -> bytes:
        def once() -> bytes:
            answer = self._hub.fetch(self._url(entry.path), entry.size)
            if len(answer.body) != entry.size or not agrees(entry.oid, answer.body):
                page = is_web_page(answer.headers, answer.body)
                what = Message("a web page") if page else Message("other bytes than its list names")
                raise Again("the server sent {} in its place", what)
            return answer.body

        return self._hub.persist(once)

    def _reason(self, error: TransportError) -> Message:
        reason = file_refused(error, self._name, self._hub)
        if error.code == "GatedRepo":
            self._gate = reason
        return reason


def open_hub(repo: str, revision: str | None, access: Access) -> HubSnapshot:
    """The snapshot of a branch, tag, commit, beginning of a commit or ``refs/pr/N`` (None: ``main``).

    Raises :class:`SnapshotError`.
    """
    if not is_repo_name(repo):
        raise SnapshotError('"{}" is no name of a repository: give ORG/NAME or a folder', printable(repo), kind="usage")
    wanted = revision or "main"
    if not is_revision(wanted):
        problem = Message('"{}" is no revision: give a branch, a tag, a commit or refs/pr/N', printable(wanted))
        raise SnapshotError(problem, kind="usage")
    hub = access.hub
    try:
        listing = hub.in_time(lambda: fetch_listing(hub, repo, wanted))
    except TransportError as error:
        raise listing_refused(error, repo, wanted, hub) from None
    return HubSnapshot(access, repo, listing)
