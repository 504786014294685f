"""Object ids: what git and LFS call the content of a file, read from texts and computed from bytes."""

from __future__ import annotations

import hashlib
import os
import re
from typing import NamedTuple

from envdoctor.text.files import Files

__all__ = ["Pointer", "agrees", "oid_of_digest", "oid_of_file", "pointer_in"]

#: Files up to this size are hashed: a tenth of a second.
_HASHED = 64 << 20
#: What the Hub keeps in LFS: anything above 10 MiB, and these (the .gitattributes that it writes for a new repository).
_LFS_SIZE = 10 << 20
_LFS = (
    *(".7z", ".arrow", ".bin", ".bz2", ".ckpt", ".ftz", ".gz", ".h5", ".joblib", ".mlmodel", ".model", ".msgpack"),
    *(".npy", ".npz", ".onnx", ".ot", ".parquet", ".pb", ".pickle", ".pkl", ".pt", ".pth", ".rar", ".safetensors"),
    *(".tar", ".tflite", ".tgz", ".wasm", ".xz", ".zip", ".zst"),
)
_DIGEST = re.compile(r"(?:([0-9a-f]{40})|([0-9a-f]{64}))\Z")
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n?\Z"
)
_LONGEST_POINTER = 1024


class Pointer(NamedTuple):
    """What the text says that git holds in place of an LFS file: its oid, and its size in bytes."""

    oid: str
    size: int


def oid_of_digest(digest: object) -> str | None:
    """``sha1:…`` for the 40 digits of a git blob, ``sha256:…`` for the 64 of an LFS file; None for anything else."""
    match = _DIGEST.match(digest) if isinstance(digest, str) else None
    return None if match is None else f"sha1:{match[1]}" if match[1] else f"sha256:{match[2]}"


def oid_of_file(place: str, size: int) -> str | None:
    """The oid that the Hub would give a file of this machine: the sha256 where it uses LFS, else that of the git blob.

    None for large files, which are compared by header and size, and for what cannot be read.
    """
    if size > _HASHED:
        return None
    try:
        content = Files().whole(place, _HASHED)
    except OSError:
        return None
    lfs = len(content) > _LFS_SIZE or os.path.splitext(place)[1].lower() in _LFS
    return _oid("sha256" if lfs else "sha1", content)


def agrees(oid: str | None, content: bytes) -> bool:
    """Whether the content is the one that the oid names; True where there is none."""
    return oid is None or _oid(oid.partition(":")[0], content) == oid


def pointer_in(place: str, size: int) -> Pointer | None:
    """What a file points to when it is the text of an LFS pointer."""
    if not 100 <= size <= _LONGEST_POINTER:
        return None
    try:
        match = _POINTER.match(Files().whole(place, _LONGEST_POINTER))
    except OSError:
        return None
    return Pointer(f"sha256:{match[1].decode()}", int(match[2])) if match else None


def _oid(kind: str, content: bytes) -> str:
    if kind == "sha256":
        return f"sha256:{hashlib.sha256(content).hexdigest()}"
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content)  # noqa: S324 (git's own)
    return f"sha1:{blob.hexdigest()}"
