"""The commits of a repository on a Hub, newest first, page by page as they are needed; and which of them a
user means by a branch, tag, commit, ``refs/pr/N``, or date."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote

from envdoctor.revision.hub.online import (
    COMMIT,
    Access,
    HubSnapshot,
    ask_for_snapshot,
    listing_refused,
    open_hub,
    pages,
)
from envdoctor.revision.hub.snapshot import SnapshotError, Unread
from envdoctor.revision.hub.transport import Transport
from envdoctor.revision.hub.transport_error import TransportError
from envdoctor.system.message import Message, joined, said_by

#: The Hub gives 50 a request; the longest histories of known models have some hundred.
MOST_COMMITS = 5000
_PREFIX = re.compile(r"[0-9a-f]{4,39}\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T[\d:.+Z-]{5,25})?\Z")
#: Dates in other forms: of the day or the month first, of the year first, without anything in between.
_OTHER_DATES = (
    r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})\Z",
    r"(\d{4})[./-](\d{1,2})[./-](\d{1,2})\Z",
    r"(\d{4})(\d\d)(\d\d)\Z",
)


class Commit(NamedTuple):
    """One commit. ``date`` is None where the server's is not one; ``title`` is the author's text, not cleaned."""

    id: str
    title: str
    date: datetime | None


def commits(transport: Transport, repo: str, revision: str, most: int = MOST_COMMITS) -> Iterator[Commit]:
    """Yield the commits from ``revision`` back. Raises :class:`SnapshotError`."""
    known = transport.moved.get(repo, repo)
    url = f"{transport.endpoint}/api/models/{known}/commits/{quote(revision, safe='')}"
    following = iter(pages(transport, url, most=most))
    given = 0
    while given < most:
        try:
            page = transport.in_time(lambda: next(following, None))
        except TransportError as error:
            raise listing_refused(error, repo, revision, transport) from None
        if page is None:
            return
        for item in page[: most - given]:
            match item:
                case {"id": str(name)} if COMMIT.match(name):
                    title, date = (text if isinstance(text := item.get(key), str) else "" for key in ("title", "date"))
                    yield Commit(name, title[:500], _moment(date) if len(date) <= 40 else None)
                case _:
                    raise SnapshotError("{} sent a history of {} that is none", transport.host, repo, kind="protocol")
        given += len(page)


def commits_between(
    transport: Transport, repo: str, old: str | None, new: str, most: int = 1000
) -> tuple[list[Commit], bool]:
    """Return the commits from ``new`` back to the one after ``old``, newest first, and whether ``old`` is an ancestor.
    Raises :class:`SnapshotError`."""
    found: list[Commit] = []
    for commit in commits(transport, repo, new, most):
        if commit.id == old:
            return found, True
        found.append(commit)
    return found, False


class Step(NamedTuple):
    """A commit and the files that it changed, or why they are not known."""

    commit: Commit
    changed: list[str] | Unread


def steps(newer: HubSnapshot, until: str | None, most: int) -> tuple[list[Step], str | None]:
    """Return the commits from a snapshot back to the one after ``until``, and where the list goes on after ``most``.
    One request lists the files of a commit, side by side; all lists together have at most 48 MiB. Raises
    :class:`SnapshotError`."""
    access, repo = newer.access, str(newer.repo)
    found, related = commits_between(access.hub, repo, until, str(newer.revision), most + 1)
    ids = [commit.id for commit in found] + ([until] if until and related else [])
    calls = [partial(ask_for_snapshot, access, repo, id, len(ids)) for id in ids[1:]]
    sides: list[HubSnapshot | TransportError | None] = [newer, *access.hub.side_by_side(calls)]
    more = len(found) > most
    pairs = pairwise(sides if related or more else [*sides, None])
    given = [Step(commit, _changed(*pair)) for commit, pair in zip(found, pairs, strict=False)]
    return given, ids[-1] if more else None


def _changed(*sides: HubSnapshot | TransportError | None) -> list[str] | Unread:
    """Return the files that differ; none for the first commit."""
    for side in sides:
        if isinstance(side, TransportError):
            return Unread("", said_by(side))
    new, old = (getattr(side, "files", {}) for side in sides)
    return [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]


def _moment(text: str) -> datetime | None:
    """Return a date, with or without a time, in UTC unless it says otherwise; None for an invalid date."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)


def open_revision(repo: str, revision: str | None, access: Access) -> HubSnapshot:
    """Return the snapshot of a revision as a user writes it. None and the empty text mean ``main``; ``@2024-01-31`` (or
    with a time, ``@2024-01-31T08:00``, in UTC) the last commit on main at or before it, and so does the date without
    ``@`` unless a branch or a tag is called so; any other text may begin with ``@`` too. A beginning of a commit (4
    digits or more) that the Hub does not know is looked for in the history of main. Raises :class:`SnapshotError`."""
    text = (revision or "main").removeprefix("@")
    when = date_of(text)
    if when is not None and ((revision or "").startswith("@") or ":" in text):
        return open_hub(repo, _commit_at(access.hub, repo, when, text), access)
    try:
        return open_hub(repo, text, access)
    except SnapshotError as error:
        if error.kind != "revision-not-found":
            raise
        begun: list[str] = []
        if when is not None:
            begun = [_commit_at(access.hub, repo, when, text)]
        elif _PREFIX.match(text):
            begun = [one.id for one in commits(access.hub, repo, "main", 1000) if one.id.startswith(text)]
        if len(begun) > 1:
            problem = "{} commits of {} begin with {}: give more of it"
            raise SnapshotError(problem, len(begun), repo, text, kind="revision-not-found") from None
        if not begun:
            raise (_written_otherwise(text) or error) from None
        return open_hub(repo, begun[0], access)


def _written_otherwise(text: str) -> SnapshotError | None:
    """Return the error for a date in another form than ours, with the right form; None for other texts."""
    match = next(filter(None, (re.match(form, text) for form in _OTHER_DATES)), None)
    one, two, three = map(int, match.groups()) if match else (0, 0, 0)
    orders = [(one, two, three)] if match and len(match[1]) == 4 else [(three, two, one), (three, one, two)]
    days = [f"{year:04}-{month:02}-{day:02}" for year, month, day in orders]
    right = [day for day in dict.fromkeys(days) if _moment(day)]
    problem = "{} is neither a revision nor a date in the right form: write {}"
    return SnapshotError(problem, text, joined(right, " or "), kind="usage") if right else None


def date_of(text: str) -> datetime | None:
    """Return the last moment that a date means, in UTC, as :func:`open_revision` takes it; None for other texts."""
    when = _moment(text) if _DATE.match(text) else None
    try:
        return when + timedelta(days=1, microseconds=-1) if when and len(text) == 10 else when
    except OverflowError:
        return None


def _commit_at(transport: Transport, repo: str, when: datetime, text: str) -> str:
    seen, first = 0, Message("")
    for commit in commits(transport, repo, "main", MOST_COMMITS):
        if commit.date is not None and commit.date <= when:
            return commit.id
        seen += 1
        first = Message("; its first is of {}", f"{commit.date:%Y-%m-%d}") if commit.date else first
    if seen == MOST_COMMITS:
        first = Message("; of its history the last {} commits were looked at", f"{seen:,}")
    raise SnapshotError("{} has no commit on main at or before {}{}", repo, text, first, kind="revision-not-found")
