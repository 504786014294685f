"""Changes of the code that transformers loads for a repository: the auto_map of its configurations."""

from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.models.auto_map import AUTO_MAP_FILES, entries
from envdoctor.revision.comparer import Change, Revisions, read_json
from envdoctor.text.message import Message

_MAX_ENTRIES = 200
_MAX_TEXT = 200


class _Reference(NamedTuple):
    """``module.Class``, in ``repository`` when it is another one than that of the configuration."""

    text: str
    repository: str | None


def compare_auto_maps(revisions: Revisions) -> Iterator[Change | Unread]:
    """Changed entries, and those that now point into a repository that none did before; a revision does not pin what is
    there."""
    for path in AUTO_MAP_FILES:
        if revisions.changed([path]):
            before, after = (_references(snapshot, path) for snapshot in (revisions.old, revisions.new))
            if isinstance(before, Unread):
                yield before
                continue
            if isinstance(after, Unread):
                yield after
                continue
            known = {one.repository for one in before.values()}
            for key in sorted({**before, **after}):
                one, two = before.get(key), after.get(key)
                if one != two:
                    away = two.repository if two and two.repository not in (None, *known) else None
                    kind = "auto-map-other-repository" if away is not None else "auto-map-changed"
                    detail = Message("code of {}", away) if away is not None else None
                    yield Change("code", kind, path, key, one and one.text, two and two.text, detail=detail)


def _references(snapshot: Snapshot, path: str) -> dict[str, _Reference] | Unread:
    """The entries by their keys (``AutoModel``, ``AutoTokenizer.0``); empty without the file or without an auto_map."""
    document = read_json(snapshot, path)
    if isinstance(document, Unread):
        return document
    own = {name.casefold() for name in (snapshot.repo, snapshot.asked) if name}
    found: dict[str, _Reference] = {}
    for key, text in entries(document.data) if document else ():
        repository, separator, _ = text.rpartition("--")
        away = repository[:_MAX_TEXT] if separator and repository.casefold() not in own else None
        found[key[:_MAX_TEXT]] = _Reference(text[:_MAX_TEXT], away)
        if len(found) > _MAX_ENTRIES:
            return Unread(path, Message("its auto_map has more than {} entries", _MAX_ENTRIES))
    return found
