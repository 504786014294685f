"""A snapshot whose files lie on this machine: in the cache of huggingface_hub, or in a folder.

The cache has what was downloaded, and when offline it is all there is:
``models--ORG--NAME/{refs/<name>, blobs/<etag>, snapshots/<commit>/<path> -> ../../blobs/<etag>, trees/<commit>.json}``.
A link's target is named by the file's oid, so that nothing is hashed; it is read one level only, since blobs may be
links themselves, into a store that all repositories share and that is named by other digests. Since huggingface_hub
1.33 the list of all files of a commit is kept too, with oids of files that were never downloaded.
"""

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from envdoctor.observe.model.names import CachedCommit, printable
from envdoctor.revision.hub.safetensors_header import LARGEST_HEADER
from envdoctor.revision.hub.snapshot import (
    WEIGHTS,
    FileEntry,
    Hasher,
    Snapshot,
    SnapshotError,
    Unread,
    check_items,
    oid_of_digest,
    pointer_in,
    refusal_of_name,
)
from envdoctor.revision.hub.transport import Again, Reply, Transport, TransportError, is_web_page
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

# Reading ranges of remote files, and the safetensors headers of many: few requests, few bytes, side by side. A range is
# taken only when the server says exactly what it sends.
#
# Three files are sampled with a small first range; the others are asked for as much as the largest header seen, and a
# hundredth more. Only a header that is longer costs a second request, for exactly the rest. Headers of one model's
# shards are alike: of DeepSeek-V3's 163, half have 73,408 bytes, and none is more than 1 % longer.

#: From a server that ignores Range, nothing beyond the first MB of a file is read: the rest of a shard is gigabytes.
_WITHOUT_RANGES = 1_000_000
_CONTENT_RANGE = re.compile(r"bytes\s+(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\Z", re.IGNORECASE)
_FEW = 32 << 10  # the first range where three files or fewer are read
_SAMPLE = 8 << 10
_LARGEST_GUESS = 1 << 20
_ALL_HEADERS = 256 << 20


class RemoteFile:
    """One file of a known size that is read in ranges; the place where the Hub's redirect led is kept in between."""

    def __init__(self, transport: Transport, url: str, size: int) -> None:
        self._transport = transport
        self._url = url
        self.size = size
        self._place: str | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes. Raises :class:`TransportError`."""

        def once() -> bytes:
            start, self._place = self._place or self._url, None
            try:
                with self._transport.open(start, range=f"bytes={offset}-{offset + length - 1}") as reply:
                    if reply.status == 416:
                        raise TransportError("the server has a smaller file than its list says", kind="protocol")
                    self._transport.expect(reply, (200, 206))
                    data = self._from(reply, offset, length)
                    if reply.place != self._url:
                        self._place = reply.place  # signed for some minutes: the next range needs no redirect
                    return data
            except TransportError as error:
                if start != self._url and error.kind == "refused":
                    raise Again("the signed address has run out", kind="network") from None
                raise

        return self._transport.persist(once) if length else b""

    def header(self, guess: int, room: "_Room") -> bytes:
        """Return the header; the first request asks for ``guess`` bytes. Raises :class:`TransportError`."""
        data = self.read(0, min(guess, self.size))
        length = _announced(data, self.size)
        if length is None:
            return data[:8]
        problem = room.take(length)
        if problem:
            raise TransportError(problem, kind="limit")
        return data[:length] if length <= len(data) else data + self.read(len(data), length - len(data))

    def _from(self, reply: Reply, offset: int, length: int) -> bytes:
        if reply.headers.get("content-encoding", "identity") != "identity":
            raise TransportError("the server compresses ranges", kind="protocol")
        end, before = offset + length, 0
        if reply.status == 200:  # it begins at byte 0, whatever was asked for
            before = offset
            if is_web_page(reply.headers, b"") and not self._url.endswith((".html", ".htm")):
                raise TransportError("the server answered with a web page where the file should be", kind="protocol")
            if end > _WITHOUT_RANGES:
                text = "the server ignores ranges, and {} bytes would have to be read (at most {} are)"
                raise TransportError(text, f"{end:,}", f"{_WITHOUT_RANGES:,}", kind="protocol")
        else:
            match = _CONTENT_RANGE.match(reply.headers.get("content-range", "").strip())
            if match is None:
                raise Again("the server does not say which range it sent (no valid Content-Range)")
            if match[3] not in ("*", str(self.size)):
                text = "the server has a file of {} bytes, its list says {}"
                raise Again(text, f"{int(match[3]):,}", f"{self.size:,}")
            first, last = int(match[1]), int(match[2])
            if (first, last) != (offset, end - 1):
                span = f"{offset:,}-{end - 1:,}"
                raise Again("the server sent bytes {}-{} where {} were asked for", f"{first:,}", f"{last:,}", span)
        data = self._transport.body(reply, before + length)[before : before + length]
        if len(data) < length:
            text = "the connection broke off after {} of {} bytes"
            raise Again(text, f"{len(data):,}", f"{length:,}", kind="network")
        return data


class _Room:
    """How many bytes of headers may be read: ``largest`` of one file, 256 MiB of all. The largest models have about 12
    MB in all; without an end, 163 hostile files would ask for 16 GB of memory."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._left = _ALL_HEADERS
        self._lock = threading.Lock()

    def take(self, length: int) -> Message | None:
        """Set bytes of one file aside; why not, as a clause, when there are too many."""
        if length - 8 > self._largest:
            text = "its header has {} bytes; at most {} are read (--max-header)"
            return Message(text, f"{length - 8:,}", f"{self._largest:,}")
        with self._lock:
            if length > self._left:
                return Message("the headers before it have more than {} MiB already", _ALL_HEADERS >> 20)
            self._left -= length
        return None


