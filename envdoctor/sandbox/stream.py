"""A bounded child that is heard line by line while it runs, in the user's own environment, and leaves nobody behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.sandbox.child import feed, kill_group

if TYPE_CHECKING:
    import subprocess
    import threading

__all__ = ["MARK", "StreamEnd", "stream_child"]

#: A variable in the environment of the child and of all that it starts: by its value they are found again, also those
#: that left the process group.
MARK = "ENVDOCTOR_CHILD"
_BLOCK = 1 << 16
_STDERR_KEPT = 8192
_POLL = 0.05
_MEMORY_POLL = 0.2
#: The kernel shall rather end the experiment than somebody's training when memory runs out (0 … 1000).
_OOM_SCORE = "800"


class StreamEnd(NamedTuple):
    """How the child ended.

    ``status`` is ``exited``, ``timeout``, ``memory`` (more than it may have), ``output-limit`` or ``not-started``;
    ``code`` is the exit code, negative for a signal (also when a shell in between said 128 + signal), None when it was
    ended from here. ``rest`` is what stood behind the last line end; ``stderr_tail`` the last 8 KiB of stderr, to be
    cleaned before it is shown. ``peak_mib`` is the largest memory of the child and what it started, as sampled;
    ``leftovers`` counts processes that outlived the child and were ended.
    """

    status: str
    code: int | None
    seconds: float
    stderr_tail: str = ""
    rest: bytes = b""
    peak_mib: float | None = None
    leftovers: int = 0


def stream_child(
    argv: Sequence[str],
    stdin: bytes,
    on_line: Callable[[bytes], bool],
    *,
    env: Mapping[str, str],
    cwd: str,
    seconds: float,
    memory_mib: int,
    line_limit: int = 1 << 20,
    output_limit: int = 32 << 20,
    stderr_limit: int = 256 << 20,
    stop: threading.Event | None = None,
    late: Callable[[], bool] | None = None,
) -> StreamEnd:
    """Run ``argv``, hand each line of its output to ``on_line`` (in another thread) as soon as it is complete, and wait
    for at most ``seconds``; never raises for what the child does.

    ``on_line`` says whether it wants more. Nothing of the environment is taken away: what a library does depends on it.
    Memory is watched and not limited in advance, because CUDA and torch reserve far more addresses than they use: what
    counts is what no file backs, of the child and its children (Linux only). ``stop`` ends the child from another
    thread, as an interrupt does; ``late`` is asked again and again whether a part of its work takes too long.
    """
    import subprocess

    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**env, MARK: mark},
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        return StreamEnd("not-started", None, 0.0, f"it cannot be started: {error}")
    _offer_to_oom_killer(process.pid)
    limits = (line_limit, output_limit, stderr_limit)
    asked = late or (lambda: False)
    ended = stop.is_set if stop is not None else (lambda: False)
    return _Stream(process, stdin, on_line, limits, mark).finish(
        started, seconds, memory_mib, lambda: ended() or asked()
    )


class _Stream:
    """The three pipes of one child, each served by a thread, and the watch over its time and memory."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        on_line: Callable[[bytes], bool],
        limits: tuple[int, int, int],
        mark: str,
    ) -> None:
        import threading

        self.process = process
        self.stdin = stdin
        self.on_line = on_line
        self.line_limit, self.output_limit, self.stderr_limit = limits
        self.mark = mark
        self.rest = bytearray()
        self.errors = bytearray()
        self.enough = threading.Event()  # a limit of the output is met
        self.peak = 0
        roles = (self._read_output, self._read_errors, self._write)
        self.threads = [threading.Thread(target=role, daemon=True) for role in roles]

    def finish(self, started: float, seconds: float, memory_mib: int, late: Callable[[], bool]) -> StreamEnd:
        status = "timeout"
        leftovers = 0
        try:
            for thread in self.threads:
                thread.start()
            status = self._watch(started + seconds, memory_mib << 20, late)
        finally:
            leftovers = self._end(status == "exited")
        if self.enough.is_set():
            status = "output-limit"
        code = self.process.returncode if status == "exited" else None
        if code is not None and code > 128 and os.name != "nt":
            code = 128 - code
        return StreamEnd(
            status,
            code,
            time.monotonic() - started,
            self.errors.decode("utf-8", "replace"),
            bytes(self.rest[:4096]),
            round(self.peak / (1 << 20), 1) if self.peak else None,
            leftovers,
        )

    def _watch(self, deadline: float, memory: int, late: Callable[[], bool]) -> str:
        """Wait for the end of the process itself: who still holds its pipes is dealt with afterwards."""
        import subprocess

        look = 0.0
        while True:
            now = time.monotonic()
            if now >= deadline or late():
                return "timeout"
            if self.enough.is_set():
                return "output-limit"
            if now >= look:
                look = now + _MEMORY_POLL
                used = _memory_of(self.process.pid)
                self.peak = max(self.peak, used.everything)
                if used.own > memory:
                    return "memory"
            try:
                self.process.wait(min(_POLL, max(0.001, deadline - now)))
                return "exited"
            except subprocess.TimeoutExpired:
                pass

    def _end(self, exited: bool) -> int:
        """End the group and everything with the mark, then take what is left in the pipes."""
        kill_group(self.process.pid)
        leftovers = _kill_marked(self.mark, self.process.pid)
        if not exited:
            self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join(2.0)
        # Closing a pipe under its reader could free the number for another file: then rather leave it open.
        for thread, stream in zip(self.threads[:2], (self.process.stdout, self.process.stderr), strict=True):
            if stream is not None and not thread.is_alive():
                stream.close()
        return leftovers

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        total = 0
        while block := os.read(self.process.stdout.fileno(), _BLOCK):
            total += len(block)
            *lines, tail = (self.rest + block).split(b"\n")
            self.rest = tail
            for line in lines:
                if not self.on_line(bytes(line)):
                    self.enough.set()
                    return
            if total > self.output_limit or len(self.rest) > self.line_limit:
                self.enough.set()
                return

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        total = 0
        while block := os.read(self.process.stderr.fileno(), _BLOCK):
            total += len(block)
            self.errors += block
            del self.errors[:-_STDERR_KEPT]
            if total > self.stderr_limit:
                self.enough.set()
                return

    def _write(self) -> None:
        feed(self.process, self.stdin)


