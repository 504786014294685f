"""Pickles among the files: which came, whether safetensors went, and what new ones would import when they are loaded.

``pickle-added``: after is ``loaded by default``, ``beside safetensors`` or ``other file``. ``safetensors-removed``: it
is what is loaded instead, or nothing. ``unsafe-global-added``: it is ``runs code`` or ``not on torch's list``. A file
with a pickle's name and other first bytes is told as another file.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping

from envdoctor.revision.comparer import Change, Compared, Revisions, parted
from envdoctor.revision.hub.pickle_reading import COMPUTED_NAME, Checkpoint, read_checkpoint
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.revision.weights.parts.layouts import SetKey, main_set, weight_paths, weight_sets
from envdoctor.system.message import Message, listed

_EXTENSIONS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
_MOST_GLOBALS = 20
_RUNS_CODE = "runs code"
_NOT_LISTED = "not on torch's list"

Names = Mapping[str, Collection[str]]
Sets = Mapping[SetKey, tuple[str, ...]]


def wants(path: str) -> bool:
    """Return whether the file's name is a pickle's."""
    return path.lower().endswith(_EXTENSIONS)


def compare(revisions: Revisions) -> Compared:
    """Return the changes. Each added or changed file is read to the end of its pickle if that can be understood."""
    old, new = revisions.old, revisions.new
    before, after = weight_sets(old), weight_sets(new)
    here = [path for path in revisions.changed() if path in new.files]
    read = {path: read_checkpoint(new, path, revisions.clock) for path in here}
    others = {path for path, found in read.items() if not isinstance(found, Unread) and not found.is_pickle}
    changes, unread = parted(_globals(revisions, read))
    changes_of_files = [*_added(old, new, before, after, others), *_safetensors_removed(before, after)]
    # Files that only have a pickle's name, except weights, which the comparer of weights tells.
    gone = {path for path in revisions.changed() if path not in new.files}
    for path in sorted((others | gone) - weight_paths(new).keys() - weight_paths(old).keys()):
        changes_of_files.append(Change("files", f"file-{revisions.state(path)}", path, path, *revisions.sizes(path)))
    return Compared((*changes_of_files, *changes), unread)


def _added(old: Snapshot, new: Snapshot, before: Sets, after: Sets, others: Collection[str]) -> Iterator[Change]:
    """Yield one change for each set of weights, and one for each other file."""
    main, beside = main_set(after), any(key.format == "safetensors" for key in after)
    rest = new.files.keys() - old.files.keys() - {*others}
    for key, files in after.items():
        if key.format == "pickled" and not {*files} <= {*others}:
            rest -= {*files}
            if key not in before:
                how = "loaded by default" if key == main else "beside safetensors" if beside else "other file"
                yield Change("files", "pickle-added", files[0], key.stem, None, how, len(files))
    for path in filter(wants, sorted(rest)):
        yield Change("files", "pickle-added", path, posixpath.basename(path), None, "other file")


def _safetensors_removed(before: Sets, after: Sets) -> Iterator[Change]:
    was, now = main_set(before), main_set(after)
    if was is None or was.format != "safetensors" or was in after or (now and now.format == "safetensors"):
        return
    instead = listed(after[now], 2) if now is not None else None
    files = before[was]
    yield Change("files", "safetensors-removed", files[0], was.stem, listed(files, 2), instead, len(files))


def _verdict(name: str, safe: Names, unsafe: Names) -> str | None:
    """Return :data:`RUNS_CODE`, :data:`NOT_LISTED`, or None for a global that torch loads without being asked."""
    if name == COMPUTED_NAME:
        return _RUNS_CODE
    module, _, attribute = name.rpartition(".")
    if attribute in safe.get(module, ()):
        return None
    while module:
        if not {"*", name[len(module) + 1 :].partition(".")[0]}.isdisjoint(unsafe.get(module, ())):
            return _RUNS_CODE
        module = module.rpartition(".")[0]
    return _NOT_LISTED


def _globals(revisions: Revisions, read: Mapping[str, Checkpoint | Unread]) -> Iterator[Change | Unread]:
    """Yield unsafe globals that no pickle of the same name has in the old revision."""
    old = revisions.old
    parts = (revisions.matrix.part("pickle-globals", part) for part in ("safe", "runs-code"))
    safe, unsafe = (part.get("names", {}) for part in parts)
    files: dict[tuple[bool, str], list[str]] = {}  # what runs code comes first
    for path, checkpoint in read.items():
        if isinstance(checkpoint, Unread):
            yield checkpoint
            continue
        if not checkpoint.all_globals:
            yield Unread(path, Message("not all of its pickle was looked at: {}", checkpoint.problem))
        verdicts = {name: _verdict(name, safe, unsafe) for name in checkpoint.globals}
        bad = [(verdict != _RUNS_CODE, name) for name, verdict in verdicts.items() if verdict is not None]
        before = read_checkpoint(old, path, revisions.clock) if bad and path in old.files else None
        for key in bad:
            if before is None or isinstance(before, Unread) or key[1] not in before.globals:
                files.setdefault(key, []).append(path)
    more = len(files) - _MOST_GLOBALS
    for number, ((mild, name), paths) in enumerate(sorted(files.items())[: _MOST_GLOBALS + 1]):
        detail, verdict = listed(paths, 3) if len(paths) > 1 else None, _NOT_LISTED if mild else _RUNS_CODE
        change = Change("files", "unsafe-global-added", paths[0], name[:200], None, verdict, len(paths), detail)
        rest = change._replace(symbol=Message("{} more globals", more), count=more, detail=None)
        yield change if number < _MOST_GLOBALS else rest
