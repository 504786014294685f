"""The weight files of a repository, as sets that are loaded together, and which of them two snapshots share."""

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from envdoctor.hub.snapshot import FileEntry, Snapshot

#: Formats whose tensors are not read; a difference between such files is known by their object ids alone.
_OPAQUE = (".gguf", ".ggml", ".h5", ".msgpack", ".onnx", ".onnx_data", ".tflite", ".npz")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_SHARD = re.compile(r"-(\d{5,6})-of-(\d{5,6})\Z")
_PART = re.compile(r"\.\d\d\Z")
#: Pickled files under other names are the state of a training run, or no weights at all.
_PICKLED_STEMS = re.compile(r"(?:.*pytorch_model|adapter_model|model|consolidated)(?:\.[a-z0-9_]+)?\Z")
#: What transformers and peft look for, in their order of preference.
_PREFERRED = (
    ("model", "safetensors"),
    ("pytorch_model", "pickled"),
    ("adapter_model", "safetensors"),
    ("adapter_model", "pickled"),
    ("diffusion_pytorch_model", "safetensors"),
    ("consolidated", "safetensors"),
    ("consolidated", "pickled"),
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


def missing_shards(paths: Iterable[str]) -> list[str]:
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
