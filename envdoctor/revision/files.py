"""Files that belong to no other area: which came, went or changed. They are not read unless nothing else can tell.

Kinds of changes (``symbol`` is the path): ``file-added``, ``file-removed``, ``file-changed``, and for pictures,
notebooks, text and .gitattributes ``documentation-changed`` (added and removed ones too).
"""

from __future__ import annotations

import posixpath

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.areas import area_of
from envdoctor.revision.change import Change, Compared
from envdoctor.revision.pairs import read_both, state

__all__ = ["compare"]

_LIMIT = 16 << 20
_DOCUMENTATION = (
    *(".md", ".txt", ".rst", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".ipynb", ".gitattributes"),
    *(".gitignore", ".mp4", ".html", ".css"),
)


def compare(old: Snapshot, new: Snapshot) -> Compared:
    """The changes, in the order of the paths."""
    changes: list[Change] = []
    unread: list[Unread] = []
    paths = sorted(path for path in {**old.files, **new.files} if area_of(path) == "files")
    for path in paths:
        found = state(old, new, path)
        if found == "unknown":
            pair = read_both(old, new, path, _LIMIT)
            if isinstance(pair, Unread):
                unread.append(pair)
                continue
            found = "same" if pair[0] == pair[1] else "changed"
        if found != "same":
            kind = "documentation-changed" if _documentation(path) else f"file-{found}"
            changes.append(Change("files", kind, path, path, _size(old, path), _size(new, path)))
    equal = (f"{len(paths)} other files",) if paths and not changes and not unread else ()
    return Compared(tuple(changes), tuple(unread), equal=equal)


def _documentation(path: str) -> bool:
    name = posixpath.basename(path).lower()
    return name.endswith(_DOCUMENTATION)


def _size(snapshot: Snapshot, path: str) -> str | None:
    entry = snapshot.files.get(path)
    return None if entry is None else f"{entry.size:,} bytes"
