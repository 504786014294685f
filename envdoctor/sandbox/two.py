"""Work divided between this process and a copy of it, where a second processor may be free."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["Ahead", "by_two", "processors"]

_NUMBER = 8
_PIPE = 1 << 20


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def by_two(count: int, work: Callable[[int], Any], more: Callable[[], Any]) -> tuple[dict[int, Any], Any]:
    """``work`` of the numbers below ``count`` (at most 256), each done by whoever is free first: what this process did
    as it is, what the copy did as JSON gives it back. And ``more()`` of the copy when it was done.

    What a copy did that did not come to its end is done again here; then, and where no process can be copied, ``more``
    is None. This process must have no other threads.
    """
    if count < 2 or not hasattr(os, "fork"):
        return {number: work(number) for number in range(count)}, None
    tickets, printer = os.pipe()
    os.write(printer, bytes(range(count)))
    os.close(printer)
    theirs, ours = os.pipe()
    copy = os.fork()
    if copy == 0:
        try:
            os.close(theirs)
            done = {number: work(number) for number in _taken(tickets)}
            with os.fdopen(ours, "wb") as told:
                told.write(json.dumps([list(done.items()), more()]).encode("utf-8", "surrogatepass"))
        finally:
            os._exit(0)
    os.close(ours)
    done = {number: work(number) for number in _taken(tickets)}
    with os.fdopen(theirs, "rb") as told:
        answer = told.read()
    os.waitpid(copy, 0)
    os.close(tickets)
    try:
        others, rest = json.loads(answer)
    except ValueError:
        others, rest = [], None
    done |= dict(others)
    return done | {number: work(number) for number in range(count) if number not in done}, rest


def _taken(tickets: int) -> Iterator[int]:
    """Numbers that nobody else has taken."""
    while ticket := os.read(tickets, 1):
        yield ticket[0]


class Ahead:
    """What a copy of this process does meanwhile, for whoever may need it: pairs of a name and bytes, made by ``work``.

    Nothing comes where no process can be copied. This process must have no other threads. :meth:`end` it.
    """

    def __init__(self, work: Callable[[], Iterable[tuple[str, bytes]]]) -> None:
        self._done: dict[str, bytes] = {}
        self._part = bytearray()
        self._copy = 0
        if not hasattr(os, "fork"):
            return
        self._theirs, ours = os.pipe()
        self._copy = os.fork()
        if self._copy == 0:
            try:
                os.close(self._theirs)
                _widen(ours)
                with os.fdopen(ours, "wb") as told:
                    for name, content in work():
                        title = os.fsencode(name)
                        told.write(b"%08x%08x" % (len(title), len(content)) + title + content)
            finally:
                os._exit(0)
        os.close(ours)
        os.set_blocking(self._theirs, False)

    def take(self, name: str) -> bytes | None:
        """What was made of that name, once; None when it has not come yet, or never will."""
        try:
            read = os.read(self._theirs, _PIPE) if self._copy else None
        except BlockingIOError:
            read = None
        if read == b"":
            self.end()
        elif read is not None:
            self._part += read
            self._divide()
        return self._done.pop(name, None)

    def end(self) -> None:
        """Do without it from now on."""
        if self._copy:
            os.kill(self._copy, signal.SIGKILL)
            os.waitpid(self._copy, 0)
            os.close(self._theirs)
            self._copy = 0

    def _divide(self) -> None:
        part, at = self._part, 0
        while len(part) >= at + 2 * _NUMBER:
            name = at + 2 * _NUMBER
            content = name + int(part[at : at + _NUMBER], 16)
            end = content + int(part[at + _NUMBER : name], 16)
            if len(part) < end:
                break
            self._done[os.fsdecode(bytes(part[name:content]))] = bytes(part[content:end])
            at = end
        del part[:at]


def _widen(pipe: int) -> None:
    """Let more fit into a pipe, where the system can."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
    except (ImportError, AttributeError, OSError):
        pass
