"""Headers of weight files on disk, by the sha256 of the whole file: a file with that name never changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envdoctor.hub.safetensors_header import LARGEST_HEADER
from envdoctor.text.cache import CacheFolder, cache_home

#: Changes when the layout of an entry does; older entries are then not found.
_FORMAT = "2"
_LARGEST = 8 + LARGEST_HEADER
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})\Z")


class HeaderCache:
    """Headers in envdoctor's cache, apart for each Hub: what one server says of a sha256 is not believed of another.

    Without a place for a cache in the variables nothing is kept. An entry holds the compressed header; one that was
    damaged is ignored. The reader of headers checks what comes from here like all others.
    """

    def __init__(self, environ: Mapping[str, str], endpoint: str) -> None:
        from hashlib import sha256

        server = sha256(endpoint.encode()).hexdigest()[:16]
        self._entries = CacheFolder(cache_home(environ), f"headers/{_FORMAT}/{server}")

    def get(self, oid: str | None) -> bytes | None:
        """The header (8 length bytes and JSON) of a file, or None."""
        import zlib

        name = _name(oid)
        packed = self._entries.read(name, _LARGEST) if name else None
        if packed is None:
            return None
        try:
            unpacker = zlib.decompressobj()
            header = unpacker.decompress(packed, _LARGEST)
        except (zlib.error, MemoryError):
            return None
        return header if unpacker.eof and _is_header(header) else None

    def put(self, oid: str | None, header: bytes) -> None:
        """Keep a header; whole or not at all."""
        import zlib

        name = _name(oid)
        if name and _is_header(header):
            self._entries.write(name, zlib.compress(header, 1))


def _is_header(content: bytes) -> bool:
    return len(content) >= 8 and int.from_bytes(content[:8], "little") == len(content) - 8


def _name(oid: str | None) -> str | None:
    match = _SHA256.match(oid or "")
    return f"{match[1][:2]}/{match[1]}" if match else None
