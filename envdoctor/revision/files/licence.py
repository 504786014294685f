"""The licence: its text and what the README's front matter declares.

Kinds of changes: ``licence-field-changed``, ``licence-field-added``, ``licence-field-removed`` (``symbol`` is the field
of README.md, ``license``), ``licence-text-changed``, ``licence-text-added``, ``licence-text-removed`` (``symbol`` is
the file).
"""

from __future__ import annotations

import posixpath
import re

from envdoctor.hub.snapshot import Unread
from envdoctor.revision.comparer import Change, Compared, Revisions
from envdoctor.revision.short_text import short
from envdoctor.text.message import Message

AREA = "licence"
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
    changes: list[Change] = []
    unread: list[Unread] = []
    for path in revisions.changed()[:_MOST_FILES]:
        pair = revisions.read(path, _LIMIT)
        if isinstance(pair, Unread):
            unread.append(pair)
        elif path == _README:
            changes += _fields(*pair)
        else:
            changes += _text(path, *pair)
    equal = (Message("licence"),) if revisions.files and not changes and not unread else ()
    return Compared(tuple(changes), tuple(unread), equal=equal)


def _fields(before: bytes | None, after: bytes | None) -> list[Change]:
    one, two = _front_matter(before), _front_matter(after)
    changes = []
    for name in dict.fromkeys([*one, *two]):
        was, now = one.get(name), two.get(name)
        if was != now:
            kind = "added" if was is None else "removed" if now is None else "changed"
            changes.append(Change(AREA, f"licence-field-{kind}", _README, name, was, now))
    return changes


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


def _text(path: str, before: bytes | None, after: bytes | None) -> list[Change]:
    if before is not None and after is not None and before.split() == after.split():
        return []
    kind = "added" if before is None else "removed" if after is None else "changed"
    was, now = (None if content is None else Message("{} bytes", f"{len(content):,}") for content in (before, after))
    return [Change(AREA, f"licence-text-{kind}", path, path, was, now)]
