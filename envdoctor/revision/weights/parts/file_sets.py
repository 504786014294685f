"""The weight files of a repository, as sets that are loaded together: which of them two snapshots share, which are
compared with which, which headers have to be read for it, and whether the index of a set agrees with its shards."""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.hub.snapshot import FileEntry, Snapshot, Unread
from envdoctor.revision.comparer import Change, read_json
from envdoctor.revision.weights.parts.layouts import Layout, pattern_of
from envdoctor.text.message import Message, listed

#: Formats whose tensors are not read; a difference between such files is known by their object ids alone.
_OPAQUE = (".gguf", ".ggml", ".h5", ".msgpack", ".onnx", ".onnx_data", ".tflite", ".npz")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_SHARD = re.compile(r"-(\d{5,6})-of-(\d{5,6})\Z")
_PART = re.compile(r"\.\d\d\Z")
#: Pickled files under other names are the state of a training run, or no weights at all.
_PICKLED_STEMS = re.compile(r"(?:.*pytorch_model|adapter_model|model|consolidated)(?:\.[a-z0-9_]+)?\Z")
#: That of DeepSeek-V3, with 91,991 tensors, has 8.9 MB.
_LARGEST_INDEX = 64 << 20
_EXTENSION = {"safetensors": ".safetensors", "pickled": ".bin"}
#: What transformers and peft look for, in their order of preference.
_PREFERRED = (
    *(("model", "safetensors"), ("pytorch_model", "pickled"), ("adapter_model", "safetensors")),
    *(("adapter_model", "pickled"), ("diffusion_pytorch_model", "safetensors")),
    *(("consolidated", "safetensors"), ("consolidated", "pickled")),
)


class SetKey(NamedTuple):
    """A set of weight files that make one checkpoint: ``("", "model", "safetensors")`` for model-00001-of-….

    ``format`` is safetensors, pickled or opaque; the files of an opaque set are only compared by their object ids.
    """

    folder: str
    stem: str
    format: str


class Shared(NamedTuple):
    """Files that hold the same bytes in both snapshots. ``moved`` maps old paths to the new names of their content."""

    same: tuple[str, ...]
    moved: Mapping[str, str]


def weight_sets(snapshot: Snapshot) -> dict[SetKey, tuple[str, ...]]:
    """The sets of a snapshot with their files in order."""
    found: dict[SetKey, list[str]] = {}
    for path in sorted(snapshot.files):
        key = _key(path)
        if key is not None:
            found.setdefault(key, []).append(path)
    return {key: tuple(paths) for key, paths in found.items()}


def weight_paths(snapshot: Snapshot) -> dict[str, FileEntry]:
    """Every weight file."""
    return {path: entry for path, entry in snapshot.files.items() if _key(path) is not None}


def _key(path: str) -> SetKey | None:
    folder, name = posixpath.split(path)
    stem, extension = posixpath.splitext(name)
    lower = extension.lower()
    if lower in _OPAQUE:
        return SetKey(folder, name, "opaque")
    if lower == ".safetensors":
        return SetKey(folder, _SHARD.sub("", _PART.sub("", stem)), "safetensors")
    if lower in _PICKLED:
        stem = _SHARD.sub("", _PART.sub("", stem))
        return SetKey(folder, stem, "pickled") if _PICKLED_STEMS.match(stem) else None
    return None


def main_set(sets: Iterable[SetKey]) -> SetKey | None:
    """The set that a loader takes when it is given the repository; None when that is not to be told."""
    known = sorted(sets)
    for stem, form in _PREFERRED:
        if SetKey("", stem, form) in known:
            return SetKey("", stem, form)
    root = [key for key in known if not key.folder and key.format != "opaque"]
    return root[0] if len(root) == 1 else None


def _missing_shards(paths: Iterable[str]) -> list[str]:
    """Names that a numbering "3 of 7" promises and that are not among the paths."""
    present = set(paths)
    absent: list[str] = []
    for path in sorted(present):
        stem, extension = posixpath.splitext(path)
        match = _SHARD.search(stem)
        if match is None or int(match[2]) > 4096:
            continue
        digits, total = len(match[1]), match[2]
        for number in range(1, int(total) + 1):
            name = f"{stem[: match.start()]}-{number:0{digits}}-of-{total}{extension}"
            if name not in present:
                absent.append(name)
                present.add(name)
    return sorted(absent)


