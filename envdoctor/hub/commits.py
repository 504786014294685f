"""The commits of a repository on a Hub, newest first, page by page as they are needed."""

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import quote

from envdoctor.hub.listing import pages
from envdoctor.hub.refusals import listing_refused
from envdoctor.hub.snapshot import SnapshotError
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError
from envdoctor.text.message import Message

#: The Hub gives 50 a request; the longest histories of known models have some hundred.
MOST_COMMITS = 5000
_ID = re.compile(r"[0-9a-f]{40}\Z")


class Commit(NamedTuple):
    """One commit. ``date`` is None where the server's is not one; ``title`` is the author's text, not cleaned."""

    id: str
    title: str
    date: datetime | None


def commits(transport: Transport, repo: str, revision: str, most: int = MOST_COMMITS) -> Iterator[Commit]:
    """The commits from ``revision`` back. Raises :class:`SnapshotError`."""
    known = transport.moved.get(repo, repo)
    url = f"{transport.endpoint}/api/models/{known}/commits/{quote(revision, safe='')}"
    following = iter(pages(transport, url, most=most))
    given = 0
    while True:
        try:
            page = transport.in_time(lambda: next(following, None))
        except TransportError as error:
            raise listing_refused(error, repo, revision, transport) from None
        if page is None:
            return
        for item in page:
            commit = _commit(item)
            if commit is None:
                raise SnapshotError(Message("{} sent a history of {} that is none", transport.host, repo), "protocol")
            yield commit
            given += 1
            if given >= most:
                return


def commits_between(transport: Transport, repo: str, old: str, new: str, most: int = 1000) -> tuple[list[Commit], bool]:
    """The commits from ``new`` back to the one after ``old``, newest first, and whether ``old`` is among its ancestors.

    Raises :class:`SnapshotError`.
    """
    found: list[Commit] = []
    for commit in commits(transport, repo, new, most):
        if commit.id == old:
            return found, True
        found.append(commit)
    return found, False


def _commit(item: Any) -> Commit | None:
    match item:
        case {"id": str(name)} if _ID.match(name):
            title, date = (text if isinstance(text := item.get(key), str) else "" for key in ("title", "date"))
            return Commit(name, title[:500], moment(date) if len(date) <= 40 else None)
    return None


def moment(text: str) -> datetime | None:
    """A date, with or without a time, in UTC unless it says otherwise; None for what is none."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)
