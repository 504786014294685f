"""Read a document that the user named, whatever the name leads to, with a limit of bytes and a limit of seconds."""

import errno
import os
import stat
from functools import cache
from typing import BinaryIO

from envdoctor.system.files import NEVER_WAIT, because_of
from envdoctor.system.message import Message, MessageError

#: Seconds until a process must have opened a pipe for writing.
_UNTIL_A_WRITER = 5.0
#: Seconds that a writer has for the whole document: it may come from another machine.
_UNTIL_THE_END = 60.0
_PART = 1 << 20


def read_bounded(
    path: str | os.PathLike[str],
    limit: int,
    *,
    until_a_writer: float = _UNTIL_A_WRITER,
    until_the_end: float = _UNTIL_THE_END,
) -> bytes | None:
    """Read all bytes of a file or pipe (``<(command)``); None if there are more than ``limit``.

    Raises ``OSError`` if it cannot be read, or if the end of a pipe does not come in time (seconds).
    """
    descriptor = os.open(path, NEVER_WAIT)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size > limit:
            return None
        return _read(descriptor, limit, stat.S_ISFIFO(status.st_mode), until_a_writer, until_the_end)
    finally:
        os.close(descriptor)


def read_named(place: str | os.PathLike[str], name: str, limit: int) -> bytes | None:
    """Like :func:`read_bounded`, for a name that the user gave: ``-`` is standard input."""
    if name != "-":
        return read_bounded(place, limit)
    import sys

    data = _read_once(sys.stdin.buffer, limit + 1)
    return data if len(data) <= limit else None


@cache
def _read_once(stream: BinaryIO, size: int) -> bytes:
    """Return the content of a stream, and the same for every later call, as for each of several targets."""
    return stream.read(size)


def decoded(data: bytes, errors: str = "strict") -> str:
    """Decode a document in UTF-8, or in UTF-16 with a byte order mark, as PowerShell writes it."""
    return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors)


def content_of(path: str, limit: int, kind: str, problem: type[MessageError], name: str = "") -> bytes:
    """Read a file of some ``kind`` (``lock``), which the user calls ``name``, as :func:`read_named` does. Raises
    ``problem`` with the words that follow its name in a sentence."""
    try:
        content = read_named(path, name, limit)
    except OSError as error:
        raise problem(Message("cannot be read: {}", because_of(error))) from None
    if content is None:
        raise problem(Message("is larger than {} MiB, and no {} is", limit >> 20, kind))
    return content


def text_of(content: bytes, problem: type[Exception]) -> str:
    """Decode the content of such a file. Raises ``problem`` if it is not text."""
    try:
        text = decoded(content)
    except UnicodeDecodeError as error:
        raise problem(Message("is not text in UTF-8 (byte {})", error.start)) from None
    if "\0" in text:
        raise problem(Message("is not text but binary"))
    return text


def _read(descriptor: int, limit: int, pipe: bool, until_a_writer: float, until_the_end: float) -> bytes | None:
    import select
    import time

    began = time.monotonic()
    data = bytearray()
    while len(data) <= limit:
        try:
            part = os.read(descriptor, min(_PART, limit + 1 - len(data)))
        except BlockingIOError:  # a process has it open for writing
            seconds, reason = until_the_end, "its end did not come in time"
        else:
            data += part
            # A pipe that was not yet opened for writing looks like one whose writers have all closed it.
            if not part and (data or not pipe):
                return bytes(data)
            if part:
                continue
            seconds, reason = until_a_writer, "nothing was written to it"
        rest = began + seconds - time.monotonic()
        if rest <= 0:
            raise TimeoutError(errno.ETIMEDOUT, f"{reason} ({seconds:g} s)")
        if select.select([descriptor], [], [], rest)[0] and pipe and not data:
            time.sleep(0.01)  # a closed pipe is always ready
    return None