class _Memory(NamedTuple):
    """Bytes of a process and its descendants: ``own`` without mapped files, ``everything`` with them."""

    own: int
    everything: int


def _memory_of(pid: int) -> _Memory:
    own = everything = 0
    if sys.platform == "linux":
        for member in _family(pid):
            fields = _status_fields(member)
            own += fields.get("RssAnon", 0) + fields.get("RssShmem", 0)
            everything += fields.get("VmRSS", 0)
    return _Memory(own, everything)


def _family(pid: int) -> list[int]:
    """The process and its descendants, at most 200 of them."""
    found = [pid]
    for member in found:
        if len(found) > 200:
            break
        try:
            tasks = os.listdir(f"/proc/{member}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{member}/task/{task}/children") as file:
                    found += [int(child) for child in file.read().split()]
            except (OSError, ValueError):
                pass
    return found[:200]


def _status_fields(pid: int) -> dict[str, int]:
    """The memory lines of ``/proc/PID/status`` in bytes; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = [line.split() for line in file if line.startswith(("Rss", "VmRSS"))]
    except (OSError, UnicodeDecodeError):
        return {}
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines if len(words) == 3 and words[1].isdigit()}


def _kill_marked(mark: str, own: int) -> int:
    """End what carries the mark in its environment and is not the child itself; how many that were."""
    if sys.platform != "linux":
        return 0
    import signal

    wanted = f"{MARK}={mark}".encode()
    count = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted not in file.read(1 << 20).split(b"\0"):
                    continue
            os.kill(int(name), signal.SIGKILL)
            count += 1
        except OSError:
            pass  # somebody else's, or gone
    return count


def _offer_to_oom_killer(pid: int) -> None:
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/oom_score_adj", "w") as file:
                file.write(_OOM_SCORE)
        except OSError:
            pass
