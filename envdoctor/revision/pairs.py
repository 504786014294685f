"""Which files of two snapshots have to be read: equal object ids mean equal files."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.hub.snapshot import Snapshot, Unread

__all__ = ["differing", "known_same", "read_both", "state"]


def known_same(old: Snapshot, new: Snapshot, path: str) -> bool:
    """Whether both snapshots hold the file and their object ids say that its bytes are the same."""
    first, second = old.files.get(path), new.files.get(path)
    if first is None or second is None:
        return False
    return first.oid is not None and first.oid == second.oid


def state(old: Snapshot, new: Snapshot, path: str) -> str:
    """``added``, ``removed``, ``same``, ``changed`` (object ids or sizes differ) or ``unknown`` (has to be read)."""
    first, second = old.files.get(path), new.files.get(path)
    if first is None or second is None:
        return "added" if first is None else "removed"
    if first.oid is not None and second.oid is not None and _kind(first.oid) == _kind(second.oid):
        return "same" if first.oid == second.oid else "changed"
    # One of the two was not hashed, or one is an LFS file and the other is not: only the sizes can tell.
    return "changed" if first.size != second.size else "unknown"


def _kind(oid: str) -> str:
    return oid.partition(":")[0]


def differing(old: Snapshot, new: Snapshot, paths: Iterable[str]) -> list[str]:
    """Those of the paths that are in a snapshot and not known to be the same in both, sorted."""
    return sorted(
        path for path in set(paths) if (path in old.files or path in new.files) and not known_same(old, new, path)
    )


def read_both(old: Snapshot, new: Snapshot, path: str, limit: int) -> tuple[bytes | None, bytes | None] | Unread:
    """The file in both snapshots, None where there is none; unread when either cannot be read."""
    found: list[bytes | None] = []
    for snapshot in (old, new):
        content = snapshot.read(path, limit) if path in snapshot.files else None
        if isinstance(content, Unread):
            return content
        found.append(content)
    return found[0], found[1]
