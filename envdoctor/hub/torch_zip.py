"""PyTorch checkpoints (``.bin``, ``.pt``, ``.pth``) from a few ranges: tensors and globals, nothing unpickled.

A checkpoint is a zip archive whose ``data.pkl`` describes the tensors, or (before torch 1.6, and by choice) four
pickles in a row followed by raw storages. Weights are never read.
"""

import zipfile
import zlib
from struct import error as StructError

from envdoctor.hub.pickle_reading import LARGEST_PICKLE, Checkpoint, Clock, read_pickle
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.text.message import Message, MessageError

_TAIL = 32 << 10
_LARGEST_DIRECTORY = 32 << 20
_PREFIX = 64 << 10
_LARGEST_PREFIX = 8 << 20
_LOCAL = b"PK\x03\x04"
_EMPTY = b"PK\x05\x06"


class _Unreadable(MessageError):
    """The archive is damaged or not what it seems; the message is a clause."""


class _Archive:
    """The file as the standard library's reader of zip archives asks for it: its end is at hand, little else is read.

    Raises :class:`_Unreadable` when a part cannot be had.
    """

    def __init__(self, snapshot: Snapshot, path: str, size: int, end: bytes) -> None:
        self._snapshot, self._path, self.size, self._end = snapshot, path, size, end
        self._position = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = max(0, offset + (0, self._position, self.size)[whence])
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, length: int = -1) -> bytes:
        stop = self.size if length < 0 else min(self.size, self._position + length)
        start, self._position = self._position, max(self._position, stop)
        return self.part(start, stop - start)

    def part(self, start: int, length: int) -> bytes:
        """Bytes of the file."""
        inside = start - (self.size - len(self._end))
        if inside >= 0:
            return self._end[inside : inside + max(0, length)]
        if length > max(_LARGEST_DIRECTORY, LARGEST_PICKLE):
            raise _Unreadable("a part of its archive has {} bytes, too many to read", f"{length:,}")
        parts = self._snapshot.read_ranges(self._path, [(start, length)])
        if isinstance(parts, Unread):
            raise _Unreadable(parts.reason)
        return parts[0]


def read_checkpoint(snapshot: Snapshot, path: str, clock: Clock) -> Checkpoint | Unread:
    """Read a checkpoint's description, about 30 kB of a file of any size, in the time that ``clock`` leaves."""
    size = snapshot.files[path].size
    if size < 4:
        return Unread(path, Message("it has {} bytes, which is no checkpoint", size))
    tail = min(size, _TAIL)
    parts = snapshot.read_ranges(path, [(0, min(size, 512)), (size - tail, tail)])
    if isinstance(parts, Unread):
        return parts
    head, end = parts
    if head.startswith(b"version https://git-lfs"):
        return Unread(path, Message("it is a Git LFS pointer, not the checkpoint itself"))
    if head[257:262] == b"ustar":
        return Unread(path, Message("it is a tar archive, torch's format before 0.1.10, which is not looked into"))
    if head[:4] not in (_LOCAL, _EMPTY):
        return _read_pickles(snapshot, path, size, clock)
    try:
        return _read_archive(_Archive(snapshot, path, size, end), clock)
    except _Unreadable as error:
        return Unread(path, error.message)


def _read_archive(archive: _Archive, clock: Clock) -> Checkpoint:
    try:
        with zipfile.ZipFile(archive) as directory:
            members = directory.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, StructError) as error:
        raise _Unreadable("its archive is damaged, or the file is cut ({})", str(error)[:80]) from None
    pickles = [member for member in members if member.filename.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1:
        raise _Unreadable("the archive has {} files named data.pkl instead of one", len(pickles))
    script = any(member.filename.rpartition("/")[2] == "constants.pkl" for member in members)
    return read_pickle("torchscript" if script else "zip", _member(archive, pickles[0]), clock)


def _member(archive: _Archive, member: zipfile.ZipInfo) -> bytes:
    """The content of a file in the archive. Its checksum is not looked at: torch does not either."""
    largest = max(member.file_size, member.compress_size)
    if largest > LARGEST_PICKLE:
        raise _Unreadable("its data.pkl has {} bytes, too many to look at", f"{largest:,}")
    # The local header repeats the name and has padding of its own, which torch uses to align the data.
    begin, packed, size = member.header_offset, member.compress_size, archive.size
    guess = min(30 + len(member.filename.encode()) + 256 + packed, size - begin)
    raw = archive.part(begin, guess) if 0 <= begin <= size - 30 else b""
    if raw[:4] != _LOCAL:
        raise _Unreadable("its data.pkl is not where the directory of its archive says: the file is damaged or cut")
    start = 30 + int.from_bytes(raw[26:28], "little") + int.from_bytes(raw[28:30], "little")
    if begin + start + packed > size:
        raise _Unreadable("its data.pkl lies beyond its end: the file is cut")
    data = raw[start : start + packed]
    return _unpack(member, data if len(data) == packed else archive.part(begin + start, packed))


def _unpack(member: zipfile.ZipInfo, packed: bytes) -> bytes:
    if member.compress_type == zipfile.ZIP_STORED:
        data = packed
    elif member.compress_type == zipfile.ZIP_DEFLATED:
        try:
            data = zlib.decompressobj(-15).decompress(packed, LARGEST_PICKLE + 1)
        except zlib.error:
            raise _Unreadable("its data.pkl cannot be decompressed") from None
    else:
        raise _Unreadable("its data.pkl is compressed in a way that torch does not use ({})", member.compress_type)
    if len(data) != member.file_size:
        raise _Unreadable("its data.pkl does not have the size that the directory of its archive gives")
    return data


def _read_pickles(snapshot: Snapshot, path: str, size: int, clock: Clock) -> Checkpoint | Unread:
    """The older format and plain pickles: a prefix, made longer as long as the description goes on behind it."""
    length = min(size, _PREFIX)
    while True:
        parts = snapshot.read_ranges(path, [(0, length)])
        if isinstance(parts, Unread):
            return parts
        found = read_pickle("prefix", parts[0], clock)
        if not found.cut or length >= min(size, _LARGEST_PREFIX):
            # where the file itself ends, an unpickler fails: nothing is behind it
            return found._replace(all_globals=found.all_globals or (found.cut and length >= size))
        length = min(size, length * 8, _LARGEST_PREFIX)
