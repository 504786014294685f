"""Changes of the code that transformers loads for a repository: the auto_map of its configurations."""

from collections.abc import Iterator, Mapping
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


def compare_auto_maps(revisions: Revisions) -> tuple[list[Change], list[Unread]]:
    """Changed entries, and those that now point into a repository that none did before; a revision does not pin what is
    there."""
    changes: list[Change] = []
    unread: list[Unread] = []
    for path in AUTO_MAP_FILES:
        if revisions.changed([path]):
            before, after = _references(revisions.old, path), _references(revisions.new, path)
            if isinstance(before, Unread) or isinstance(after, Unread):
                unread += [side for side in (before, after) if isinstance(side, Unread)][:1]
            else:
                changes += _differences(path, before, after)
    return changes, unread


def _differences(path: str, before: Mapping[str, _Reference], after: Mapping[str, _Reference]) -> Iterator[Change]:
    known = {one.repository for one in before.values()}
    for key in sorted({**before, **after}):
        one, two = before.get(key), after.get(key)
        if one == two:
            continue
        points_away = two is not None and two.repository not in (None, *known)
        yield Change(
            "code",
            "auto-map-other-repository" if points_away else "auto-map-changed",
            path,
            key,
            one.text if one else None,
            two.text if two else None,
            detail=Message("code of {}", two.repository) if two and points_away else None,
        )


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
