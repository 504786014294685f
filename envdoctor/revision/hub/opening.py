"""From a name to a snapshot: a folder, a commit of the local cache, or a revision on the Hub by branch, tag, commit or
date; what its commits changed; and which two are compared when the user names fewer than two.

A further source (ModelScope) is a module beside the others and a branch in ``open_snapshot``.
"""

import os
import re
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from envdoctor.observe.model import names as model_names
from envdoctor.revision.hub.local import LocalSnapshot, open_cached, open_folder
from envdoctor.revision.hub.online import Access, Commit, HubSnapshot, ask_for_snapshot, commits, moment, open_hub
from envdoctor.revision.hub.snapshot import Snapshot, SnapshotError, Unread, is_text_about_the_model, limited_to
from envdoctor.revision.hub.transport import Transport, TransportError
from envdoctor.system.message import Message, joined, listed, said_by

#: The Hub gives 50 a request; the longest histories of known models have some hundred.
MOST_COMMITS = 5000
_PREFIX = re.compile(r"[0-9a-f]{4,39}\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T[\d:.+Z-]{5,25})?\Z")
#: Dates in other forms: of the day, the month or the year first, and without anything in between.
_ORDERS = (("%d", "%m", "%Y"), ("%m", "%d", "%Y"), ("%Y", "%m", "%d"))
_OTHER_DATES = (*(between.join(order) for order in _ORDERS for between in "./-"), "%Y%m%d")


def commits_between(
    transport: Transport, repo: str, old: str | None, new: str, most: int = 1000
) -> tuple[list[Commit], bool]:
    """Return the commits from ``new`` back to the one after ``old``, newest first, and whether ``old`` is an ancestor.
    Raises :class:`SnapshotError`."""
    between: list[Commit] = []
    for commit in commits(transport, repo, new, most):
        if commit.id == old:
            return between, True
        between.append(commit)
    return between, False


class Step(NamedTuple):
    """A commit and the files that it changed, or why they are not known."""

    commit: Commit
    changed: list[str] | Unread


def steps(newer: HubSnapshot, until: str | None, most: int) -> tuple[list[Step], str | None]:
    """Return the commits from a snapshot back to the one after ``until``, and where the list goes on after ``most``.
    One request lists the files of a commit, side by side; all lists together have at most 48 MiB. Raises
    :class:`SnapshotError`."""
    access, repo = newer.access, str(newer.repo)
    between, related = commits_between(access.hub, repo, until, str(newer.revision), most + 1)
    ids = [commit.id for commit in between] + ([until] if until and related else [])
    calls = [partial(ask_for_snapshot, access, repo, id, len(ids)) for id in ids[1:]]
    sides: list[HubSnapshot | TransportError | None] = [newer, *access.hub.side_by_side(calls)]
    more = len(between) > most
    pairs = pairwise(sides if related or more else [*sides, None])
    entries = [Step(commit, _changed(*pair)) for commit, pair in zip(between, pairs, strict=False)]
    return entries, ids[-1] if more else None


def _changed(*sides: HubSnapshot | TransportError | None) -> list[str] | Unread:
    """Return the files that differ; none for the first commit."""
    for side in sides:
        if isinstance(side, TransportError):
            return Unread("", said_by(side))
    new, old = (getattr(side, "files", {}) for side in sides)
    return [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]


def _open_revision(repo: str, revision: str | None, access: Access) -> HubSnapshot:
    """Return the snapshot of a revision as a user writes it. None and the empty text mean ``main``; ``@2024-01-31`` (or
    with a time, ``@2024-01-31T08:00``, in UTC) the last commit on main at or before it, and so does the date without
    ``@`` unless a branch or a tag is called so; any other text may begin with ``@`` too. A beginning of a commit (4
    digits or more) that the Hub does not know is looked for in the history of main. Raises :class:`SnapshotError`."""
    text = (revision or "main").removeprefix("@")
    when = _date_of(text)
    if when is not None and ((revision or "").startswith("@") or ":" in text):
        return open_hub(repo, _commit_at(access.hub, repo, when, text), access)
    try:
        return open_hub(repo, text, access)
    except SnapshotError as error:
        if error.kind != "revision-not-found":
            raise (_written_otherwise(text) if error.kind == "network" else None) or error from None
        begun: list[str] = []
        if when is not None:
            begun = [_commit_at(access.hub, repo, when, text)]
        elif _PREFIX.match(text):
            begun = [commit.id for commit in commits(access.hub, repo, "main", 1000) if commit.id.startswith(text)]
        if len(begun) > 1:
            problem = "{} commits of {} begin with {}: give more of it"
            raise SnapshotError(problem, len(begun), repo, text, kind="revision-not-found") from None
        if not begun:
            raise (_written_otherwise(text) or error) from None
        return open_hub(repo, begun[0], access)


