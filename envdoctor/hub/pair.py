"""Which two snapshots are compared when the user names fewer than two, and what is said about the choice."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.hub.cache import Cached, CachedSnapshot, open_cached
from envdoctor.hub.named import parse_name
from envdoctor.hub.online import HubSnapshot
from envdoctor.hub.reach import AnySnapshot, Reach, open_local, open_snapshot
from envdoctor.hub.revisions import parent_that_matters
from envdoctor.hub.snapshot import SnapshotError

__all__ = ["Choice", "choose_pair"]

_LISTED = 5


class Choice(NamedTuple):
    """Two snapshots, old and new, and sentences about how they were chosen."""

    old: AnySnapshot
    new: AnySnapshot
    notes: tuple[str, ...]


def choose_pair(model: str, old: str | None, new: str | None, reach: Reach) -> Choice:
    """The snapshots that ``MODEL [OLD] [NEW]`` means.

    NEW is ``main`` unless given. OLD is, unless given, what the local cache's ``main`` points to (what was trained
    with); when that is NEW itself, another commit of the cache; without a cache, the state before the last commit that
    changed more than text about the model. OLD and NEW may be folders; where MODEL is one, OLD is what it is compared
    with. Where a snapshot of the cache has no list of all its files, only files that both have are compared.
    Raises :class:`SnapshotError`.
    """
    choice = _choose(model, old, new, reach)
    for one, other in ((choice.old, choice.new), (choice.new, choice.old)):
        if isinstance(one, CachedSnapshot) and not one.complete:
            one.leave_out_of(other)
    return choice


def _choose(model: str, old: str | None, new: str | None, reach: Reach) -> Choice:
    named = parse_name(model, reach.cwd, reach.environ)
    if named.folder is not None:
        if old is None or new is not None:
            raise SnapshotError(f"{model} is a folder: give one other folder or repository to compare it with", "usage")
        return Choice(open_local(named.folder, model, reach), open_snapshot(old, None, reach), ())
    if named.revision and new is None:
        model, new = str(named.repo), named.revision
    newer = _open(model, new, reach)
    if old is not None:
        return Choice(_open(model, old, reach), newer, _moved(newer))
    cached = reach.cached(str(named.repo), newer.repo)
    if isinstance(newer, HubSnapshot) and not cached:
        return _before_the_last_change(newer)
    if not isinstance(newer, HubSnapshot) and all(item.commit == newer.revision for item in cached):
        raise SnapshotError(
            f"the local cache holds no second commit of {named.repo} to compare {newer.label} with: name OLD, or leave"
            " offline mode",
            "offline",
        )
    return _with_the_cache(cached, str(named.repo), newer, reach)


def _before_the_last_change(newer: HubSnapshot) -> Choice:
    parent = parent_that_matters(newer)
    title = " ".join(parent.changed_by.title.split())[:80]
    note = f'OLD is {parent.snapshot.label}, before "{title}" ({parent.changed_by.id[:7]})'
    plural = "s" if parent.skipped > 1 else ""
    later = f"; {parent.skipped} later commit{plural} changed only text about the model" if parent.skipped else ""
    return Choice(parent.snapshot, newer, (*_moved(newer), note + later))


def _with_the_cache(cached: list[Cached], repo: str, newer: AnySnapshot, reach: Reach) -> Choice:
    chosen, why = _from_cache(cached, newer)
    notes = [*_moved(newer), f"OLD is {chosen.commit[:7]}, {why}"]
    if chosen.repo != newer.repo:
        notes.append(f"the local cache holds it under the name {chosen.repo}")
    others = [item.commit[:7] for item in cached if item.commit not in (chosen.commit, newer.revision)]
    if others:
        more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
        notes.append(f"the local cache also holds {', '.join(others[:_LISTED])}{more}; name one as OLD to compare it")
    older, problem = _as_complete_as_can_be(chosen, repo, newer, reach)
    return Choice(older, newer, (*notes, *problem))


def _open(model: str, text: str | None, reach: Reach) -> AnySnapshot:
    """A revision of the model, or a folder."""
    if text is not None and text.startswith((".", "/", "~")):
        return open_snapshot(text, None, reach)
    return open_snapshot(model, text, reach)


def _from_cache(cached: list[Cached], newer: AnySnapshot) -> tuple[Cached, str]:
    first = cached[0]
    named = "what main of the local cache points to" if "main" in first.refs else "the last used of the local cache"
    if first.commit != newer.revision:
        return first, named
    others = [item for item in cached if item.commit != newer.revision]
    if others:
        return others[0], "another commit of the local cache, whose first is NEW itself"
    return first, "which is NEW: nothing changed since it was downloaded"


def _as_complete_as_can_be(
    chosen: Cached, repo: str, newer: AnySnapshot, reach: Reach
) -> tuple[AnySnapshot, tuple[str, ...]]:
    """The commit by the Hub's list, with files read here; by the cache alone when the Hub no longer knows it."""
    local = open_cached(chosen, repo, largest_header=reach.largest_header)
    if not isinstance(newer, HubSnapshot) or local.complete:
        return local, ()
    try:
        older = open_snapshot(repo, chosen.commit, reach)
    except SnapshotError as error:
        return local, (f"{error}; what the local cache holds of {chosen.commit[:7]} is compared",)
    if isinstance(older, HubSnapshot):
        older.read_locally(local)
    return older, ()


def _moved(snapshot: AnySnapshot) -> tuple[str, ...]:
    if isinstance(snapshot, HubSnapshot) and snapshot.repo != snapshot.asked:
        return (f"{snapshot.asked} is now {snapshot.repo} on {snapshot.transport.host}",)
    return ()
