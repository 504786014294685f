"""How several byte strings go to a child on its stdin: each as a decimal length, a line feed, and that many bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def framed(contents: Iterable[bytes]) -> bytes:
    """The contents as one byte string."""
    return b"".join(b"%d\n%b" % (len(content), content) for content in contents)


def frames(data: bytes) -> Iterator[bytes]:
    """The contents again, one by one."""
    position = 0
    while position < len(data):
        start = data.index(b"\n", position) + 1
        length = int(data[position : start - 1])
        position = start + length
        yield data[start:position]
