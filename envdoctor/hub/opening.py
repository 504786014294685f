"""From a name to a snapshot: a folder, a commit of the local cache, or a revision on the Hub.

A further source (ModelScope) is a module beside the others and a branch in ``open_snapshot``.
"""

from __future__ import annotations

import os

from envdoctor.hub.access import Access
from envdoctor.hub.commits import open_revision
from envdoctor.hub.local import LocalSnapshot, open_cached, open_folder
from envdoctor.hub.snapshot import Snapshot, SnapshotError
from envdoctor.models.hub_cache import CachedCommit, cache_folder, commit_of_path, matching
from envdoctor.models.names import Named, NameProblem, parse_name
from envdoctor.text.message import Message, said_by


def open_snapshot(text: str, revision: str | None, access: Access) -> Snapshot:
    """The snapshot that a text, and perhaps a revision beside it, means. Raises :class:`SnapshotError`."""
    named = name_of(text, access)
    if named.repo is None:
        if revision:
            raise SnapshotError(Message("{} is a folder, and a folder has no revisions", text), "usage")
        return _open_local(str(named.folder), text, access)
    if named.revision and revision and named.revision != revision:
        raise SnapshotError(Message("{} names a revision, and {} is another one", text, revision), "usage")
    wanted = revision or named.revision
    return _open_offline(named.repo, wanted, access) if access.offline else open_revision(named.repo, wanted, access)


def name_of(text: str, access: Access) -> Named:
    """What a text names. Raises :class:`SnapshotError`."""
    try:
        return parse_name(text, access.cwd, access.environ)
    except NameProblem as error:
        raise SnapshotError(said_by(error), "usage") from None


def from_cache(commit: CachedCommit, asked: str, access: Access) -> LocalSnapshot:
    """A commit of a cache; of the user's own one, or a folder that looks like one."""
    cache = os.path.realpath(cache_folder(access.cwd, access.environ) or os.sep)
    own = os.path.realpath(commit.folder).startswith(cache.rstrip(os.sep) + os.sep) and cache != os.sep
    return open_cached(commit, asked, largest_header=access.largest_header, hasher=access.hasher, own=own)


def _open_local(folder: str, shown: str, access: Access) -> LocalSnapshot:
    """A folder; one that lies in the cache of huggingface_hub is read as such, with its links."""
    repo, commit = commit_of_path(folder)
    if repo and commit and os.path.basename(folder) == commit:
        return from_cache(CachedCommit(repo, commit, folder), repo, access)
    return open_folder(folder, shown, largest_header=access.largest_header, hasher=access.hasher)


def _open_offline(repo: str, revision: str | None, access: Access) -> LocalSnapshot:
    """A revision of the local cache: a reference, a commit or the beginning of one; None: ``main``, or the only one."""
    cached = access.cached(repo)
    wanted = (revision or "main").removeprefix("@")
    found = matching(cached, wanted)
    if not found and revision is None and len({item.commit for item in cached}) == 1:
        found = cached
    if len({item.commit for item in found}) == 1:
        return from_cache(found[0], repo, access)
    if not cached:
        raise SnapshotError(
            Message(
                "{} is not in the local cache, and offline mode is on: give two folders, or leave offline mode", repo
            ),
            "offline",
        )
    held = ", ".join(item.commit[:10] + (f" ({', '.join(item.refs)})" if item.refs else "") for item in cached[:5])
    problem = f"{len(found)} commits begin with {wanted}" if found else Message("no {}", wanted)
    raise SnapshotError(
        Message("the local cache holds {} of {}; it holds {}", problem, repo, held), "revision-not-found"
    )