def _written_otherwise(text: str) -> SnapshotError | None:
    """Return the error for a date in another form than ours, with the right form; None for other texts."""
    days: dict[str, None] = {}
    for form in _OTHER_DATES if len(text) >= len("1.1.2024") else ():
        with suppress(ValueError):
            days[f"{datetime.strptime(text, form):%Y-%m-%d}"] = None
    problem = "{} is no revision that is known; for a date write {}"
    return SnapshotError(problem, text, joined(list(days), " or "), kind="usage") if days else None


def _date_of(text: str) -> datetime | None:
    """Return the last moment that a date means, in UTC, as :func:`_open_revision` takes it; None for other texts."""
    when = moment(text) if _DATE.match(text) else None
    try:
        return when + timedelta(days=1, microseconds=-1) if when and len(text) == 10 else when
    except OverflowError:
        return None


def _commit_at(transport: Transport, repo: str, when: datetime, text: str) -> str:
    count, first = 0, Message("")
    for commit in commits(transport, repo, "main", MOST_COMMITS):
        if commit.date is not None and commit.date <= when:
            return commit.id
        count += 1
        first = Message("; its first is of {}", f"{commit.date:%Y-%m-%d}") if commit.date else first
    if count == MOST_COMMITS:
        first = Message("; of its history the last {} commits were looked at", f"{count:,}")
    raise SnapshotError("{} has no commit on main at or before {}{}", repo, text, first, kind="revision-not-found")


#: How many commits before a snapshot are looked at for one that differs in more than text about the model.
_MOST_PARENTS = 40


def open_snapshot(text: str, revision: str | None, access: Access) -> Snapshot:
    """Return the snapshot that a text, and perhaps a revision beside it, means. Raises :class:`SnapshotError`."""
    address = name_of(text, access)
    if address.repo is None:
        if revision:
            raise SnapshotError("{} is a folder, and a folder has no revisions", text, kind="usage")
        folder = str(address.folder)
        repo, commit = model_names.commit_of_path(folder)
        if repo and commit and os.path.basename(folder) == commit:  # of the cache of huggingface_hub, with its links
            return from_cache(model_names.CachedCommit(repo, commit, folder), repo, access)
        return open_folder(folder, text, largest_header=access.largest_header, hasher=access.hasher)
    if address.revision and revision and address.revision != revision:
        raise SnapshotError("{} names a revision, and {} is another one", text, revision, kind="usage")
    wanted = revision or address.revision
    return (
        _open_offline(address.repo, wanted, access) if access.offline else _open_revision(address.repo, wanted, access)
    )


def name_of(text: str, access: Access) -> model_names.NamedModel:
    """Return the model that a text names. Raises :class:`SnapshotError`."""
    try:
        return model_names.parse_name(text, access.cwd, access.environ)
    except model_names.NameProblem as error:
        raise SnapshotError(said_by(error), kind="usage") from None


def from_cache(commit: model_names.CachedCommit, request: str, access: Access) -> LocalSnapshot:
    """Return the snapshot of a cached commit: in the user's own cache, or in a folder that looks like one."""
    cache = os.path.realpath(model_names.cache_folder(access.cwd, access.environ) or os.sep)
    own = os.path.realpath(commit.folder).startswith(cache.rstrip(os.sep) + os.sep) and cache != os.sep
    return open_cached(commit, request, access.largest_header, access.hasher, own)


