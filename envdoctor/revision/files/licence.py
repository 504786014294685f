"""The licence: its text and what the README's front matter declares.

Kinds of changes: ``licence-field-changed``, ``licence-field-added``, ``licence-field-removed`` (``symbol`` is the field
of README.md, ``license``), ``licence-text-changed``, ``licence-text-added``, ``licence-text-removed`` (``symbol`` is
the file).
"""

import posixpath
import re
from collections.abc import Iterator

from envdoctor.hub.snapshot import Unread
from envdoctor.revision.comparer import Change, Compared, Revisions, differences, outcome
from envdoctor.revision.short_text import short
from envdoctor.text.message import Message

_README = "README.md"
_NAMES = ("licen", "copying", "notice", "use_policy", "usage_policy")
_LIMIT = 4 << 20
_MOST_FILES = 20
_FRONT = 64 << 10
#: Read line by line: a YAML reader would follow the aliases of a hostile file, and one scalar is all that is wanted.
_FIELD = re.compile(r"^(license|license_name|license_link)[ \t]*:(.*)", re.MULTILINE)
_ITEMS = re.compile(r"^[ \t]*-(.+)", re.MULTILINE)


def wants(path: str) -> bool:
    """Texts of licences; and README.md, of which what it declares is the one thing that is compared."""
    name = posixpath.basename(path).lower()
    return path == _README or (any(word in name for word in _NAMES) and not name.endswith((".py", ".safetensors")))


def compare(revisions: Revisions) -> Compared:
    """The changes. Licence files are read only to see whether more than blanks and line breaks changed."""
    return outcome(_compare(revisions), Message("licence") if revisions.files else None)


def _compare(revisions: Revisions) -> Iterator[Change | Unread]:
    for path in revisions.changed()[:_MOST_FILES]:
        pair = revisions.read(path, _LIMIT)
        if isinstance(pair, Unread):
            yield pair
        elif path == _README:
            for name, before, after in differences(*map(_front_matter, pair)):
                yield _change("field", path, name, before, after)
        elif None in pair or (pair[0] or b"").split() != (pair[1] or b"").split():
            yield _change("text", path, path, *revisions.sizes(path))


def _change(what: str, path: str, symbol: str, before: str | None, after: str | None) -> Change:
    how = "added" if before is None else "removed" if after is None else "changed"
    return Change("licence", f"licence-{what}-{how}", path, symbol, before, after)


def _front_matter(content: bytes | None) -> dict[str, str]:
    text = (content or b"")[:_FRONT].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}
    front = text[4:].partition("\n---")[0]
    fields = {}
    for match in _FIELD.finditer(front):
        value = match[2].strip("\"' \t")
        if not value:  # a list of licences on the lines below
            block = re.match(r"(?:\n[ \t]*-[^\n]*)+", front[match.end() :])
            value = ", ".join(item.strip("\"' \t") for item in _ITEMS.findall(block[0])) if block else ""
        if value:
            fields[match[1]] = short(value)
    return fields
