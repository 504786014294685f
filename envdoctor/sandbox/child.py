"""One bounded child process: time, memory, output, no files of its own, and its whole process group ends with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import subprocess

__all__ = ["ChildResult", "feed", "kill_group", "own_python", "run_child"]

_STDERR_KEPT = 4096
_BLOCK = 1 << 16
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "SYSTEMROOT")  # without them some interpreters do not start at all
_START = "import sys; sys.path += sys.argv[2:]; __import__(sys.argv[1], fromlist=['main']).main()"


class ChildResult(NamedTuple):
    """How the child ended.

    ``status`` is ``ok`` (exit code 0), ``timeout``, ``memory`` (MemoryError, or killed by the system), ``crash`` (any
    other signal), ``output-limit``, or ``failed`` (another exit code, or it could not be started). ``stdout`` holds
    what came until then, never more than the limit; ``stderr_tail`` the last 4 KiB of stderr, to be cleaned before it
    is shown.
    """

    status: str
    stdout: bytes
    stderr_tail: str


def own_python(module: str, *, packages: bool = False) -> list[str]:
    """The command that calls ``main()`` of a module of envdoctor in envdoctor's own interpreter.

    It starts without site, user site, ``.pth`` files and PYTHON* variables, and neither the working folder nor a
    script's is on ``sys.path``: only the standard library and envdoctor can be imported, and with ``packages`` what
    this process can import.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [root]
    if packages:
        skipped = (root, os.getcwd())
        paths += [path for path in sys.path if os.path.isabs(path) and path not in skipped]
    return [sys.executable, "-I", "-S", "-B", "-W", "ignore", "-c", _START, module, *paths]


def run_child(argv: Sequence[str], stdin: bytes, *, seconds: float, memory_mib: int, output_limit: int) -> ChildResult:
    """Run ``argv``, give it ``stdin``, and wait for at most ``seconds``; never raises for what the child does.

    The child gets a minimal environment (no proxies, tokens or telemetry), the root folder as its working folder and a
    process group of its own, which is killed whatever happens. On Linux it has ``memory_mib`` MiB of address space,
    cannot write a byte to a file and leaves no core; the limits hold before the first byte of ``stdin`` is sent. Other
    systems cannot limit another process like this: there only time and output (``output_limit`` bytes) are bounded.
    """
    import subprocess

    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.path.abspath(os.sep),
            env=_environment(),
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        return ChildResult("failed", b"", f"it cannot be started: {error}")
    _limit(process.pid, seconds, memory_mib)
    return _Conversation(process, stdin, output_limit).finish(seconds)


class _Conversation:
    """The three pipes of one child, each served by a thread (Windows cannot wait for several pipes at once)."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, output_limit: int) -> None:
        import threading

        self.process = process
        self.stdin = stdin
        self.output_limit = output_limit
        self.output = bytearray()
        self.errors = bytearray()
        self.full = False
        roles = (self._read_output, self._read_errors, self._write)
        self.threads = [threading.Thread(target=role, daemon=True) for role in roles]

    def finish(self, seconds: float) -> ChildResult:
        import time

        deadline = time.monotonic() + seconds
        try:
            for thread in self.threads:
                thread.start()
            late = self._is_late(deadline)
        finally:
            self._end()
        tail = self.errors.decode("utf-8", "replace")
        status = "output-limit" if self.full else "timeout" if late else _status(self.process.returncode, tail)
        return ChildResult(status, bytes(self.output[: self.output_limit]), tail)

    def _is_late(self, deadline: float) -> bool:
        """Wait until the child and everything that holds its output have ended; whether that took too long."""
        import subprocess
        import time

        for thread in self.threads[:2]:
            thread.join(max(0.0, deadline - time.monotonic()))
        try:
            self.process.wait(max(0.001, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return True
        return any(thread.is_alive() for thread in self.threads[:2])

    def _end(self) -> None:
        kill_group(self.process.pid)
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join(1.0)
        # A process that left the group may still hold a pipe open; closing it under its reader could free the number
        # for another file.
        for thread, stream in zip(self.threads[:2], (self.process.stdout, self.process.stderr), strict=True):
            if stream is not None and not thread.is_alive():
                stream.close()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        while block := os.read(self.process.stdout.fileno(), _BLOCK):
            self.output += block
            if len(self.output) > self.output_limit:
                self.full = True
                kill_group(self.process.pid)
                return

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while block := os.read(self.process.stderr.fileno(), _BLOCK):
            self.errors += block
            del self.errors[:-_STDERR_KEPT]

    def _write(self) -> None:
        feed(self.process, self.stdin)


def feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write ``data`` to the child's standard input and close it; a child that ends before it has read everything says
    why by its exit."""
    assert process.stdin is not None
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(process.stdin.fileno(), rest[:_BLOCK]) :]
    except OSError:
        pass
    finally:
        process.stdin.close()


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1", "LC_ALL": "C.UTF-8", "PATH": os.defpath}


def _limit(pid: int, seconds: float, memory_mib: int) -> None:
    if sys.platform != "linux":
        return
    import resource

    memory = memory_mib << 20
    limits = (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, int(seconds) + 2),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, value in limits:
        try:
            resource.prlimit(pid, kind, (value, value))
        except (OSError, ValueError):
            pass  # it has ended already, or has a lower limit than this


def kill_group(pid: int) -> None:
    """End the group. Its number is not used again while anything in it lives."""
    if hasattr(os, "killpg"):
        import signal

        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def _status(code: int, tail: str) -> str:
    import signal

    if code == 0:
        return "ok"
    if code > 0 or os.name == "nt":
        lines = tail.rstrip().splitlines()
        return "memory" if lines and lines[-1].startswith("MemoryError") else "failed"
    if code == -getattr(signal, "SIGXCPU", 24):
        return "timeout"
    return "memory" if code == -getattr(signal, "SIGKILL", 9) else "crash"
