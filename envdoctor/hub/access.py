"""What one command may ask for snapshots, and how: the way to the Hub, the local cache, and the limits of the user."""

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
