"""Work divided between this process and a copy of it, where a second processor may be free."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["by_two", "processors"]


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