def _open_offline(repo: str, revision: str | None, access: Access) -> LocalSnapshot:
    """Return a cached revision: of a reference, a commit or its beginning; None means ``main`` or the only one."""
    cached = access.cached(repo)
    name = (revision or "main").removeprefix("@")
    matches = model_names.matching(cached, name)
    if not matches and revision is None and len({item.commit for item in cached}) == 1:
        matches = cached
    if len({item.commit for item in matches}) == 1:
        return from_cache(matches[0], repo, access)
    if not cached:
        text = "{} is not in the local cache, and offline mode is on: give local folders, or leave offline mode"
        raise SnapshotError(text, repo, kind="offline")
    if _date_of(name) is not None:
        text = "{} is a date, and the local cache does not hold the dates of commits: name one of {}"
        raise SnapshotError(text, name, ", ".join(item.commit[:10] for item in cached[:5]), kind="offline")
    choices = ", ".join(item.commit[:10] + (f" ({', '.join(item.refs)})" if item.refs else "") for item in cached[:5])
    problem = Message("{} commits that begin with {}", len(matches), name) if matches else Message("no {}", name)
    raise SnapshotError(
        "the local cache holds {} of {}; it holds {}", problem, repo, choices, kind="revision-not-found"
    )


class Pair(NamedTuple):
    """Two snapshots, why they were chosen, and the present name of the repository if it ``moved``."""

    old: Snapshot
    new: Snapshot
    notes: tuple[Message, ...] = ()
    moved: str | None = None


def open_pair(model: str, old: str | None, new: str | None, access: Access) -> Pair:
    """Return the snapshots that ``MODEL [OLD] [NEW]`` means. NEW is ``main`` unless given. OLD is, unless given, what
    the local cache's ``main`` points to (what was trained with); when that is NEW itself, another commit of the cache;
    without a cache, and for the address of a commit, the state before the last commit that changed more than text about
    the model. OLD and NEW may be folders; where MODEL is one, OLD is what it is compared with. Where a snapshot of the
    cache has no list of all its files, only files that both have are compared. Raises :class:`SnapshotError`."""
    pair = _choose(model, old, new, access)
    hubs = [side for side in (pair.new, pair.old) if isinstance(side, HubSnapshot)]
    # another case of letters is the same name
    moved = next((side.repo for side in hubs if str(side.repo).lower() != side.asked.lower()), None)
    old_side = pair.old if pair.new.complete else _known_to(pair.new, pair.old)
    return Pair(old_side, pair.new if pair.old.complete else _known_to(pair.old, pair.new), pair.notes, moved)


def _known_to(base: Snapshot, other: Snapshot) -> Snapshot:
    """Return the other one with the files of both; others, except text about the model, are refused as unknown."""
    reason = Message("whether it changed is not known: it was not downloaded with {}", base.label)
    more = [path for path in other.files if path not in base.files and not is_text_about_the_model(path)]
    return limited_to(other, base.files, [Unread(path, reason) for path in more])


def _choose(model: str, old: str | None, new: str | None, access: Access) -> Pair:
    address = name_of(model, access)
    if address.folder is not None:
        if old is None or new is not None:
            text = "{} is a folder: give one other folder or repository to compare it with"
            raise SnapshotError(text, model, kind="usage")
        return Pair(open_snapshot(model, None, access), open_snapshot(old, None, access))
    whole_commit = "/commit/" in model and old is None
    if address.revision and new is None:
        model, new = str(address.repo), address.revision
    old, new = two_of(old, new)
    if old is not None:
        return Pair(open_side(model, old, access), open_side(model, new, access))
    newer = open_side(model, new, access)
    cached = access.cached(str(address.repo), newer.repo)
    if isinstance(newer, HubSnapshot) and (whole_commit or not cached):
        return _before_the_last_change(newer)
    if not isinstance(newer, HubSnapshot) and all(item.commit == newer.revision for item in cached):
        text = "the local cache holds no second commit of {} to compare {} with: name OLD, or leave offline mode"
        raise SnapshotError(text, address.repo, newer.label, kind="offline")
    return _with_the_cache(cached, str(address.repo), newer, access)


