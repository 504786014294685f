"""Which sets of weight files are compared with which, and which of their headers have to be read for it."""

from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot
from envdoctor.revision.comparer import Change
from envdoctor.revision.weights.parts.file_sets import SetKey, Shared, main_set, weight_sets
from envdoctor.text.message import Message


class SetPair(NamedTuple):
    """Two sets of files to compare, and which files of each have to be read."""

    old_key: SetKey
    new_key: SetKey
    old_files: tuple[str, ...]
    new_files: tuple[str, ...]
    old_read: tuple[str, ...]
    new_read: tuple[str, ...]


def plan(old: Snapshot, new: Snapshot, shared: Shared) -> tuple[list[SetPair], list[Change]]:
    """Which sets are compared with which; sets that only one side has."""
    old_sets, new_sets = weight_sets(old), weight_sets(new)
    arrived = set(shared.moved.values())
    pairs: list[SetPair] = []
    changes: list[Change] = []

    def pair(old_key: SetKey, new_key: SetKey) -> None:
        before, after = old_sets[old_key], new_sets[new_key]
        known = old_key == new_key
        old_read = [path for path in before if not known or (path not in shared.same and path not in shared.moved)]
        new_read = [path for path in after if not known or (path not in shared.same and path not in arrived)]
        if old_read or new_read or before != after:
            pairs.append(SetPair(old_key, new_key, before, after, tuple(old_read), tuple(new_read)))

    for key in sorted(set(old_sets) & set(new_sets)):
        if key.format == "opaque":
            changes += [
                Change("weights", "opaque-changed", path, path) for path in old_sets[key] if path not in shared.same
            ]
        else:
            pair(key, key)
    old_main, new_main = main_set(old_sets), main_set(new_sets)
    replaced = old_main is not None and new_main is not None and old_main != new_main
    if replaced and old_main is not None and new_main is not None:
        pair(old_main, new_main)
        before, after = (_spell(key, sets[key]) for key, sets in ((old_main, old_sets), (new_main, new_sets)))
        files = new_sets[new_main]
        changes.append(Change("weights", "set-replaced", files[0], new_main.stem, before, after, len(files)))
    one_sided = (
        ("set-removed", old_sets, new_sets, old_main, shared.moved),
        ("set-added", new_sets, old_sets, new_main, arrived),
    )
    for kind, sets, others, main, elsewhere in one_sided:
        for key in sorted(set(sets) - set(others)):
            named = [path for path in sets[key] if path not in elsewhere]
            if named and not (replaced and key == main):
                text = _spell(key, named)
                gone, come = (text, None) if kind == "set-removed" else (None, text)
                changes.append(Change("weights", kind, named[0], key.stem, gone, come, len(named)))
    return pairs, changes


def _spell(key: SetKey, files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} {key.format} files"


def moved_files(shared: Shared) -> tuple[Change, ...]:
    """``file-moved``: one change for all files that have the same bytes under another name."""
    if not shared.moved:
        return ()
    before, after = next(iter(shared.moved.items()))
    rest = len(shared.moved) - 1
    detail = Message("and {} more", rest) if rest else None
    return (Change("weights", "file-moved", after, after, before, after, len(shared.moved), detail),)
