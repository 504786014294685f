"""``envdoctor diff-revision REPO --list``: the commits to choose from."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from envdoctor.app.diff_revision import RevisionRequest, access_of
from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.revision.hub.commits import steps
from envdoctor.revision.hub.online import Access, HubSnapshot
from envdoctor.revision.hub.opening import from_cache, name_of, open_side, two_of
from envdoctor.revision.hub.snapshot import SnapshotError, Unread, kinds_of
from envdoctor.system.message import Message, joined

#: Commits on a page: each costs one request.
PAGE = 20


class Row(NamedTuple):
    """A commit: its id, the day (of the commit; offline, of the last change of its folder in the cache), the author's
    title (offline: what refers to it), the changed files by kind (offline: those that are there), and whether the local
    cache has it. ``unread`` says why the files are not known."""

    id: str
    day: str
    title: str
    files: Mapping[Message, list[str]]
    cached: bool
    unread: Message | None = None


class _CommitList(NamedTuple):
    """The commits of a repository, newest first, back to ``until`` as it was typed; ``following`` is the one with which
    the next page begins."""

    repo: str
    offline: bool
    rows: list[Row]
    following: str | None = None
    until: str | None = None


def list_commits(
    request: RevisionRequest, *, matrix: Matrix | None = None, progress: Callable[[str], None] | None = None
) -> _CommitList:
    """List a page of commits from NEW (or ``main``) back to OLD; offline, every commit of the local cache. Raises
    :class:`UsageProblem` and :class:`JobError`."""
    access = access_of(request, matrix or load_matrix(), progress or (lambda text: None))
    with told_as(None, SnapshotError):
        named = name_of(request.repo, access)
        if named.repo is None:
            raise UsageProblem("--list: {} is a folder, and a folder has no commits", request.repo)
        if access.offline:
            return _CommitList(named.repo, True, _cached(named.repo, access))
        old, new = two_of(request.old, request.new)
        newer = open_side(named.repo, new or named.revision, access)
        until = open_side(named.repo, old, access).revision if old else None
        if not isinstance(newer, HubSnapshot):
            raise UsageProblem("--list: {} is a folder, and a folder has no commits", newer.label)
        found, following = steps(newer, until, PAGE)
    repo = str(newer.repo)
    held = {commit.commit for commit in access.cached(named.repo, repo)}
    rows = []
    for commit, changed in found:
        day, cached = commit.date.date().isoformat() if commit.date else "", commit.id in held
        kinds, why = ({}, changed.reason) if isinstance(changed, Unread) else (kinds_of(changed), None)
        rows.append(Row(commit.id, day, commit.title, kinds, cached, why))
    return _CommitList(repo, False, rows, following, old)


def _cached(repo: str, access: Access) -> list[Row]:
    from datetime import datetime, timezone

    rows = []
    for commit in access.cached(repo):
        snapshot, refs = from_cache(commit, repo, access), joined(commit.refs, ", ")
        day = datetime.fromtimestamp(commit.used, timezone.utc).date().isoformat()
        rows.append(Row(commit.commit, day, refs, kinds_of(snapshot.places), True, snapshot.lacking))
    if not rows:
        text = "{} is not in the local cache, and offline mode is on: give two folders, or leave offline mode"
        raise SnapshotError(text, repo, kind="offline")
    return rows