def _before_the_last_change(newer: HubSnapshot) -> Pair:
    """Return the newest state before the snapshot that differs from it in more than text about the model. One request
    for the history and one for each commit that is looked at, 40 at most. Raises :class:`SnapshotError` when there is
    none."""
    repo, later = str(newer.repo), list[Commit]()
    for commit in commits(newer.access.hub, repo, str(newer.revision), _MOST_PARENTS + 1):
        older = open_hub(repo, commit.id, newer.access) if later else newer
        if _essence(older) != _essence(newer):
            older.asked = newer.asked
            break
        later.append(commit)
    else:
        if len(later) < 2:
            text = "{} is the first commit of {}: there is nothing to compare it with"
            raise SnapshotError(text, newer.label, repo, kind="usage")
        text = "the {} commits before {} changed no more than text about the model: name an older revision"
        raise SnapshotError(text, len(later) - 1, newer.label, kind="usage")
    title, skipped = " ".join(later[-1].title.split())[:80], len(later) - 1
    note = Message('OLD is {}, before "{}" ({})', older.label, title, later[-1].id[:7])
    if skipped:
        plural = "s" if skipped > 1 else ""
        note = Message("{}; {}", note, Message("{} later commit{} changed only text about the model", skipped, plural))
    return Pair(older, newer, (note,))


def _essence(snapshot: Snapshot) -> dict[str, tuple[int, str | None]]:
    files = snapshot.files.items()
    return {path: (entry.size, entry.oid) for path, entry in files if not is_text_about_the_model(path)}


def _with_the_cache(cached: list[model_names.CachedCommit], repo: str, newer: Snapshot, access: Access) -> Pair:
    others = [item for item in cached if item.commit != newer.revision]
    chosen, reason = cached[0], Message("the last used of the local cache")
    if "main" in chosen.refs:
        reason = Message("what main of the local cache points to")
    if chosen.commit == newer.revision:
        reason = Message("which is NEW: nothing changed since it was downloaded")
        if others:
            chosen, reason = others[0], Message("another commit of the local cache, for its main is NEW")
    notes = [Message("OLD is {}, {}", chosen.commit[:7], reason)]
    if chosen.repo != newer.repo:
        notes.append(Message("the local cache holds it under the name {}", chosen.repo))
    if not isinstance(newer, HubSnapshot):
        # It does not know the dates of commits, only when each was last downloaded to.
        new = next(item for item in cached if item.commit == newer.revision)
        text = Message("NEW is {}; the local cache does not say which of the two commits is later", new.commit[:7])
        if chosen.used > new.used:
            hint = "{}; OLD was downloaded after NEW: name OLD and NEW to compare them the other way round"
            text = Message(hint, text)
        notes.append(text)
    if also := [item.commit[:7] for item in others if item.commit != chosen.commit]:
        notes.append(Message("the local cache also holds {}; name one as OLD to compare it", listed(also, 5)))
    older: Snapshot = from_cache(chosen, repo, access)
    if isinstance(newer, HubSnapshot) and not older.complete:  # by the Hub's list, with files read here
        local = older
        try:
            older = open_snapshot(repo, chosen.commit, access)
        except SnapshotError as error:
            notes.append(Message("{}; what the local cache holds of {} is compared", error, chosen.commit[:7]))
        if isinstance(older, HubSnapshot):
            older.local = local
    return Pair(older, newer, tuple(notes))


def two_of(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Return OLD and NEW, also where they are typed as git has them: ``OLD..NEW``."""
    if not old or new is not None or ".." not in old or model_names.written_as_path(old):
        return old, new
    first, _, second = old.replace("...", "..").partition("..")
    return first or None, second or None


def open_side(model: str, text: str | None, access: Access) -> Snapshot:
    """Return a revision of the model, a folder, or what the address of a page names. Raises :class:`SnapshotError`."""
    if text is not None and (model_names.written_as_path(text) or model_names.is_address(text)):
        return open_snapshot(text, None, access)
    return open_snapshot(model, text, access)
