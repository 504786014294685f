"""Files that belong to no other area: which came, went or changed. They are not read unless nothing else can tell.

Kinds of changes (``symbol`` is the path): ``file-added``, ``file-removed``, ``file-changed``; ``file-read-by-code``
where the repository's Python files name it; and for pictures, notebooks, text and .gitattributes
``documentation-changed`` (added and removed ones too).
"""

import posixpath
from collections.abc import Iterator

from envdoctor.hub.snapshot import Unread
from envdoctor.revision.comparer import Change, Compared, Revisions, outcome
from envdoctor.text.message import Message

_LIMIT = 16 << 20
_DOCUMENTATION = (
    *(".md", ".txt", ".rst", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".ipynb", ".gitattributes"),
    *(".gitignore", ".mp4", ".html", ".css"),
)


def compare(revisions: Revisions) -> Compared:
    """The changes, in the order of the paths."""
    count = len(revisions.files)
    return outcome(_compare(revisions), Message("{} other files", count) if count else None)


def _compare(revisions: Revisions) -> Iterator[Change | Unread]:
    code: str | Unread | None = ""  # read once, and only where it matters
    for path in revisions.files:
        state = revisions.state(path)
        if state == "unknown":
            pair = revisions.read(path, _LIMIT)
            if isinstance(pair, Unread):
                yield pair
                continue
            state = "same" if pair[0] == pair[1] else "changed"
        if state != "same":
            about = path.lower().endswith(_DOCUMENTATION)
            if code == "" and not about:
                code = revisions.code() or None
                if isinstance(code, Unread):
                    yield code
            named = type(code) is str and posixpath.basename(path) in code
            kind = "file-read-by-code" if named else f"file-{state}"
            yield Change("files", "documentation-changed" if about else kind, path, path, *revisions.sizes(path))
