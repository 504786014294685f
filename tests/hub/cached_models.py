"""Snapshots in a cache folder, written as huggingface_hub lays them out."""

import os
from collections.abc import Mapping
from pathlib import Path

from loopback import Blob


def put(
    root: Path, repo: str, commit: str, files: Mapping[str, Blob], *, refs: tuple[str, ...] = (), copies: bool = False
) -> Path:
    """Write a snapshot as huggingface_hub lays it out."""
    place = root / ("models--" + repo.replace("/", "--"))
    (place / "blobs").mkdir(parents=True, exist_ok=True)
    for path, blob in files.items():
        content = b"".join(blob.slice(0, blob.size))
        link = place / "snapshots" / commit / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if copies:
            link.write_bytes(content)
            continue
        target = place / "blobs" / (blob.sha256 if blob.lfs else blob.git_oid)
        target.write_bytes(content)
        link.symlink_to(os.path.relpath(target, link.parent))
    for ref in refs:
        (place / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (place / "refs" / ref).write_text(commit)
    return place