def shared_files(old: Mapping[str, FileEntry], new: Mapping[str, FileEntry]) -> Shared:
    """Weight files with one object id in both snapshots, under the same name or another one."""
    same = tuple(path for path, entry in old.items() if path in new and entry.oid and entry.oid == new[path].oid)
    rest: dict[str, list[str]] = {}
    for path, entry in sorted(new.items()):
        if entry.oid and path not in same:
            rest.setdefault(entry.oid, []).append(path)
    moved: dict[str, str] = {}
    for path, entry in sorted(old.items()):
        names = rest.get(entry.oid) if entry.oid and path not in same else None
        if names:
            moved[path] = names.pop(0)
    return Shared(same, moved)


class WeightSet(NamedTuple):
    """The files of one checkpoint in one snapshot, and which of them have to be read."""

    key: SetKey
    files: tuple[str, ...]
    read: tuple[str, ...]


def plan(old: Snapshot, new: Snapshot, shared: Shared) -> tuple[list[tuple[WeightSet, WeightSet]], list[Change]]:
    """Which sets are compared with which; sets that only one side has."""
    old_sets, new_sets = weight_sets(old), weight_sets(new)
    arrived = set(shared.moved.values())
    changes: list[Change] = []
    keys: list[tuple[SetKey, SetKey]] = []
    for key in sorted(set(old_sets) & set(new_sets)):
        if key.format == "opaque":
            differing = [path for path in old_sets[key] if path not in shared.same]
            changes += [Change("weights", "opaque-changed", path, path) for path in differing]
        else:
            keys.append((key, key))
    old_main, new_main = main_set(old_sets), main_set(new_sets)
    replaced = old_main is not None and new_main is not None and old_main != new_main
    if old_main is not None and new_main is not None and replaced:
        keys.append((old_main, new_main))
        files = new_sets[new_main]
        was, now = _spell(old_main, old_sets[old_main]), _spell(new_main, files)
        changes.append(Change("weights", "set-replaced", files[0], new_main.stem, was, now, len(files)))
    one_sided = (
        ("set-removed", old_sets, new_sets, old_main, shared.moved),
        ("set-added", new_sets, old_sets, new_main, arrived),
    )
    for kind, sets, others, main, elsewhere in one_sided:
        for key in sorted(set(sets) - set(others)):
            named = [path for path in sets[key] if path not in elsewhere]
            if named and not (replaced and key == main):
                text = _spell(key, named)
                kind = "weights-gone" if kind == "set-removed" and key == main and new_main is None else kind
                gone, come = (None, text) if kind == "set-added" else (text, None)
                changes.append(Change("weights", kind, named[0], key.stem, gone, come, len(named)))
    pairs = []
    for one, other in keys:
        known = ({*shared.same, *shared.moved}, {*shared.same, *arrived}) if one == other else ((), ())
        before, after = _set(one, old_sets[one], known[0]), _set(other, new_sets[other], known[1])
        if before.read or after.read or before.files != after.files:
            pairs.append((before, after))
    return pairs, changes


def _set(key: SetKey, files: tuple[str, ...], known: Collection[str]) -> WeightSet:
    return WeightSet(key, files, tuple(path for path in files if path not in known))


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


def index_path(key: SetKey) -> str:
    """Where the index of a set lies."""
    return posixpath.join(key.folder, f"{key.stem}{_EXTENSION.get(key.format, '')}.index.json")


def check_index(snapshot: Snapshot, key: SetKey, files: Sequence[str], layout: Layout) -> Iterator[Change | Unread]:
    """``shard-missing``, ``index-missing`` and ``index-mismatch`` of one set of the new revision.

    ``layout`` holds the shards that were read; of the others the index is taken at its word.
    """
    absent = _missing_shards(files)
    path = index_path(key)
    if absent:
        yield Change("weights", "shard-missing", files[0], listed(absent), None, None, len(absent))
    read = read_json(snapshot, path, _LARGEST_INDEX)
    if read is None:
        if len(files) > 1 and "-of-" in files[0]:
            yield Change("weights", "index-missing", path, path, None, None, len(files))
        return
    table = read if isinstance(read, Unread) else read.data.get("weight_map")
    if not isinstance(table, dict):
        yield read if isinstance(read, Unread) else Unread(path, Message("it has no weight_map"))
        return
    places = {name: posixpath.join(key.folder, str(file)) for name, file in table.items()}
    problems = {
        "in a file that is not there": [
            name for name, where in places.items() if where not in snapshot.files and where not in absent
        ],
        "not in the file it names": [
            name for name, where in places.items() if layout.where.get(name) != where and where in layout.files
        ],
        "not in the index": [name for name in layout.where if name not in table],
    }
    for what, names in problems.items():
        if names:
            first, *others = dict.fromkeys(pattern_of(name)[0] for name in names)
            rest = listed(others) or None
            yield Change("weights", "index-mismatch", path, first, None, what, len(names), rest)
