"""The lines of a child in the target, sorted by task, and the name of every way in which a task can end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.sandbox.child import ChildResult
from envdoctor.sandbox.process_tree import Usage
from envdoctor.text.message import NOTHING, Message, quoted

#: Endings that say that torch cannot be used, whatever the task, in the words of the child.
NO_TORCH = ("no-torch", "torch-broken", "torch-old")
#: Every way in which a task can end. Only ``ok`` says that all was seen that was to be seen.
ENDINGS = (
    *("ok", "timeout", "killed", "crash", "oom", "sticky", "garbage", "output-limit", "failed", "lost"),
    *(*NO_TORCH, "no-device"),
)
#: A task that computes may take so many times its seconds on the clock, on a machine that others use as well.
PATIENCE = 10.0
#: A task that computes, or stands in the queue for a processor, less than this share of the time hangs or waits for
#: something: it has its seconds on the clock.
_IDLE = 0.05
_GARBAGE_KEPT = 200
_MOST_GARBAGE = 100
_FRAME = re.compile(r'File "([^"]*)", line (\d+) in (\S+)')


class Answer(NamedTuple):
    """What one task gave.

    ``ending`` is one of :data:`ENDINGS`, with a ``detail`` in words; "unreached" when the child ended before its turn.
    ``begin`` is what the child said before the script began (python, torch, device; empty when it did not get there).
    ``died`` is whether the child ended in the middle of it. ``peak_mib`` is the largest memory, mapped files included;
    ``cpu_seconds`` what was computed, where the child lived to tell.
    """

    records: tuple[Mapping[str, Any], ...]
    ending: str
    detail: Message = NOTHING
    begin: Mapping[str, Any] = {}
    seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_mib: float | None = None
    died: bool = False


class _Lines:
    """The lines about one task, sorted into the first, the last, what lies between, and garbage."""

    def __init__(self) -> None:
        self.begin: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] = {}
        self.records: list[Mapping[str, Any]] = []
        self.garbage: list[str] = []

    def number(self, key: str) -> float | None:
        """A number of the last line."""
        value = self.end.get(key)
        return value if isinstance(value, (int, float)) else None


class Conversation:
    """What one child says: lines up to an end are about one task. ``seconds`` are the limits of the tasks."""

    def __init__(self, seconds: Sequence[float], heard: Callable[[int, int], None]) -> None:
        self._seconds = seconds
        self._heard = heard
        self._by_task = [_Lines() for _ in seconds]
        self._at = 0
        self._since = time.monotonic()
        self._used = self._used_before = Usage()

    def is_late(self, used: Usage) -> bool:
        """Whether the task that runs now has taken more than its time, when the child has ``used`` so much since it
        began."""
        self._used = used
        elapsed, computed = time.monotonic() - self._since, used.seconds - self._used_before.seconds
        if self._at >= len(self._seconds) or elapsed <= self._seconds[self._at]:
            return False
        seconds = self._seconds[self._at]
        busy = computed + used.queue - self._used_before.queue
        return computed > seconds or busy < _IDLE * elapsed or elapsed > PATIENCE * seconds

    def take(self, line: bytes) -> bool:
        """Sort a line in; whether more may come."""
        lines = self._by_task[min(self._at, len(self._by_task) - 1)]
        record: Any = None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            pass
        if not isinstance(record, dict):
            lines.garbage.append(line[:_GARBAGE_KEPT].decode("utf-8", "replace"))
            return len(lines.garbage) < _MOST_GARBAGE
        kind = record.get("kind")
        if kind == "begin":
            lines.begin = record
        elif kind == "end":
            lines.end = record
            self._since, self._used_before = time.monotonic(), self._used
            self._at += 1
        else:
            lines.records.append(record)
        self._heard(min(self._at, len(self._by_task) - 1), len(lines.records))
        return True

    def answers(self, result: ChildResult, memory_mib: Sequence[int]) -> list[Answer]:
        """One answer a task, when the child has ended."""
        found = []
        for place, lines in enumerate(self._by_task):
            if place > self._at and result.started:
                found.append(Answer((), "unreached"))
                continue
            ending, detail = _ending(result, lines, self._seconds[place], memory_mib[place])
            seconds = lines.number("seconds")
            peaks = [lines.number("peak_rss_mib"), None if lines.end else result.peak_mib]
            found.append(
                Answer(
                    tuple(lines.records),
                    ending,
                    detail,
                    lines.begin,
                    round(result.seconds if seconds is None else seconds, 2),
                    lines.number("cpu_s"),
                    max((peak for peak in peaks if peak is not None), default=None),
                    died=result.started and not lines.end,
                )
            )
        return found


def _ending(result: ChildResult, lines: _Lines, seconds: float, memory_mib: int) -> tuple[str, Message]:
    """The name of how a task ended, and details for a person."""
    after = Message("after {} observations", len(lines.records))
    if lines.garbage:
        return "garbage", Message(
            "{} lines that are no observation, such as {}", len(lines.garbage), repr(lines.garbage[0])
        )
    if lines.end:  # what came of the process later is not this task's
        said = lines.end.get("ending")
        if isinstance(said, str) and said in ENDINGS:
            return said, Message(str(lines.end.get("detail", "")))
        return "garbage", Message("no ending is called {}", repr(str(said)[:60]))
    if result.status == "output-limit":
        return "output-limit", Message("more output than anybody could read, {}", after)
    if result.status == "timeout":
        return "timeout", Message("not done in {} s, {}", f"{seconds:g}", after)
    if result.status == "memory":
        return "oom", Message("more than {} MiB of memory, {}", memory_mib, after)
    if result.code is None:
        return "failed", quoted(result.stderr_tail)
    return _by_exit_code(result.code, result, after)


def _by_exit_code(code: int, result: ChildResult, after: Message) -> tuple[str, Message]:
    import signal

    if code < 0:
        try:
            name = quoted(signal.Signals(-code).name)
        except ValueError:
            name = Message("signal {}", -code)
        if name == "SIGKILL":
            return "killed", Message("by SIGKILL {}, as the system does when memory runs out", after)
        return "crash", Message("{} {}{}", name, after, _frame(result.stderr_tail))
    half = Message(", in the middle of a line") if result.stdout.strip() else NOTHING
    if code == 0:
        return "lost", Message("it ended {}{} without saying that it was done", after, half)
    last = next((line for line in reversed(result.stderr_tail.splitlines()) if line.strip()), "")
    return "failed", Message("exit code {} {}{}{}", code, after, half, f": {last[:300]}" if last else "")


def _frame(tail: str) -> Message:
    """Where Python was, by the lines that its fault handler left: ``, in forward (modeling.py:12)``."""
    found = _FRAME.search(tail.partition("most recent call first")[2].replace("\\", "/"))
    return Message(", in {} ({}:{})", found[3], found[1].rpartition("/")[2], found[2]) if found else NOTHING
