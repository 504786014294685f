"""What one command may ask for snapshots, and how: the way to the Hub, the local cache, and the limits of the user.

Headers of weight files are kept on disk, by the sha256 of the whole file: a file with that name never changes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from envdoctor.hub.object_ids import Hasher
from envdoctor.hub.safetensors_header import LARGEST_HEADER
from envdoctor.hub.snapshot import SnapshotError
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError
from envdoctor.models.hub_cache import CachedCommit, cache_folder, cached_repos
from envdoctor.models.names import spellings
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
        """Return the header (8 length bytes and JSON) of a file with this oid, or None."""
        import zlib

        match = _SHA256.match(oid or "")
        packed = self._entries.read(f"{match[1][:2]}/{match[1]}", _LARGEST) if match else None
        try:
            unpacker = zlib.decompressobj()
            header = unpacker.decompress(packed or b"", _LARGEST)
        except (zlib.error, MemoryError):
            return None
        return header if unpacker.eof and _is_header(header) else None

    def put(self, oid: str | None, header: bytes) -> None:
        """Keep a header; whole or not at all."""
        import zlib

        match = _SHA256.match(oid or "")
        if match and _is_header(header):
            self._entries.write(f"{match[1][:2]}/{match[1]}", zlib.compress(header, 1))


def _is_header(content: bytes) -> bool:
    return len(content) >= 8 and int.from_bytes(content[:8], "little") == len(content) - 8


@dataclass
class Access:
    """Nothing is asked, and huggingface_hub not imported, before :attr:`hub` is needed.

    ``offline`` takes the local cache in the Hub's place. ``aliases`` maps organisations to their present names, for the
    cache's old ones. ``timeout`` in seconds bounds everything that is asked of the Hub, ``largest_header`` in bytes
    each safetensors header. ``hash`` reads large files of this machine to the end. ``cache`` allows reading and writing
    envdoctor's own cache. ``notice`` is told of long waits.
    """

    cwd: str
    environ: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    timeout: float = 60.0
    largest_header: int = LARGEST_HEADER
    hash: bool = False
    cache: bool = True
    notice: Callable[[str], None] | None = None
    #: The way to the Hub if anything was asked for there.
    transport: Transport | None = None

    def __post_init__(self) -> None:
        switches = (self.environ.get("HF_HUB_OFFLINE") or self.environ.get("TRANSFORMERS_OFFLINE") or "").upper()
        self.offline = self.offline or switches in ("1", "ON", "YES", "TRUE")

    @property
    def hub(self) -> Transport:
        """The way to the Hub. Raises :class:`SnapshotError` when huggingface_hub cannot be used."""
        if self.transport is None:
            try:
                self.transport = Transport(timeout=self.timeout, notice=self.notice)
            except TransportError as error:
                raise SnapshotError("the Hub cannot be asked: {}", error, kind="usage") from None
        return self.transport

    @cached_property
    def kept_headers(self) -> HeaderCache:
        """The cache of headers for this Hub."""
        return HeaderCache(self.environ if self.cache else {}, self.hub.endpoint)

    @cached_property
    def hasher(self) -> Hasher:
        """What computes the object ids of files of this machine."""
        return Hasher(self.hash, self.notice)

    @property
    def requests(self) -> int:
        """Requests so far, every hop of a redirect counted."""
        return self.transport.requests if self.transport else 0

    @property
    def received(self) -> int:
        """Body bytes so far."""
        return self.transport.received if self.transport else 0

    def cached(self, repo: str, moved: str | None = None) -> list[CachedCommit]:
        """The commits of a repository in the local cache, under all names of its vendor and of the one it moved to.

        Those that a reference points to come first (``main`` before others), then the last used.
        """
        names = [*spellings(repo, self.aliases), *(spellings(moved, self.aliases) if moved else ())]
        found = cached_repos(dict.fromkeys(names), cache_folder(self.cwd, self.environ))
        commits = [commit for held in found for commit in held.commits]
        return sorted(commits, key=lambda item: ("main" not in item.refs, not item.refs, -item.used))
