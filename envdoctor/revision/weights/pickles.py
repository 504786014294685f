"""Pickles among the files: which came, whether safetensors went, and what new ones would import when they are loaded.

Kinds of changes, in the area ``files``:

* ``pickle-added`` (symbol: the set or file, after: ``loaded by default``, ``beside safetensors`` or ``other file``);
* ``safetensors-removed`` (before: the files, after: what is loaded instead, or nothing);
* ``unsafe-global-added`` (symbol: the global, after: ``runs code`` or ``not on torch's list``, count: files).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from envdoctor.hub.pickle_reading import Checkpoint
from envdoctor.hub.pickle_scan import COMPUTED_NAME
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.hub.torch_zip import read_checkpoint
from envdoctor.knowledge.matrix import Matrix
from envdoctor.revision.comparer import Change, Compared, Revisions
from envdoctor.revision.weights.parts.file_sets import main_set, weight_sets
from envdoctor.text.listed import listed
from envdoctor.text.message import Message

AREA = "files"

_EXTENSIONS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
_MOST_GLOBALS = 20
RUNS_CODE = "runs code"
NOT_LISTED = "not on torch's list"


class Globals:
    """The table pickle-globals: what torch loads without being asked, and what is known to run code."""

    def __init__(self, matrix: Matrix) -> None:
        self._safe, self._unsafe = (_names(matrix, part) for part in ("safe", "runs-code"))

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


def _names(matrix: Matrix, part: str) -> dict[str, frozenset[str]]:
    names: Mapping[str, Sequence[str]] = matrix.part("pickle-globals", part).get("names", {})
    return {module: frozenset(attributes) for module, attributes in names.items()}


def wants(path: str) -> bool:
    """Files that are pickles by their name."""
    return path.lower().endswith(_EXTENSIONS)


def compare(revisions: Revisions) -> Compared:
    """The changes."""
    old, new = revisions.old, revisions.new
    changes, unread = _globals(revisions, Globals(revisions.matrix))
    return Compared((*_added(old, new), *_safetensors_removed(old, new), *changes), tuple(unread))


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
            changes.append(Change(AREA, "pickle-added", files[0], key.stem, None, how, len(files)))
    for path in sorted(new.files):
        if wants(path) and path not in old.files and path not in in_sets:
            changes.append(Change(AREA, "pickle-added", path, posixpath.basename(path), None, "other file"))
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
    return [Change(AREA, "safetensors-removed", before[was][0], was.stem, files, instead, len(before[was]))]


def _globals(revisions: Revisions, known: Globals) -> tuple[list[Change], list[Unread]]:
    """Globals that are not safe and that no pickle of the old revision under the same name has."""
    old, new = revisions.old, revisions.new
    files: dict[str, list[str]] = {}
    unread: list[Unread] = []
    for path in revisions.changed():
        if path not in new.files:
            continue
        checkpoint = read_checkpoint(new, path, revisions.clock)
        if isinstance(checkpoint, Unread):
            unread.append(checkpoint)
            continue
        if not checkpoint.all_globals:
            unread.append(Unread(path, Message("not all of its pickle was looked at: {}", checkpoint.problem)))
        bad = [name for name in checkpoint.globals if known.verdict(name) is not None]
        before = read_checkpoint(old, path, revisions.clock) if bad and path in old.files else None
        present = set(before.globals) if isinstance(before, Checkpoint) else set()
        for name in bad:
            if name not in present:
                files.setdefault(name, []).append(path)
    ranked = sorted(files, key=lambda name: (known.verdict(name) != RUNS_CODE, name))
    changes: list[Change] = []
    for name in ranked[:_MOST_GLOBALS]:
        found, detail = files[name], listed(files[name], 3) if len(files[name]) > 1 else None
        verdict = known.verdict(name)
        changes.append(Change(AREA, "unsafe-global-added", found[0], name[:200], None, verdict, len(found), detail))
    rest = ranked[_MOST_GLOBALS:]
    if rest:
        verdict, path = known.verdict(rest[0]), files[rest[0]][0]
        changes.append(
            Change(AREA, "unsafe-global-added", path, Message("{} more globals", len(rest)), None, verdict, len(rest))
        )
    return changes, unread
