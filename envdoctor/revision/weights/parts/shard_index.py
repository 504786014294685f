"""The index of sharded weights against the headers of the shards."""

import posixpath
from collections.abc import Iterator, Sequence

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
    return posixpath.join(key.folder, f"{key.stem}{_EXTENSION.get(key.format, '')}.index.json")


def check_index(snapshot: Snapshot, key: SetKey, files: Sequence[str], layout: Layout) -> Iterator[Change | Unread]:
    """``shard-missing``, ``index-missing`` and ``index-mismatch`` of one set of the new revision.

    ``layout`` holds the shards that were read; of the others the index is taken at its word.
    """
    absent = missing_shards(files)
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
            first, *others = group(names)
            rest = listed(others) or None
            yield Change("weights", "index-mismatch", path, first, None, what, len(names), rest)
