"""Headers of weight files on disk, by the sha256 of the whole file: a file with that name never changes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from envdoctor.facts.values import Unknown
from envdoctor.observe.model.reading.model_file import read_bytes
from envdoctor.text.cache import cache_home

__all__ = ["HeaderCache", "cache_folder"]

#: Changes when the layout of an entry does; older entries are then not found.
_FORMAT = "1"
_LARGEST = 100_000_008
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})\Z")


def cache_folder(environ: Mapping[str, str]) -> str | None:
    """Where envdoctor keeps headers with these variables; None when no place is named."""
    home = cache_home(environ)
    return os.path.join(home, "headers") if home else None


class HeaderCache:
    """Headers below ``folder``, apart for each Hub: what one server says of a sha256 is not believed of another.

    Every failure of the disk means "not there". An entry holds the sha256 of its content and the compressed content;
    one that does not agree with itself is ignored. The reader of headers checks what comes from here like all others.
    """

    def __init__(self, folder: str | None, endpoint: str) -> None:
        import hashlib

        server = hashlib.sha256(endpoint.encode()).hexdigest()[:16]
        self._folder = os.path.join(folder, _FORMAT, server) if folder else None

    def get(self, oid: str | None) -> bytes | None:
        """The header (8 length bytes and JSON) of a file, or None."""
        import hashlib
        import zlib

        path = self._path(oid)
        if path is None:
            return None
        raw = read_bytes(os.path.dirname(path), os.path.basename(path), _LARGEST)
        if isinstance(raw, Unknown):
            return None
        try:
            unpacker = zlib.decompressobj()
            header = unpacker.decompress(raw[32:], _LARGEST)
        except (zlib.error, MemoryError):
            return None
        if not unpacker.eof or hashlib.sha256(header).digest() != raw[:32]:
            return None
        if len(header) < 8 or int.from_bytes(header[:8], "little") != len(header) - 8:
            return None
        return header

    def put(self, oid: str | None, header: bytes) -> None:
        """Keep a header; whole or not at all."""
        import hashlib
        import tempfile
        import zlib

        path = self._path(oid)
        if path is None or len(header) < 8 or int.from_bytes(header[:8], "little") != len(header) - 8:
            return
        folder = os.path.dirname(path)
        temporary = ""
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
            with os.fdopen(handle, "wb") as stream:
                stream.write(hashlib.sha256(header).digest() + zlib.compress(header, 1))
            os.replace(temporary, path)
        except OSError:
            if temporary:
                try:
                    os.unlink(temporary)
                except OSError:
                    pass

    def _path(self, oid: str | None) -> str | None:
        match = _SHA256.match(oid or "")
        if match is None or self._folder is None:
            return None
        return os.path.join(self._folder, match[1][:2], match[1])
