"""Byte ranges of remote files, taken only when the server says exactly what it sends."""

from __future__ import annotations

import re

from envdoctor.hub.reply import Reply
from envdoctor.hub.transport import Transport, is_web_page
from envdoctor.hub.transport_error import Again, TransportError
from envdoctor.text.message import Message

#: From a server that ignores Range, nothing beyond the first MB of a file is read: the rest of a shard is gigabytes.
WITHOUT_RANGES = 1_000_000
_CONTENT_RANGE = re.compile(r"bytes\s+(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\Z", re.IGNORECASE)


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
                    raise TransportError(Message("the server has a smaller file than its list says"), "protocol")
                self._transport.expect(reply, place, (200, 206))
                data = self._from(reply, place, offset, length)
                if place != self._url:
                    self._place = place  # signed for some minutes: the next range needs no redirect
                return data
        except TransportError as error:
            if start != self._url and error.kind == "refused":
                raise Again(Message("the signed address has run out"), "network") from None
            raise

    def _from(self, reply: Reply, place: str, offset: int, length: int) -> bytes:
        if reply.headers.get("content-encoding", "identity") != "identity":
            raise TransportError(Message("the server compresses ranges"), "protocol")
        if reply.status == 200:
            return self._from_whole(reply, place, offset, length)
        match = _CONTENT_RANGE.match(reply.headers.get("content-range", "").strip())
        if match is None:
            raise Again(Message("the server does not say which range it sent (no valid Content-Range)"))
        first, last, total = int(match[1]), int(match[2]), match[3]
        asked = f"{offset:,}-{offset + length - 1:,}"
        if total != "*" and int(total) != self.size:
            raise Again(
                Message("the server has a file of {} bytes, its list says {}", f"{int(total):,}", f"{self.size:,}")
            )
        if (first, last) != (offset, offset + length - 1):
            raise Again(
                Message("the server sent bytes {}-{} where {} were asked for", f"{first:,}", f"{last:,}", asked)
            )
        data = self._transport.body(reply, place, length)[:length]
        if len(data) < length:
            raise Again(
                Message("the connection broke off after {} of {} bytes", f"{len(data):,}", f"{length:,}"), "network"
            )
        return data

    def _from_whole(self, reply: Reply, place: str, offset: int, length: int) -> bytes:
        """From an answer that begins at byte 0, whatever was asked for."""
        if is_web_page(reply.headers, b"") and not self._url.endswith((".html", ".htm")):
            raise TransportError(Message("the server answered with a web page where the file should be"), "protocol")
        end = offset + length
        if end > WITHOUT_RANGES:
            raise TransportError(
                Message(
                    "the server ignores ranges, and {} bytes would have to be read (at most {} are)",
                    f"{end:,}",
                    f"{WITHOUT_RANGES:,}",
                ),
                "protocol",
            )
        data = self._transport.body(reply, place, end)[:end]
        if len(data) < end:
            raise Again(
                Message("the connection broke off after {} of {} bytes", f"{len(data):,}", f"{end:,}"), "network"
            )
        return data[offset:]
