"""Reading files of this machine for a snapshot: whole, in ranges, or a header; regular files only."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.hub.header_plan import LARGEST_HEADER, Room
from envdoctor.hub.snapshot import Unread

__all__ = ["Pointer", "digest", "lies_below", "pointer_of", "read_header", "read_ranges", "read_whole"]

_PIECE = 1 << 20
_LARGEST_RANGE = 128 << 20
#: Files up to this size are hashed: a tenth of a second.
_HASHED = 64 << 20
#: What the Hub keeps in LFS: anything above 10 MiB, and these (the .gitattributes that it writes for a new repository).
_LFS_SIZE = 10 << 20
_LFS = (
    *(".7z", ".arrow", ".bin", ".bz2", ".ckpt", ".ftz", ".gz", ".h5", ".joblib", ".mlmodel", ".model", ".msgpack"),
    *(".npy", ".npz", ".onnx", ".ot", ".parquet", ".pb", ".pickle", ".pkl", ".pt", ".pth", ".rar", ".safetensors"),
    *(".tar", ".tflite", ".tgz", ".wasm", ".xz", ".zip", ".zst"),
)
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n?\Z"
)
_LONGEST_POINTER = 1024


class Pointer(NamedTuple):
    """What the text says that git holds in place of an LFS file: sha256 (hex) and size in bytes."""

    sha256: str
    size: int


def read_whole(place: str, path: str, limit: int) -> bytes | Unread:
    """The content of the file at ``place``; ``path`` is its name in the repository."""
    opened = _open(place, path)
    if isinstance(opened, Unread):
        return opened
    handle, size = opened
    try:
        if size > limit:
            return Unread(path, f"it has {size:,} bytes; at most {limit:,} are read")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        return Unread(path, f"it cannot be read: {error.strerror}")
    finally:
        os.close(handle)
    return content if len(content) == size else Unread(path, "it changed while it was read")


def read_ranges(place: str, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
    """Byte ranges of the file at ``place``; a negative offset counts from the end."""
    opened = _open(place, path)
    if isinstance(opened, Unread):
        return opened
    handle, size = opened
    try:
        found: list[bytes] = []
        places = [(offset + size if offset < 0 else offset, length) for offset, length in ranges]
        if any(offset < 0 or length < 0 or offset + length > size for offset, length in places):
            return Unread(path, f"it has {size:,} bytes, fewer than its contents say")
        if sum(length for _, length in places) > _LARGEST_RANGE:
            return Unread(path, f"more than {_LARGEST_RANGE >> 20} MiB of it would have to be read")
        for offset, length in places:
            os.lseek(handle, offset, os.SEEK_SET)
            data = _exactly(handle, length)
            if len(data) != length:
                return Unread(path, "it changed while it was read")
            found.append(data)
        return found
    except OSError as error:
        return Unread(path, f"it cannot be read: {error.strerror}")
    finally:
        os.close(handle)


def read_header(place: str, path: str, size: int, room: Room) -> bytes | Unread:
    """The first 8 bytes and the JSON that they announce; the 8 bytes alone when that is more than there can be."""
    if size < 8:
        return read_whole(place, path, 8)
    first = read_ranges(place, path, [(0, 8)])
    if isinstance(first, Unread):
        return first
    length = int.from_bytes(first[0], "little")
    if length > LARGEST_HEADER or length + 8 > size:
        return first[0]
    problem = room.take(length + 8)
    if problem:
        return Unread(path, problem)
    rest = read_ranges(place, path, [(8, length)])
    return rest if isinstance(rest, Unread) else first[0] + rest[0]


def digest(place: str, size: int) -> str | None:
    """The oid that the Hub would give a file: the sha256 where it uses LFS, else that of the git blob.

    None for large files, which are compared by header and size, and for what cannot be read.
    """
    if size > _HASHED:
        return None
    lfs = size > _LFS_SIZE or os.path.splitext(place)[1].lower() in _LFS
    opened = _open(place, place)
    if isinstance(opened, Unread):
        return None
    handle, size = opened
    hasher = hashlib.sha256() if lfs else hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 (git's own)
    length = 0
    try:
        while piece := os.read(handle, _PIECE):
            hasher.update(piece)
            length += len(piece)
    except OSError:
        return None
    finally:
        os.close(handle)
    return f"{hasher.name}:{hasher.hexdigest()}" if length == size else None


def lies_below(root: str, place: str) -> bool:
    """Whether a path lies below a folder; both without links."""
    try:
        return os.path.commonpath([root, place]) == root
    except ValueError:  # another drive
        return False


def pointer_of(place: str, size: int) -> Pointer | None:
    """What a file points to when it is the text of an LFS pointer."""
    if not 100 <= size <= _LONGEST_POINTER:
        return None
    content = read_whole(place, place, _LONGEST_POINTER)
    match = _POINTER.match(content) if isinstance(content, bytes) else None
    return Pointer(match[1].decode(), int(match[2])) if match else None


def _open(place: str, path: str) -> tuple[int, int] | Unread:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(place, flags)
    except (OSError, ValueError) as error:
        return Unread(path, f"it cannot be opened: {getattr(error, 'strerror', None) or error}")
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return Unread(path, "it is not a regular file")
    return handle, status.st_size


def _exactly(handle: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length and (piece := os.read(handle, min(length, _PIECE))):
        parts.append(piece)
        length -= len(piece)
    return b"".join(parts)
