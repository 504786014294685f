"""The local cache of huggingface_hub as snapshots: what was downloaded, and when offline all there is.

``models--ORG--NAME/{refs/<name>, blobs/<etag>, snapshots/<commit>/<path> -> ../../blobs/<etag>, trees/<commit>.json}``.
A link's target is named by the file's oid, so that nothing is hashed; it is read one level only, since blobs may be
links themselves, into a store that all repositories share and that is named by other digests. Since huggingface_hub
1.33 the list of all files of a commit is kept too, with oids of files that were never downloaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from envdoctor.hub.file_names import refusal_of_name
from envdoctor.hub.folder import walk
from envdoctor.hub.local import LocalSnapshot
from envdoctor.hub.object_ids import Hasher, oid_of_digest
from envdoctor.hub.safetensors_header import LARGEST_HEADER
from envdoctor.hub.snapshot import FileEntry, Unread
from envdoctor.models.hub_cache import CachedCommit
from envdoctor.text.files import Files
from envdoctor.text.message import Message

_TREE_LIMIT = 64 << 20


def open_cached(
    cached: CachedCommit,
    asked: str | None = None,
    *,
    largest_header: int = LARGEST_HEADER,
    hasher: Hasher | None = None,
    own: bool = True,
) -> LocalSnapshot:
    """The snapshot of a commit of the cache; ``asked`` is the name that the user gave.

    It is not ``complete`` where only what was downloaded is known, and not all files of the commit. Files are hashed,
    and refused when their content is not what their name says; of those that ``hasher`` leaves alone the name counts
    where the cache is the user's ``own``. A folder that only looks like a cache proves nothing by its names.
    """
    hasher = hasher or Hasher()
    place = os.path.dirname(os.path.dirname(cached.folder))
    listed = _listed(os.path.join(place, "trees", cached.commit + ".json")) if own else None
    files = dict(listed or {})
    places: dict[str, str] = {}
    refused: list[Unread] = []
    for found in walk(cached.folder, os.path.realpath(os.path.dirname(place)), Message("the cache")):
        if isinstance(found, Unread):
            refused.append(found)
            continue
        path, known = found.path, files.get(found.path)
        if found.status is None:
            # A link to a blob that was deleted, or that is still on its way.
            if known is None:
                refused.append(Unread(path, Message("its content is gone from the cache")))
        elif known is not None and known.size != found.status.st_size:
            refused.append(Unread(path, Message("the cache holds it with another size than the repository lists")))
        else:
            size = found.status.st_size
            named = known.oid if known else _oid_of_link(os.path.join(cached.folder, path))
            oid = hasher.oid(found.place, size, named.partition(":")[0] if named else "")
            if oid is not None and named is not None and oid != named:
                refused.append(Unread(path, Message("its content in the cache is not what its name says")))
                files.pop(path, None)
                continue
            places[path] = found.place
            files[path] = FileEntry(path, size, oid or (named if own else None))
    return LocalSnapshot(
        asked=asked or cached.repo,
        label=Message("{} @ {} (cache)", cached.repo, cached.commit[:7]),
        files=files,
        places=places,
        refused=tuple(refused),
        largest_header=largest_header,
        absent=Message("it was never downloaded to this machine"),
        repo=cached.repo,
        revision=cached.commit,
        complete=listed is not None,
    )


def _listed(place: str) -> dict[str, FileEntry] | None:
    """The files of a commit by the list that huggingface_hub keeps (format 1); None where there is none."""
    try:
        data = json.loads(Files().whole(place, _TREE_LIMIT).decode("utf-8"))
        if data["format_version"] != 1:
            return None
        return {path: _entry(path, item) for path, item in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        return None


def _entry(path: str, item: Mapping[str, Any]) -> FileEntry:
    """Raises ValueError for what is no entry: then the list as a whole is not believed."""
    lfs, size = item.get("lfs_sha256"), item.get("lfs_size")
    oid = oid_of_digest(item["blob_id"] if lfs is None else lfs)
    size = item["size"] if lfs is None or size is None else size
    expected = "sha1:" if lfs is None else "sha256:"
    if refusal_of_name(path) or oid is None or not oid.startswith(expected) or type(size) is not int or size < 0:
        raise ValueError(path)
    return FileEntry(path, size, oid)


def _oid_of_link(place: str) -> str | None:
    try:
        target = os.readlink(place)
    except (OSError, ValueError):
        return None
    return oid_of_digest(os.path.basename(target)) if os.path.basename(os.path.dirname(target)) == "blobs" else None
