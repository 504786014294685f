"""Pickles among the files: which came, whether safetensors went, and what new ones would import when they are loaded.

Kinds of changes, in the area ``files``:

* ``pickle-added`` (symbol: the set or file, after: ``loaded by default``, ``beside safetensors`` or ``other file``);
* ``safetensors-removed`` (before: the files, after: what is loaded instead, or nothing);
* ``unsafe-global-added`` (symbol: the global, after: ``runs code`` or ``not on torch's list``, count: files).
"""

import posixpath
from collections.abc import Iterator, Mapping

from envdoctor.hub.pickle_reading import COMPUTED_NAME
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.hub.torch_zip import read_checkpoint
from envdoctor.knowledge.matrix import Matrix
from envdoctor.revision.comparer import Change, Compared, Revisions, parted
from envdoctor.revision.weights.parts.file_sets import SetKey, main_set, weight_sets
from envdoctor.text.message import Message, listed

_EXTENSIONS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
_MOST_GLOBALS = 20
RUNS_CODE = "runs code"
NOT_LISTED = "not on torch's list"

Sets = Mapping[SetKey, tuple[str, ...]]


class Globals:
    """The table pickle-globals: what torch loads without being asked, and what is known to run code."""

    def __init__(self, matrix: Matrix) -> None:
        parts = (matrix.part("pickle-globals", part) for part in ("safe", "runs-code"))
        self._safe, self._unsafe = (part.get("names", {}) for part in parts)

    def verdict(self, name: str) -> str | None:
        """:data:`RUNS_CODE`, :data:`NOT_LISTED`, or None for a global that is safe."""
        if name == COMPUTED_NAME:
            return RUNS_CODE
        module, _, attribute = name.rpartition(".")
        if attribute in self._safe.get(module, ()):
            return None
        while module:
            listed_here = self._unsafe.get(module, ())
            if "*" in listed_here or name[len(module) + 1 :].partition(".")[0] in listed_here:
                return RUNS_CODE
            module = module.rpartition(".")[0]
        return NOT_LISTED


def wants(path: str) -> bool:
    """Files that are pickles by their name."""
    return path.lower().endswith(_EXTENSIONS)


def compare(revisions: Revisions) -> Compared:
    """The changes."""
    old, new = revisions.old, revisions.new
    before, after = weight_sets(old), weight_sets(new)
    changes, unread = parted(_globals(revisions, Globals(revisions.matrix)))
    return Compared((*_added(old, new, before, after), *_safetensors_removed(before, after), *changes), unread)


def _added(old: Snapshot, new: Snapshot, before: Sets, after: Sets) -> Iterator[Change]:
    """One change for each set of weights, and one for each other file."""
    main = main_set(after)
    pickled = {key: files for key, files in after.items() if key.format == "pickled"}
    for key, files in pickled.items():
        if key not in before:
            beside = any(other.format == "safetensors" for other in after)
            how = "loaded by default" if key == main else "beside safetensors" if beside else "other file"
            yield Change("files", "pickle-added", files[0], key.stem, None, how, len(files))
    in_sets = {path for files in pickled.values() for path in files}
    for path in sorted(new.files.keys() - old.files.keys() - in_sets):
        if wants(path):
            yield Change("files", "pickle-added", path, posixpath.basename(path), None, "other file")


def _safetensors_removed(before: Sets, after: Sets) -> Iterator[Change]:
    was, now = main_set(before), main_set(after)
    if was is None or was.format != "safetensors" or was in after or (now and now.format == "safetensors"):
        return
    instead = listed(after[now], 2) if now is not None else None
    files = before[was]
    yield Change("files", "safetensors-removed", files[0], was.stem, listed(files, 2), instead, len(files))


def _globals(revisions: Revisions, known: Globals) -> Iterator[Change | Unread]:
    """Globals that are not safe and that no pickle of the old revision under the same name has."""
    old, new = revisions.old, revisions.new
    files: dict[str, list[str]] = {}
    for path in revisions.changed():
        if path not in new.files:
            continue
        checkpoint = read_checkpoint(new, path, revisions.clock)
        if isinstance(checkpoint, Unread):
            yield checkpoint
            continue
        if not checkpoint.all_globals:
            yield Unread(path, Message("not all of its pickle was looked at: {}", checkpoint.problem))
        bad = [name for name in checkpoint.globals if known.verdict(name) is not None]
        before = read_checkpoint(old, path, revisions.clock) if bad and path in old.files else None
        for name in bad:
            if before is None or isinstance(before, Unread) or name not in before.globals:
                files.setdefault(name, []).append(path)
    ranked = sorted(files, key=lambda name: (known.verdict(name) != RUNS_CODE, name))
    for name in ranked[:_MOST_GLOBALS]:
        found, detail = files[name], listed(files[name], 3) if len(files[name]) > 1 else None
        verdict = known.verdict(name)
        yield Change("files", "unsafe-global-added", found[0], name[:200], None, verdict, len(found), detail)
    rest = ranked[_MOST_GLOBALS:]
    if rest:
        verdict, more = known.verdict(rest[0]), Message("{} more globals", len(rest))
        yield Change("files", "unsafe-global-added", files[rest[0]][0], more, None, verdict, len(rest))
