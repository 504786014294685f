"""Reading the safetensors headers of many remote files: few requests, few bytes, side by side.

Three files are sampled with a small first range; the others are asked for as much as the largest header seen, and a
little more. Only a header that is longer costs a second request, for exactly the rest. Headers of one model's shards
are alike: of DeepSeek-V3's 163, half have 73,408 bytes, and none is more than 1 % longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.hub.ranges import RemoteFile
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError

__all__ = ["LARGEST_HEADER", "read_headers"]

#: The format's own limit for the JSON (safetensors, MAX_HEADER_SIZE).
LARGEST_HEADER = 100_000_000
_FEW = 32 << 10  # the first range where three files or fewer are read
_SAMPLE = 8 << 10
_LARGEST_GUESS = 1 << 20


class Wanted:
    """One file whose header is wanted: its address and its size in bytes."""

    def __init__(self, url: str, size: int) -> None:
        self.url = url
        self.size = size


def read_headers(
    transport: Transport, repo: str, files: Sequence[Wanted], largest: int = LARGEST_HEADER
) -> list[bytes | TransportError]:
    """For each file its first 8 bytes and the JSON that they announce, or why not.

    Where the 8 bytes announce more than the file has, or more than ``largest``, they come back alone, for the reader of
    headers to name. A file of fewer than 8 bytes comes back whole. What was learned of the sizes is kept for the next
    revision of ``repo``.
    """
    found: dict[int, bytes | TransportError] = {}

    def read(indices: Sequence[int], guess: int) -> None:
        calls = [lambda f=files[i]: _header(transport, f, guess, largest) for i in indices]
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


def _header(transport: Transport, file: Wanted, guess: int, largest: int) -> bytes:
    remote = RemoteFile(transport, file.url, file.size)
    data = remote.read(0, min(guess, file.size))
    if len(data) < 8:
        return data
    length = 8 + int.from_bytes(data[:8], "little")
    if length > file.size or length - 8 > largest:
        return data[:8]
    if length > len(data):
        data += remote.read(len(data), length - len(data))
    return data[:length]
