"""Reading ranges of remote files, and the safetensors headers of many: few requests, few bytes, side by side.

A range is taken only when the server says exactly what it sends.

Three files are sampled with a small first range; the others are asked for as much as the largest header seen, and a
little more. Only a header that is longer costs a second request, for exactly the rest. Headers of one model's shards
are alike: of DeepSeek-V3's 163, half have 73,408 bytes, and none is more than 1 % longer.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from envdoctor.hub.safetensors_header import LARGEST_HEADER
from envdoctor.hub.transport import Reply, Transport, is_web_page
from envdoctor.hub.transport_error import Again, TransportError
from envdoctor.text.message import Message

#: From a server that ignores Range, nothing beyond the first MB of a file is read: the rest of a shard is gigabytes.
WITHOUT_RANGES = 1_000_000
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
        """Exactly ``length`` bytes. Raises :class:`TransportError`."""
        if length == 0:
            return b""
        return self._transport.persist(lambda: self._once(offset, length))

    def _once(self, offset: int, length: int) -> bytes:
        wanted = f"bytes={offset}-{offset + length - 1}"
        start, self._place = self._place or self._url, None
        try:
            with self._transport.open(start, range=wanted) as (reply, place):
                if reply.status == 416:
                    raise TransportError("the server has a smaller file than its list says", kind="protocol")
                self._transport.expect(reply, place, (200, 206))
                data = self._from(reply, place, offset, length)
                if place != self._url:
                    self._place = place  # signed for some minutes: the next range needs no redirect
                return data
        except TransportError as error:
            if start != self._url and error.kind == "refused":
                raise Again("the signed address has run out", kind="network") from None
            raise

    def _from(self, reply: Reply, place: str, offset: int, length: int) -> bytes:
        if reply.headers.get("content-encoding", "identity") != "identity":
            raise TransportError("the server compresses ranges", kind="protocol")
        if reply.status == 200:
            return self._from_whole(reply, place, offset, length)
        match = _CONTENT_RANGE.match(reply.headers.get("content-range", "").strip())
        if match is None:
            raise Again("the server does not say which range it sent (no valid Content-Range)")
        first, last, total = int(match[1]), int(match[2]), match[3]
        asked = f"{offset:,}-{offset + length - 1:,}"
        if total != "*" and int(total) != self.size:
            raise Again("the server has a file of {} bytes, its list says {}", f"{int(total):,}", f"{self.size:,}")
        if (first, last) != (offset, offset + length - 1):
            raise Again("the server sent bytes {}-{} where {} were asked for", f"{first:,}", f"{last:,}", asked)
        data = self._transport.body(reply, place, length)[:length]
        if len(data) < length:
            raise Again(
                "the connection broke off after {} of {} bytes", f"{len(data):,}", f"{length:,}", kind="network"
            )
        return data

    def _from_whole(self, reply: Reply, place: str, offset: int, length: int) -> bytes:
        """From an answer that begins at byte 0, whatever was asked for."""
        if is_web_page(reply.headers, b"") and not self._url.endswith((".html", ".htm")):
            raise TransportError("the server answered with a web page where the file should be", kind="protocol")
        end = offset + length
        if end > WITHOUT_RANGES:
            raise TransportError(
                "the server ignores ranges, and {} bytes would have to be read (at most {} are)",
                f"{end:,}",
                f"{WITHOUT_RANGES:,}",
                kind="protocol",
            )
        data = self._transport.body(reply, place, end)[:end]
        if len(data) < end:
            raise Again("the connection broke off after {} of {} bytes", f"{len(data):,}", f"{end:,}", kind="network")
        return data[offset:]


class Room:
    """How many bytes of headers may be read: ``largest`` of one file, 256 MiB of all.

    The largest models have about 12 MB in all; without an end, 163 hostile files would ask for 16 GB of memory.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._left = _ALL_HEADERS
        self._lock = threading.Lock()

    def take(self, length: int) -> Message | None:
        """Set bytes of one file aside; why not, as a clause, when there are too many."""
        if length - 8 > self._largest:
            return Message(
                "its header has {} bytes; at most {} are read (--max-header)", f"{length - 8:,}", f"{self._largest:,}"
            )
        with self._lock:
            if length > self._left:
                return Message("the headers before it have more than {} MiB already", _ALL_HEADERS >> 20)
            self._left -= length
        return None


def announced(first: bytes, size: int) -> int | None:
    """How long a header with its 8 length bytes is, by these; None where the file (of ``size`` bytes) holds none."""
    length = 8 + int.from_bytes(first[:8], "little")
    return length if len(first) >= 8 and length <= min(size, 8 + LARGEST_HEADER) else None


def read_headers(
    transport: Transport, repo: str, files: Sequence[RemoteFile], largest: int
) -> list[bytes | TransportError]:
    """For each file its first 8 bytes and the JSON that they announce, or why not.

    Where the 8 bytes announce more than the file or the format has, they come back alone, for the reader of headers to
    name. A file of fewer than 8 bytes comes back whole. A header of more than ``largest`` bytes is not read, nor are
    headers of more than 256 MiB in all. What was learned of the sizes is kept for the next revision of ``repo``.
    """
    room = Room(largest)
    found: dict[int, bytes | TransportError] = {}

    def read(indices: Sequence[int], guess: int) -> None:
        calls = [lambda f=files[i]: _header(f, guess, room) for i in indices]
        for index, result in zip(indices, transport.side_by_side(calls), strict=True):
            found[index] = result
            if isinstance(result, bytes):
                transport.header_sizes[repo] = max(transport.header_sizes.get(repo, 0), len(result))

    rest = list(range(len(files)))
    if repo not in transport.header_sizes:
        if len(files) <= 3:
            read(rest, _FEW)
            return [found[index] for index in range(len(files))]
        sample = [0, 1, len(files) // 2]
        read(sample, _SAMPLE)
        rest = [index for index in rest if index not in sample]
    seen = transport.header_sizes.get(repo, _FEW)
    read(rest, min(int(seen * 1.04) + 256, _LARGEST_GUESS))
    return [found[index] for index in range(len(files))]


def _header(file: RemoteFile, guess: int, room: Room) -> bytes:
    data = file.read(0, min(guess, file.size))
    length = announced(data, file.size)
    if length is None:
        return data[:8]
    problem = room.take(length)
    if problem:
        raise TransportError(problem, kind="limit")
    if length > len(data):
        data += file.read(len(data), length - len(data))
    return data[:length]
