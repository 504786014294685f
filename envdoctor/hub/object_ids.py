"""Object ids: what git and LFS call the content of a file, read from texts and computed from bytes."""

import errno
import hashlib
import os
import re
from collections.abc import Callable

from envdoctor.text.files import Files
from envdoctor.text.message import Message

#: Files up to this size are hashed unasked, a tenth of a second, and so much of them together.
_HASHED = 64 << 20
_ROOM = 1 << 30
_PIECE = 1 << 20
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


def oid_of_digest(digest: object) -> str | None:
    """``sha1:…`` for the 40 digits of a git blob, ``sha256:…`` for the 64 of an LFS file; None for anything else."""
    match = _DIGEST.match(digest) if isinstance(digest, str) else None
    return None if match is None else f"sha1:{match[1]}" if match[1] else f"sha256:{match[2]}"


class Hasher:
    """Object ids of files of this machine, computed from their content; nothing else than content is believed.

    Unless ``everything`` is asked for, large files and what is beyond a gigabyte in all are left alone. ``notice`` is
    told which large file is read.
    """

    def __init__(self, everything: bool = False, notice: Callable[[str], None] | None = None) -> None:
        self._everything = everything
        self._notice = notice
        self._room = _ROOM

    def oid(self, place: str, size: int, kind: str = "") -> str | None:
        """The oid of one ``kind`` (sha1, sha256), or of the one that the Hub would give the file: sha256 where it uses
        LFS, else that of the git blob. None for what is left alone, and for what cannot be read."""
        if not self._everything:
            if size > min(_HASHED, self._room):
                return None
            self._room -= size
        elif size > _HASHED and self._notice is not None:
            self._notice(Message("reading {} ({} GB)", os.path.basename(place), f"{size / 1e9:.1f}"))
        lfs = size > _LFS_SIZE or os.path.splitext(place)[1].lower() in _LFS
        try:
            return _digest(place, kind or ("sha256" if lfs else "sha1"))
        except (OSError, ValueError):
            return None


def _digest(place: str, kind: str) -> str:
    """Raises ``OSError``, also when the file changes while it is read."""
    descriptor = Files().open(place)
    try:
        size = os.fstat(descriptor).st_size
        digest = _new(kind, size)
        while piece := os.read(descriptor, _PIECE):
            digest.update(piece)
            size -= len(piece)
    finally:
        os.close(descriptor)
    if size:
        raise OSError(errno.EIO, Message("it changed while it was read"), place)
    return f"{kind}:{digest.hexdigest()}"


def _new(kind: str, size: int) -> "hashlib._Hash":
    return hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 (git's own)


def pointer_in(place: str, size: int) -> tuple[int, str] | None:
    """Size in bytes and oid of what a file points to when it is the text that git holds in place of an LFS file."""
    if not 100 <= size <= _LONGEST_POINTER:
        return None
    try:
        match = _POINTER.match(Files().whole(place, _LONGEST_POINTER))
    except OSError:
        return None
    return (int(match[2]), f"sha256:{match[1].decode()}") if match else None


def oid_of_content(kind: str, content: bytes) -> str:
    """The oid of one kind (sha1, sha256) of this content."""
    digest = _new(kind, len(content))
    digest.update(content)
    return f"{kind}:{digest.hexdigest()}"
