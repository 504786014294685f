"""Files that belong to no other area: which came, went or changed. They are not read unless nothing else can tell.

Kinds of changes (``symbol`` is the path): ``file-added``, ``file-removed``, ``file-changed``, and for pictures,
notebooks, text and .gitattributes ``documentation-changed`` (added and removed ones too).
"""

from __future__ import annotations

from envdoctor.hub.snapshot import Unread
from envdoctor.revision.comparer import Change, Compared, Revisions
from envdoctor.text.message import Message

AREA = "files"
_LIMIT = 16 << 20
_DOCUMENTATION = (
    *(".md", ".txt", ".rst", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".ipynb", ".gitattributes"),
    *(".gitignore", ".mp4", ".html", ".css"),
)


def compare(revisions: Revisions) -> Compared:
    """The changes, in the order of the paths."""
    changes: list[Change] = []
    unread: list[Unread] = []
    for path in revisions.files:
        found = revisions.state(path)
        if found == "unknown":
            pair = revisions.read(path, _LIMIT)
            if isinstance(pair, Unread):
                unread.append(pair)
                continue
            found = "same" if pair[0] == pair[1] else "changed"
        if found != "same":
            kind = "documentation-changed" if path.lower().endswith(_DOCUMENTATION) else f"file-{found}"
            changes.append(Change(AREA, kind, path, path, *revisions.sizes(path)))
    equal = (Message("{} other files", len(revisions.files)),) if revisions.files and not changes and not unread else ()
    return Compared(tuple(changes), tuple(unread), equal=equal)
