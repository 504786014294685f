"""Pickles among the files: which came, whether safetensors went, and what new ones would import when they are loaded.

Kinds of changes, in the area ``files``:

* ``pickle-added`` (symbol: the set or file, after: ``loaded by default``, ``beside safetensors`` or ``other file``);
* ``safetensors-removed`` (before: the files, after: what is loaded instead, or nothing);
* ``unsafe-global-added`` (symbol: the global, after: ``runs code`` or ``not on torch's list``, count: files).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envdoctor.hub.pickle_scan import COMPUTED_NAME
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.hub.torch_zip import Checkpoint, read_checkpoint
from envdoctor.revision.change import Change, Compared
from envdoctor.revision.tensor_groups import listed
from envdoctor.revision.weight_files import main_set, weight_sets

__all__ = ["Globals", "compare"]

_EXTENSIONS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
_MOST_GLOBALS = 20
RUNS_CODE = "runs code"
NOT_LISTED = "not on torch's list"


class Globals:
    """The table pickle-globals: what torch loads without being asked, and what is known to run code."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._safe = _names(table, "safe")
        self._unsafe = _names(table, "runs-code")

    def verdict(self, name: str) -> str | None:
        """:data:`RUNS_CODE`, :data:`NOT_LISTED`, or None for a global that is safe."""
        if name == COMPUTED_NAME:
            return RUNS_CODE
        module, _, attribute = name.rpartition(".")
        if attribute in self._safe.get(module, ()):
            return None
        while module:
            listed_here = self._unsafe.get(module, frozenset())
            if "*" in listed_here or name[len(module) + 1 :].partition(".")[0] in listed_here:
                return RUNS_CODE
            module = module.rpartition(".")[0]
        return NOT_LISTED


def _names(table: Mapping[str, Any], part: str) -> dict[str, frozenset[str]]:
    names: Mapping[str, Sequence[str]] = table.get(part, {}).get("names", {})
    return {module: frozenset(attributes) for module, attributes in names.items()}


def compare(old: Snapshot, new: Snapshot, *, table: Callable[[str], Mapping[str, Any]] | None = None) -> Compared:
    """The changes. ``table`` gives a table by its name; without it no global is known, and none is judged."""
    changes = [*_added(old, new), *_safetensors_removed(old, new)]
    unread: list[Unread] = []
    if table is not None:
        found, unread = _globals(old, new, Globals(table("pickle-globals")))
        changes += found
    return Compared(tuple(changes), tuple(unread))


def _is_pickle(path: str) -> bool:
    return path.lower().endswith(_EXTENSIONS)


def _added(old: Snapshot, new: Snapshot) -> list[Change]:
    """One change for each set of weights, and one for each other file."""
    before, after = weight_sets(old), weight_sets(new)
    main = main_set(after)
    changes: list[Change] = []
    in_sets: set[str] = set()
    for key, files in after.items():
        if key.format != "pickled":
            continue
        in_sets.update(files)
        if key not in before:
            how = "loaded by default" if key == main else "beside safetensors"
            if key != main and not any(other.format == "safetensors" for other in after):
                how = "other file"
            changes.append(Change("files", "pickle-added", files[0], key.stem, None, how, len(files)))
    for path in sorted(new.files):
        if _is_pickle(path) and path not in old.files and path not in in_sets:
            changes.append(Change("files", "pickle-added", path, posixpath.basename(path), None, "other file"))
    return changes


def _safetensors_removed(old: Snapshot, new: Snapshot) -> list[Change]:
    before, after = weight_sets(old), weight_sets(new)
    was, now = main_set(before), main_set(after)
    if was is None or was.format != "safetensors" or was in after:
        return []
    if now is not None and now.format == "safetensors":
        return []
    files = listed(before[was], 2)
    instead = listed(after[now], 2) if now is not None else None
    return [Change("files", "safetensors-removed", before[was][0], was.stem, files, instead, len(before[was]))]


def _globals(old: Snapshot, new: Snapshot, known: Globals) -> tuple[list[Change], list[Unread]]:
    """Globals that are not safe and that no pickle of the old revision under the same name has."""
    files: dict[str, list[str]] = {}
    unread: list[Unread] = []
    for path in sorted(new.files):
        was = old.files.get(path)
        same = was is not None and was.oid is not None and was.oid == new.files[path].oid
        if not _is_pickle(path) or same:
            continue
        checkpoint = read_checkpoint(new, path)
        if isinstance(checkpoint, Unread):
            unread.append(checkpoint)
            continue
        if not checkpoint.all_globals:
            unread.append(Unread(path, f"not all of its pickle was looked at: {checkpoint.problem}"))
        bad = [name for name in checkpoint.globals if known.verdict(name) is not None]
        before = read_checkpoint(old, path) if bad and was is not None else None
        present = set(before.globals) if isinstance(before, Checkpoint) else set()
        for name in bad:
            if name not in present:
                files.setdefault(name, []).append(path)
    ranked = sorted(files, key=lambda name: (known.verdict(name) != RUNS_CODE, name))
    changes = [
        Change(
            *("files", "unsafe-global-added", files[name][0], name[:200]),
            *(None, known.verdict(name), len(files[name])),
            listed(files[name], 3) if len(files[name]) > 1 else None,
        )
        for name in ranked[:_MOST_GLOBALS]
    ]
    rest = ranked[_MOST_GLOBALS:]
    if rest:
        verdict, path = known.verdict(rest[0]), files[rest[0]][0]
        changes.append(
            Change("files", "unsafe-global-added", path, f"{len(rest)} more globals", None, verdict, len(rest))
        )
    return changes, unread
