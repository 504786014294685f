"""Reading the safetensors headers of many remote files: few requests, few bytes, side by side.

Three files are sampled with a small first range; the others are asked for as much as the largest header seen, and a
little more. Only a header that is longer costs a second request, for exactly the rest. Headers of one model's shards
are alike: of DeepSeek-V3's 163, half have 73,408 bytes, and none is more than 1 % longer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from envdoctor.hub.ranges import RemoteFile
from envdoctor.hub.safetensors_header import LARGEST_HEADER
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError
from envdoctor.text.message import Message

_FEW = 32 << 10  # the first range where three files or fewer are read
_SAMPLE = 8 << 10
_LARGEST_GUESS = 1 << 20
_ALL_HEADERS = 256 << 20


class Room:
    """How many bytes of headers may be read: ``largest`` of one file, 256 MiB of all.

    The largest models have about 12 MB in all; without an end, 163 hostile files would ask for 16 GB of memory.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._left = _ALL_HEADERS
        self._lock = threading.Lock()

    def take(self, length: int) -> Message | None:
        """Set bytes of one file aside; why not, as a clause, when there are too many."""
        if length - 8 > self._largest:
            return Message(
                "its header has {} bytes; at most {} are read (--max-header)", f"{length - 8:,}", f"{self._largest:,}"
            )
        with self._lock:
            if length > self._left:
                return Message("the headers before it have more than {} MiB already", _ALL_HEADERS >> 20)
            self._left -= length
        return None


def announced(first: bytes, size: int) -> int | None:
    """How long a header with its 8 length bytes is, by these; None where the file (of ``size`` bytes) holds none."""
    length = 8 + int.from_bytes(first[:8], "little")
    return length if len(first) >= 8 and length <= min(size, 8 + LARGEST_HEADER) else None


def read_headers(
    transport: Transport, repo: str, files: Sequence[RemoteFile], largest: int
) -> list[bytes | TransportError]:
    """For each file its first 8 bytes and the JSON that they announce, or why not.

    Where the 8 bytes announce more than the file or the format has, they come back alone, for the reader of headers to
    name. A file of fewer than 8 bytes comes back whole. A header of more than ``largest`` bytes is not read, nor are
    headers of more than 256 MiB in all. What was learned of the sizes is kept for the next revision of ``repo``.
    """
    room = Room(largest)
    found: dict[int, bytes | TransportError] = {}

    def read(indices: Sequence[int], guess: int) -> None:
        calls = [lambda f=files[i]: _header(f, guess, room) for i in indices]
        for index, result in zip(indices, transport.side_by_side(calls), strict=True):
            found[index] = result
            if isinstance(result, bytes):
                transport.header_sizes[repo] = max(transport.header_sizes.get(repo, 0), len(result))

    rest = list(range(len(files)))
    if repo not in transport.header_sizes:
        if len(files) <= 3:
            read(rest, _FEW)
            return [found[index] for index in range(len(files))]
        sample = [0, 1, len(files) // 2]
        read(sample, _SAMPLE)
        rest = [index for index in rest if index not in sample]
    seen = transport.header_sizes.get(repo, _FEW)
    read(rest, min(int(seen * 1.04) + 256, _LARGEST_GUESS))
    return [found[index] for index in range(len(files))]


def _header(file: RemoteFile, guess: int, room: Room) -> bytes:
    data = file.read(0, min(guess, file.size))
    length = announced(data, file.size)
    if length is None:
        return data[:8]
    problem = room.take(length)
    if problem:
        raise TransportError(problem, "limit")
    if length > len(data):
        data += file.read(len(data), length - len(data))
    return data[:length]
