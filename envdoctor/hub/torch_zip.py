"""PyTorch checkpoints (``.bin``, ``.pt``, ``.pth``) from a few ranges: tensors and globals, nothing unpickled.

A checkpoint is a zip archive whose ``data.pkl`` describes the tensors, or (before torch 1.6, and by choice) four
pickles in a row followed by raw storages. Weights are never read.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from envdoctor.hub.pickle_scan import LARGEST_PICKLE, Scan, scan_pickle
from envdoctor.hub.pickled_tensors import PickledTensor, tensors_of
from envdoctor.hub.snapshot import Snapshot, Unread

__all__ = ["Checkpoint", "read_checkpoint"]

_TAIL = 32 << 10
_LARGEST_DIRECTORY = 32 << 20
_PREFIX = 64 << 10
_LARGEST_PREFIX = 8 << 20
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x06"
_LOCATOR_64 = b"PK\x06\x07"
_ENTRY = b"PK\x01\x02"
_LOCAL = b"PK\x03\x04"
#: What a file of torch's older format begins with: a pickle of this number (torch/serialization.py, MAGIC_NUMBER).
_OLD_MAGIC = 0x1950A86A20F9469CFC6C


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    ``format`` is zip, torchscript, legacy or pickle. ``globals`` are ``module.name`` in the order of use;
    ``all_globals`` is False when there may be more behind what was looked at. ``tensors`` is None when the names could
    not be made out, and then ``problem`` says why.
    """

    format: str
    globals: tuple[str, ...]
    all_globals: bool
    tensors: dict[str, PickledTensor] | None
    problem: str | None


class _Member(NamedTuple):
    name: str
    method: int
    packed: int
    size: int
    offset: int


class _Unreadable(Exception):
    """The archive is damaged or not what it seems; the message is a clause."""


def read_checkpoint(snapshot: Snapshot, path: str) -> Checkpoint | Unread:
    """Read a checkpoint's description, about 30 kB of a file of any size."""
    size = snapshot.files[path].size
    if size < 4:
        return Unread(path, f"it has {size} bytes, which is no checkpoint")
    tail = min(size, _TAIL)
    parts = snapshot.read_ranges(path, [(0, min(size, 512)), (size - tail, tail)])
    if isinstance(parts, Unread):
        return parts
    head, end = parts
    if head.startswith(b"version https://git-lfs"):
        return Unread(path, "it is a Git LFS pointer, not the checkpoint itself")
    if head[257:262] == b"ustar":
        return Unread(path, "it is a tar archive, torch's format before 0.1.10, which is not looked into")
    if head[:4] not in (_LOCAL, _END):
        return _read_pickles(snapshot, path, size)
    try:
        members = _directory(snapshot, path, size, end)
        if isinstance(members, Unread):
            return members
        return _read_archive(snapshot, path, size, members)
    except _Unreadable as error:
        return Unread(path, str(error))


