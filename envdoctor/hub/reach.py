"""From a name to a snapshot: a folder, a commit of the local cache, or a revision on the Hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from envdoctor.hub.cache import Cached, CachedSnapshot, cached_snapshots, open_cached
from envdoctor.hub.folder import FolderSnapshot, open_folder
from envdoctor.hub.header_cache import HeaderCache
from envdoctor.hub.header_plan import LARGEST_HEADER
from envdoctor.hub.named import parse_name
from envdoctor.hub.online import HubSnapshot
from envdoctor.hub.revisions import open_revision
from envdoctor.hub.snapshot import SnapshotError
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError
from envdoctor.observe.model.reading.hub_cache import snapshot_of_path

__all__ = ["AnySnapshot", "Reach", "open_local", "open_offline", "open_snapshot"]

AnySnapshot = HubSnapshot | CachedSnapshot | FolderSnapshot

_PREFIX = re.compile(r"[0-9a-f]{4,40}\Z")


class Reach:
    """What the sources of one command share: the way to the Hub, the local cache, and what the user said about them.

    ``transport`` makes the way to the Hub when it is first needed (huggingface_hub is then imported); ``offline`` takes
    the local cache in its place. ``aliases`` maps organisations to their present names, for the cache's old ones.
    """

    def __init__(
        self,
        *,
        cwd: str,
        environ: Mapping[str, str],
        transport: Callable[[], Transport],
        offline: bool = False,
        aliases: Mapping[str, str] | None = None,
        header_folder: str | None = None,
        largest_header: int = LARGEST_HEADER,
    ) -> None:
        self.cwd = cwd
        self.environ = environ
        self.aliases = aliases or {}
        self.largest_header = largest_header
        switches = (environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE") or "").upper()
        self.offline = offline or switches in ("1", "ON", "YES", "TRUE")
        self._make = transport
        self._header_folder = header_folder
        self._transport: Transport | None = None

    @property
    def transport(self) -> Transport:
        """The way to the Hub. Raises :class:`SnapshotError` when huggingface_hub cannot be used."""
        if self._transport is None:
            try:
                self._transport = self._make()
            except TransportError as error:
                raise SnapshotError(f"the Hub cannot be asked: {error}", "usage") from None
        return self._transport

    @property
    def used_transport(self) -> Transport | None:
        """The way to the Hub if anything was asked for there: what the costs are read from."""
        return self._transport

    def header_cache(self) -> HeaderCache:
        """The cache of headers for this Hub."""
        return HeaderCache(self._header_folder, self.transport.endpoint)

    def cached(self, repo: str, moved: str | None = None) -> list[Cached]:
        """The commits of a repository in the local cache."""
        return cached_snapshots(repo, self.environ, self.aliases, cwd=self.cwd, moved=moved)


def open_snapshot(text: str, revision: str | None, reach: Reach) -> AnySnapshot:
    """The snapshot that a text, and perhaps a revision beside it, means. Raises :class:`SnapshotError`."""
    named = parse_name(text, reach.cwd, reach.environ)
    if named.folder is not None:
        if revision:
            raise SnapshotError(f"{text} is a folder, and a folder has no revisions", "usage")
        return open_local(named.folder, text, reach)
    if named.revision and revision and named.revision != revision:
        raise SnapshotError(f"{text} names a revision, and {revision} is another one", "usage")
    repo, wanted = str(named.repo), revision or named.revision
    if reach.offline:
        return open_offline(repo, wanted, reach)
    return open_revision(repo, wanted, reach.transport, cache=reach.header_cache(), largest_header=reach.largest_header)


def open_local(folder: str, shown: str, reach: Reach) -> FolderSnapshot | CachedSnapshot:
    """A folder; one that lies in the cache of huggingface_hub is read as such, with its links."""
    repo, commit = snapshot_of_path(folder)
    if repo and commit and os.path.basename(folder) == commit:
        return open_cached(Cached(repo, commit, folder, (), 0.0), repo, largest_header=reach.largest_header)
    return open_folder(folder, shown, largest_header=reach.largest_header)


def open_offline(repo: str, revision: str | None, reach: Reach) -> CachedSnapshot:
    """A revision of the local cache: a reference, a commit or the beginning of one; None: ``main``, or the only one."""
    cached = reach.cached(repo)
    wanted = (revision or "main").removeprefix("@")
    found = [item for item in cached if wanted in item.refs or wanted == item.commit]
    if not found and _PREFIX.match(wanted):
        found = [item for item in cached if item.commit.startswith(wanted)]
    if not found and revision is None and len({item.commit for item in cached}) == 1:
        found = cached
    if len({item.commit for item in found}) == 1:
        return open_cached(found[0], repo, largest_header=reach.largest_header)
    if not cached:
        raise SnapshotError(
            f"{repo} is not in the local cache, and offline mode is on: give two folders, or leave offline mode",
            "offline",
        )
    held = ", ".join(item.commit[:10] + (f" ({', '.join(item.refs)})" if item.refs else "") for item in cached[:5])
    problem = f"{len(found)} commits begin with {wanted}" if found else f"no {wanted}"
    raise SnapshotError(f"the local cache holds {problem} of {repo}; it holds {held}", "revision-not-found")