def _announced(first: bytes, size: int) -> int | None:
    """Return the length of a header and its 8 length bytes, by these; None if the file (of ``size`` bytes) has none."""
    length = 8 + int.from_bytes(first[:8], "little")
    return length if len(first) >= 8 and length <= min(size, 8 + LARGEST_HEADER) else None


def read_headers(
    transport: Transport, repo: str, files: Sequence[RemoteFile], largest: int
) -> list[bytes | TransportError]:
    """Return for each file its first 8 bytes and the JSON that they announce, or why not. Where the 8 bytes announce
    more than the file or the format has, they come back alone, for the reader of headers to name. A file of fewer than
    8 bytes comes back whole. A header of more than ``largest`` bytes is not read, nor are headers of more than 256 MiB
    in all. What was learned of the sizes is kept for the next revision of ``repo``."""
    room, sizes = _Room(largest), transport.header_sizes
    results: dict[int, bytes | TransportError] = {}

    def read(indices: Sequence[int], guess: int) -> None:
        calls = [partial(files[index].header, guess, room) for index in indices]
        for index, result in zip(indices, transport.side_by_side(calls), strict=True):
            results[index] = result
            if isinstance(result, bytes):
                sizes[repo] = max(sizes.get(repo, 0), len(result))

    every = range(len(files))
    if repo not in sizes:
        read(*((every, _FEW) if len(files) <= 3 else ([0, 1, len(files) // 2], _SAMPLE)))
    read(
        [index for index in every if index not in results], min(int(sizes.get(repo, _FEW) * 1.01) + 256, _LARGEST_GUESS)
    )
    return [results[index] for index in every]


MOST_FILES = 100_000
_DEEPEST = 32
#: Folders that are about the files and not of them.
_ASIDE = frozenset((".git", ".cache", "__pycache__", ".ipynb_checkpoints"))
_TREE_LIMIT = 64 << 20
#: The index of DeepSeek-V3 has 9 MB; a repository has one, or one for each format.
_INDEX_LIMIT = 32 << 20
_MOST_INDEXES = 4
Result = TypeVar("Result")


@dataclass
class LocalSnapshot(Snapshot):
    """Where each of the files lies is in ``places``; of a file that has none ``absent`` says why. ``largest_header``
    bounds each header in bytes. Each file is opened when it is read, and only as a regular file."""

    asked: str
    label: str
    files: Mapping[str, FileEntry]
    places: Mapping[str, str]
    refused: tuple[Unread, ...]
    largest_header: int
    absent: Message

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """Return the headers, one file after the other: a disk is not faster side by side."""
        room = _Room(self.largest_header)
        return {path: self._header(path, room) for path in paths}

    def _header(self, path: str, room: _Room) -> bytes | Unread:
        size = self.files[path].size if path in self.files else 0
        first = self.read_range(path, 0, min(size, 8))
        length = None if isinstance(first, Unread) else _announced(first, size)
        if length is None:
            return first
        problem = room.take(length)
        return Unread(path, problem) if problem else self.read_range(path, 0, length)

    def part(self, entry: FileEntry, offset: int, length: int) -> bytes | Unread:
        """Return a part of a file of this machine."""
        if entry.path not in self.places:
            return Unread(entry.path, self.absent)
        try:
            return Files().ranges(self.places[entry.path], [(offset, length)])[0]
        except OSError as error:
            return Unread(entry.path, Message("it cannot be read: {}", because_of(error)))


#: A file below a folder: its path there, where its links lead to, and its size in bytes; None where nothing is.
_Found = tuple[str, str, int | None]


def open_folder(
    folder: str, shown: str | None = None, *, largest_header: int = LARGEST_HEADER, hasher: Hasher | None = None
) -> LocalSnapshot:
    """Return the snapshot of a directory; ``shown`` is how the user wrote it. Raises :class:`SnapshotError`. It has no
    revision: what lies there may be of no commit. Object ids are those of the content; notes and names inside the
    folder prove nothing. Links that lead out of it, and what is no regular file, are refused. A file that is the text
    of an LFS pointer has the oid and the size that it points to (git-lfs fetches by it, and checks what it gets), and
    cannot be read."""
    label = shown or folder
    if not os.path.isdir(folder):
        raise SnapshotError("{} is no folder", label, kind="usage")
    root = os.path.realpath(folder)
    hasher = hasher or Hasher()
    files: dict[str, FileEntry] = {}
    places: dict[str, str] = {}
    refused: list[Unread] = []
    for path, place, size in _walk(root, root, Message("the folder"), refused, _ASIDE):
        if size is None:
            refused.append(Unread(path, Message("it is a link to nothing")))
        elif pointer := pointer_in(place, size):
            files[path] = FileEntry(path, *pointer)
        else:
            places[path], files[path] = place, FileEntry(path, size, hasher.oid(place, size))
        if len(files) > MOST_FILES:
            raise SnapshotError("{} holds more than {} files: is it a model?", label, f"{MOST_FILES:,}", kind="usage")
    absent = Message("the folder holds its LFS pointer only: git lfs pull fetches the file")
    return LocalSnapshot(label, label, files, places, tuple(refused), largest_header, absent)


def _walk(folder: str, within: str, called: str, refused: list[Unread], aside: Container[str] = ()) -> Iterator[_Found]:
    """Yield the regular files below a folder; other entries, bad names and links out of ``within`` are ``refused``.
    ``within`` is a path without links, ``called`` its name for people. Folders of a name in ``aside`` are left out."""
    closed: list[OSError] = []
    for base, folders, names in os.walk(folder, onerror=closed.append):
        below = os.path.relpath(base, folder).replace(os.sep, "/") + "/" if base != folder else ""
        linked = [name for name in folders if os.path.islink(os.path.join(base, name))]
        folders[:] = sorted(name for name in folders if name not in linked and name not in aside)
        for name in [*folders]:
            problem = refusal_of_name(below + name)
            if problem is None and below.count("/") >= _DEEPEST:
                problem = Message("it lies more than {} folders deep", _DEEPEST)
            if problem:
                folders.remove(name)
                refused.append(Unread(printable(below + name), problem))
        for name in sorted([*names, *linked]):
            path, place = below + name, os.path.realpath(os.path.join(base, name))
            problem = refusal_of_name(path)
            answer = problem or _size(place, within, called)
            if isinstance(answer, Message):
                refused.append(Unread(printable(path) if problem else path, answer))
            else:
                yield path, place, answer
    for error in closed:
        path = os.path.relpath(error.filename, folder).replace(os.sep, "/")
        refused.append(Unread(printable(path), Message("the folder cannot be read: {}", because_of(error))))


def _size(place: str, within: str, name: str) -> int | Message | None:
    """Return a file's size in bytes, None where nothing is, or why it is refused."""
    try:
        inside = os.path.commonpath([within, place]) == within
    except ValueError:  # another drive
        inside = False
    if not inside:
        return Message("it is a link that leads out of {}", name)
    try:
        status = os.stat(place)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = Message("a link to a folder") if stat.S_ISDIR(status.st_mode) else Message("no regular file")
        return Message("it is {}", kind)
    return status.st_size


def open_cached(cached: CachedCommit, request: str, largest_header: int, hasher: Hasher, own: bool) -> LocalSnapshot:
    """Return the snapshot of a commit of the cache; ``request`` is the name that the user gave. It is not ``complete``
    where only what was downloaded is known, and not all files of the commit. Files are hashed, and refused when their
    content is not what their name says; of those that ``hasher`` leaves alone the name counts where the cache is the
    user's ``own``. A folder that only looks like a cache proves nothing by its names."""
    repo = os.path.dirname(os.path.dirname(cached.folder))
    cache = os.path.realpath(os.path.dirname(repo))
    listed = _listed(os.path.join(repo, "trees", cached.commit + ".json")) if own else None
    files = dict(listed or {})
    places: dict[str, str] = {}
    refused: list[Unread] = []
    for path, place, size in _walk(cached.folder, cache, Message("the cache"), refused):
        entry = files.get(path)
        if size is None:
            # A link to a blob that was deleted, or that is still on its way.
            if entry is None:
                refused.append(Unread(path, Message("its content is gone from the cache")))
        elif entry is not None and entry.size != size:
            refused.append(Unread(path, Message("the cache holds it with another size than the repository lists")))
        else:
            listed_oid = entry.oid if entry else _oid_of_link(os.path.join(cached.folder, path))
            oid = hasher.oid(place, size, listed_oid.partition(":")[0] if listed_oid else "")
            if oid is not None and listed_oid is not None and oid != listed_oid:
                refused.append(Unread(path, Message("its content in the cache is not what its name says")))
                files.pop(path, None)
                continue
            places[path], files[path] = place, FileEntry(path, size, oid or (listed_oid if own else None))
    lacking = _lacking(files, places)
    if lacking is not None and listed is None:
        refused.append(Unread(Message("weights"), lacking))
    label = Message("{} @ {} (cache)", cached.repo, cached.commit[:7])
    about = request, label, files, places, tuple(refused), largest_header
    snapshot = LocalSnapshot(*about, Message("it was never downloaded to this machine"))
    snapshot.repo, snapshot.revision, snapshot.complete, snapshot.lacking = (
        cached.repo,
        cached.commit,
        listed is not None,
        lacking,
    )
    return snapshot


def _lacking(files: Mapping[str, FileEntry], places: Mapping[str, str]) -> Message | None:
    """Return a clause that says which weights the cache lacks by the list of files and the shards' index, or all."""

    def shards(folder: str, data: Any) -> set[str]:
        return {folder + name for name in data["weight_map"].values()}

    lost = {path for path in files if path not in places and path.lower().endswith(WEIGHTS)}
    for path in [path for path in places if path.endswith(".index.json")][:_MOST_INDEXES]:
        shards_named = _taken_from(places[path], _INDEX_LIMIT, partial(shards, path[: path.rfind("/") + 1]))
        lost |= (shards_named or set()) - places.keys()
    if lost:
        return Message("{} of its weight files are not in the local cache ({}, …)", len(lost), printable(min(lost)))
    has_weights = any(path.lower().endswith(WEIGHTS) for path in places)
    return None if has_weights else Message("no weights of it are in the local cache")


def _taken_from(place: str, limit: int, take: Callable[[Any], Result]) -> Result | None:
    """Return what a function takes of a JSON file; None if the file cannot be read or has another form."""
    try:
        return take(json.loads(Files().whole(place, limit)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        return None


def _listed(place: str) -> dict[str, FileEntry] | None:
    """Return the files of a commit by the list that huggingface_hub keeps (format 1); None without a valid list."""

    def take(data: Any) -> list[Any]:
        return [_item(path, item) for path, item in data["files"].items()] if data["format_version"] == 1 else [None]

    items = _taken_from(place, _TREE_LIMIT, take)
    files, refused = check_items([None] if items is None else items)
    return None if refused or any(entry.oid is None for entry in files.values()) else files


def _item(path: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of that list as the Hub's own list has it."""
    lfs, size = item.get("lfs_sha256"), item.get("lfs_size")
    large = {} if lfs is None else {"lfs": {"sha256": lfs, **({} if size is None else {"size": size})}}
    return {"rfilename": path, "size": item["size"], "blobId": item["blob_id"], **large}


def _oid_of_link(place: str) -> str | None:
    try:
        target = os.readlink(place)
    except (OSError, ValueError):
        return None
    return oid_of_digest(os.path.basename(target)) if os.path.basename(os.path.dirname(target)) == "blobs" else None