def _read_archive(snapshot: Snapshot, path: str, size: int, members: list[_Member]) -> Checkpoint | Unread:
    pickles = [member for member in members if member.name.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1:
        raise _Unreadable(f"the archive has {len(pickles)} files named data.pkl instead of one")
    data = _member(snapshot, path, size, pickles[0])
    if isinstance(data, Unread):
        return data
    script = any(member.name.rpartition("/")[2] == "constants.pkl" for member in members)
    return _describe("torchscript" if script else "zip", scan_pickle(data))


def _directory(snapshot: Snapshot, path: str, size: int, tail: bytes) -> list[_Member] | Unread:
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        raise _Unreadable("the end of its archive is missing: the file is cut, or it is not a zip archive")
    count = int.from_bytes(tail[at + 10 : at + 12], "little")
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    start = int.from_bytes(tail[at + 16 : at + 20], "little")
    if count == 0xFFFF or length == 0xFFFFFFFF or start == 0xFFFFFFFF:
        at_64 = tail.rfind(_END_64, 0, at)
        if at < 20 or tail[at - 20 : at - 16] != _LOCATOR_64 or at_64 < 0 or at_64 + 56 > at:
            raise _Unreadable("the directory of its archive is damaged")
        count = int.from_bytes(tail[at_64 + 32 : at_64 + 40], "little")
        length = int.from_bytes(tail[at_64 + 40 : at_64 + 48], "little")
        start = int.from_bytes(tail[at_64 + 48 : at_64 + 56], "little")
    if start + length > size:
        raise _Unreadable("the directory of its archive lies beyond its end: the file is cut")
    if length > _LARGEST_DIRECTORY:
        raise _Unreadable(f"the directory of its archive has {length:,} bytes, too many to read")
    inside = start - (size - len(tail))
    if inside >= 0:
        raw = tail[inside : inside + length]
    else:
        parts = snapshot.read_ranges(path, [(start, length)])
        if isinstance(parts, Unread):
            return parts
        raw = parts[0]
    members = _members(raw)
    if len(members) != count:
        raise _Unreadable(f"the directory of its archive names {count} files and lists {len(members)}")
    return members


def _members(raw: bytes) -> list[_Member]:
    found: list[_Member] = []
    at = 0
    while raw[at : at + 4] == _ENTRY and at + 46 <= len(raw):
        name_length, extra_length, comment_length = (
            int.from_bytes(raw[at + place : at + place + 2], "little") for place in (28, 30, 32)
        )
        packed, size = (int.from_bytes(raw[at + place : at + place + 4], "little") for place in (20, 24))
        offset = int.from_bytes(raw[at + 42 : at + 46], "little")
        extra = raw[at + 46 + name_length : at + 46 + name_length + extra_length]
        size, packed, offset = _wide(extra, size, packed, offset)
        name = raw[at + 46 : at + 46 + name_length].decode("utf-8", "replace")
        found.append(_Member(name, int.from_bytes(raw[at + 10 : at + 12], "little"), packed, size, offset))
        at += 46 + name_length + extra_length + comment_length
    return found


def _wide(extra: bytes, *narrow: int) -> tuple[int, int, int]:
    """The 64-bit sizes and offset of the zip64 field (id 1), which holds only those that do not fit into 32 bits."""
    values = list(narrow)
    at = 0
    while at + 4 <= len(extra):
        kind = int.from_bytes(extra[at : at + 2], "little")
        length = int.from_bytes(extra[at + 2 : at + 4], "little")
        if kind == 1:
            field = extra[at + 4 : at + 4 + length]
            for index, value in enumerate(values):
                if value == 0xFFFFFFFF and len(field) >= 8:
                    values[index] = int.from_bytes(field[:8], "little")
                    field = field[8:]
            break
        at += 4 + length
    return values[0], values[1], values[2]


def _member(snapshot: Snapshot, path: str, size: int, member: _Member) -> bytes | Unread:
    if member.size > LARGEST_PICKLE or member.packed > LARGEST_PICKLE:
        raise _Unreadable(f"its data.pkl has {max(member.size, member.packed):,} bytes, too many to look at")
    # The local header repeats the name and has padding of its own, which torch uses to align the data.
    guess = 30 + len(member.name.encode()) + 256 + member.packed
    if member.offset < 0 or member.offset + 30 > size:
        raise _Unreadable("its data.pkl lies beyond its end: the file is cut")
    parts = snapshot.read_ranges(path, [(member.offset, min(guess, size - member.offset))])
    if isinstance(parts, Unread):
        return parts
    raw = parts[0]
    if raw[:4] != _LOCAL:
        raise _Unreadable("its data.pkl is not where the directory of its archive says")
    start = 30 + int.from_bytes(raw[26:28], "little") + int.from_bytes(raw[28:30], "little")
    if start + member.packed > len(raw):
        if member.offset + start + member.packed > size:
            raise _Unreadable("its data.pkl lies beyond its end: the file is cut")
        parts = snapshot.read_ranges(path, [(member.offset + start, member.packed)])
        if isinstance(parts, Unread):
            return parts
        packed = parts[0]
    else:
        packed = raw[start : start + member.packed]
    return _unpack(member, packed)


def _unpack(member: _Member, packed: bytes) -> bytes:
    if member.method == 0:
        data = packed
    elif member.method == 8:
        try:
            data = zlib.decompressobj(-15).decompress(packed, LARGEST_PICKLE + 1)
        except zlib.error:
            raise _Unreadable("its data.pkl cannot be decompressed") from None
    else:
        raise _Unreadable(f"its data.pkl is compressed by a method (number {member.method}) that torch does not use")
    if len(data) != member.size:
        raise _Unreadable("its data.pkl does not have the size that the directory of its archive gives")
    return data


def _read_pickles(snapshot: Snapshot, path: str, size: int) -> Checkpoint | Unread:
    """The older format and plain pickles: a prefix, made longer as long as the description goes on behind it."""
    length = min(size, _PREFIX)
    while True:
        parts = snapshot.read_ranges(path, [(0, length)])
        if isinstance(parts, Unread):
            return parts
        kind, scan = _from_prefix(parts[0])
        if not scan.cut or length >= min(size, _LARGEST_PREFIX):
            scan.cut = scan.cut and length < size
            return _describe(kind, scan)
        length = min(size, length * 8, _LARGEST_PREFIX)


def _from_prefix(data: bytes) -> tuple[str, Scan]:
    first = scan_pickle(data)
    if first.problem is not None or first.result != _OLD_MAGIC:
        return "pickle", first
    found: dict[str, None] = {}
    scan, result = first, None
    for place in range(4):  # protocol version, machine, the object itself, and the keys of its storages
        scan = scan_pickle(data, scan.end)
        found.update(scan.globals)
        if scan.problem is not None:
            break
        if place == 2:
            result = scan.result
    scan.globals, scan.result = found, result
    return "legacy", scan


def _describe(kind: str, scan: Scan) -> Checkpoint:
    names = tuple(scan.globals)
    if scan.problem is not None:
        return Checkpoint(kind, names, not (scan.cut or scan.limited), None, scan.problem)
    if kind == "torchscript":
        return Checkpoint(kind, names, False, None, "it is a TorchScript program")
    return Checkpoint(kind, names, True, tensors_of(scan.result), None)
