"""The licence, and files that belong to no other area: which came, went or changed. They are not read unless nothing
else can tell.

``file-read-by-code``: the repository's Python files name it. ``documentation-changed``: pictures, notebooks, text and
.gitattributes, added and removed ones too. ``licence-field-…``: symbol is the field of README.md, ``license``.
"""

import posixpath
import re
from collections.abc import Iterator

from envdoctor.revision.comparer import Change, Compared, Revisions, differences, outcome, short
from envdoctor.revision.hub.snapshot import Unread, is_text_about_the_model
from envdoctor.system.message import Message

_LIMIT = 16 << 20
#: Beside what is about the model: other text, which no loader reads.
_DOCUMENTATION = (".txt", ".rst", ".ipynb", ".html", ".css")
_README = "README.md"
_LICENCES = ("licen", "copying", "notice", "use_policy", "usage_policy")
_LONGEST_LICENCE, _MOST_LICENCES = 4 << 20, 20
_FRONT = 64 << 10
_FIELDS = ("license", "license_name", "license_link")
#: Read line by line: a YAML reader would follow the aliases of a hostile file, and one scalar is all that is wanted.
_FIELD = re.compile(rf"^({'|'.join(_FIELDS)})[ \t]*:(.*)", re.MULTILINE)
_ITEMS = re.compile(r"^[ \t]*-(.+)", re.MULTILINE)


def compare(revisions: Revisions) -> Compared:
    """Return the changes of other files, in the order of the paths."""
    count = len(revisions.files)
    return outcome(_compare(revisions), Message("{} other files", count) if count else None)


def _compare(revisions: Revisions) -> Iterator[Change | Unread]:
    code: tuple[str, ...] | Unread | None = ()  # read once, and only where it matters
    for path in revisions.changed():
        state = revisions.state(path)
        pair = revisions.read(path, _LIMIT) if state == "unknown" else None
        if isinstance(pair, Unread):
            yield pair
        elif pair is None or pair[0] != pair[1]:
            about = is_text_about_the_model(path) or path.lower().endswith(_DOCUMENTATION)
            if code == () and not about:
                code = revisions.code() or None
                if isinstance(code, Unread):
                    yield code
            is_named = type(code) is tuple and any(posixpath.basename(path) in text for text in code)
            kind = "file-read-by-code" if is_named else f"file-{'changed' if pair else state}"
            yield Change("files", "documentation-changed" if about else kind, path, path, *revisions.sizes(path))


def is_licence(path: str) -> bool:
    """Return whether it is a licence's text, or README.md, where only the declared fields are compared."""
    name = posixpath.basename(path).lower()
    return path == _README or (any(word in name for word in _LICENCES) and not name.endswith((".py", ".safetensors")))


def compare_licences(revisions: Revisions) -> Compared:
    """Return the changes. Licence files are read only to see whether more than blanks and line breaks changed."""
    listed = _README in revisions.changed() and _cards(revisions)
    name = Message("licence (of README.md by the Hub's list)") if listed else Message("licence")
    return outcome(_compare_licences(revisions), name if revisions.files else None)


def _cards(revisions: Revisions) -> list[dict[str, str]]:
    """Return what both lists give of README.md; nothing unless one of two lists of a Hub gives any of it."""
    cards = [card for card in (revisions.old.card, revisions.new.card) if card is not None]
    fields: list[dict[str, str]] = []
    for card in cards if len(cards) == 2 and any(cards) else ():
        lists = [(name, values if isinstance(values := card.get(name), list) else [values]) for name in _FIELDS]
        texts = [(name, ", ".join(item for item in values if isinstance(item, str))) for name, values in lists]
        fields.append({name: short(text) for name, text in texts if text})
    return fields


def _compare_licences(revisions: Revisions) -> Iterator[Change | Unread]:
    changed = revisions.changed()
    for path in changed[_MOST_LICENCES:][:1]:
        yield Unread(path, Message("only {} files of this kind are compared", _MOST_LICENCES))
    for path in changed[:_MOST_LICENCES]:
        cards = _cards(revisions) if path == _README else []
        pair = (None, None) if cards else revisions.read(path, _LONGEST_LICENCE)
        if isinstance(pair, Unread):
            yield pair
        elif path == _README:
            for name, before, after in differences(*(cards or map(_front_matter, pair))):
                yield _change("field", path, name, before, after)
        elif None in pair or (pair[0] or b"").split() != (pair[1] or b"").split():
            yield _change("text", path, path, *revisions.sizes(path))


def _change(part: str, path: str, symbol: str, before: str | None, after: str | None) -> Change:
    how = "added" if before is None else "removed" if after is None else "changed"
    return Change("licence", f"licence-{part}-{how}", path, symbol, before, after)


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
