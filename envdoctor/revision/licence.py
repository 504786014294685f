"""The licence: its text and what the README's front matter declares.

Kinds of changes: ``licence-field-changed``, ``licence-field-added``, ``licence-field-removed`` (``symbol`` is the field
of README.md, ``license``), ``licence-text-changed``, ``licence-text-added``, ``licence-text-removed`` (``symbol`` is
the file).
"""

from __future__ import annotations

import re

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.areas import area_of
from envdoctor.revision.change import Change, Compared
from envdoctor.revision.pairs import differing, read_both
from envdoctor.revision.spelling import short

__all__ = ["compare"]

_README = "README.md"
_LIMIT = 4 << 20
_MOST_FILES = 20
_FRONT = 64 << 10
#: Read line by line: a YAML reader would follow the aliases of a hostile file, and one scalar is all that is wanted.
_FIELD = re.compile(r"^(license|license_name|license_link)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_ITEMS = re.compile(r"^[ \t]*-[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def compare(old: Snapshot, new: Snapshot) -> Compared:
    """The changes. Licence files are read only to see whether more than blanks and line breaks changed."""
    paths = [path for path in {**old.files, **new.files} if area_of(path) == "licence"]
    changes: list[Change] = []
    unread: list[Unread] = []
    for path in differing(old, new, paths)[:_MOST_FILES]:
        pair = read_both(old, new, path, _LIMIT)
        if isinstance(pair, Unread):
            unread.append(pair)
        elif path == _README:
            changes += _fields(*pair)
        else:
            changes += _text(path, *pair)
    return Compared(tuple(changes), tuple(unread), equal=("licence",) if paths and not changes and not unread else ())


def _fields(before: bytes | None, after: bytes | None) -> list[Change]:
    one, two = _front_matter(before), _front_matter(after)
    changes = []
    for name in dict.fromkeys([*one, *two]):
        was, now = one.get(name), two.get(name)
        if was != now:
            kind = "added" if was is None else "removed" if now is None else "changed"
            changes.append(Change("licence", f"licence-field-{kind}", _README, name, was, now))
    return changes


def _front_matter(content: bytes | None) -> dict[str, str]:
    text = (content or b"")[:_FRONT].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}
    front = text[4:].partition("\n---")[0]
    fields = {}
    for match in _FIELD.finditer(front):
        value = match[2].strip("\"' ")
        if not value:  # a list of licences on the lines below
            block = re.match(r"(?:\n[ \t]*-[^\n]*)+", front[match.end() :])
            value = ", ".join(item.strip("\"' ") for item in _ITEMS.findall(block[0])) if block else ""
        if value:
            fields[match[1]] = short(value)
    return fields


def _text(path: str, before: bytes | None, after: bytes | None) -> list[Change]:
    if before is not None and after is not None:
        if before.split() == after.split():
            return []
        return [Change("licence", "licence-text-changed", path, path, _size(before), _size(after))]
    kind = "added" if before is None else "removed"
    return [Change("licence", f"licence-text-{kind}", path, path, _size(before), _size(after))]


def _size(content: bytes | None) -> str | None:
    return None if content is None else f"{len(content):,} bytes"
