"""The index of sharded weights against the headers of the shards."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.comparer import Change, read_json
from envdoctor.revision.weights.parts.file_sets import SetKey, missing_shards
from envdoctor.revision.weights.parts.layouts import Layout
from envdoctor.revision.weights.parts.name_patterns import group
from envdoctor.text.listed import listed
from envdoctor.text.message import Message

#: That of DeepSeek-V3, with 91,991 tensors, has 8.9 MB.
_LARGEST_INDEX = 64 << 20
_EXTENSION = {"safetensors": ".safetensors", "pickled": ".bin"}


def index_path(key: SetKey) -> str:
    """Where the index of a set lies."""
    folder = f"{key.folder}/" if key.folder else ""
    return f"{folder}{key.stem}{_EXTENSION.get(key.format, '')}.index.json"


def check_index(
    snapshot: Snapshot, key: SetKey, files: Sequence[str], layout: Layout
) -> tuple[list[Change], list[Unread]]:
    """``shard-missing``, ``index-missing`` and ``index-mismatch`` of one set of the new revision.

    ``layout`` holds the shards that were read; of the others the index is taken at its word.
    """
    absent = missing_shards(files)
    path = index_path(key)
    changes: list[Change] = []
    if absent:
        changes.append(Change("weights", "shard-missing", files[0], listed(absent), None, None, len(absent)))
    if path not in snapshot.files:
        if len(files) > 1 and "-of-" in files[0]:
            changes.append(Change("weights", "index-missing", path, path, None, None, len(files)))
        return changes, []
    read = read_json(snapshot, path, _LARGEST_INDEX)
    if read is None or isinstance(read, Unread):
        return changes, [read] if isinstance(read, Unread) else []
    table = read.data.get("weight_map")
    if not isinstance(table, dict):
        return changes, [Unread(path, Message("it has no weight_map"))]
    folder = f"{key.folder}/" if key.folder else ""
    problems: dict[str, list[str]] = {"in a file that is not there": [], "not in the file it names": []}
    for name, file in table.items():
        where = f"{folder}{file}"
        if where not in snapshot.files:
            if where not in absent:
                problems["in a file that is not there"].append(name)
        elif layout.where.get(name) != where and where in layout.files:
            problems["not in the file it names"].append(name)
    problems["not in the index"] = [name for name in layout.where if name not in table]
    for what, names in problems.items():
        if names:
            patterns = list(group(names))
            rest = listed(patterns[1:]) or None
            changes.append(Change("weights", "index-mismatch", path, patterns[0], None, what, len(names), rest))
    return changes, []
