"""A child that is heard while it runs meets its limits by name, and leaves nobody behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envdoctor.sandbox.stream import StreamEnd, stream_child

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory and marks are read from /proc")


def python(
    code: str,
    tmp_path: Path,
    *,
    on_line: Callable[[bytes], bool] | None = None,
    stdin: bytes = b"",
    **limits: Any,
) -> tuple[StreamEnd, list[bytes]]:
    lines: list[bytes] = []

    def keep(line: bytes) -> bool:
        lines.append(line)
        return True

    options = {"seconds": 20, "memory_mib": 512, **limits}
    command = [sys.executable, "-I", "-S", "-c", code]
    env = dict(os.environ)
    return stream_child(command, stdin, on_line or keep, env=env, cwd=str(tmp_path), **options), lines


def gone(pid: int) -> bool:
    """Ended within five seconds, or only waiting to be collected."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
    return False


def test_lines_arrive_one_by_one_and_the_rest_is_kept(tmp_path: Path) -> None:
    end, lines = python("import sys; sys.stdout.write(sys.stdin.read() + 'b\\nhalf')", tmp_path, stdin=b"a\n")
    assert lines == [b"a", b"b"]
    assert (end.status, end.code, end.rest) == ("exited", 0, b"half")


def test_lines_are_heard_before_the_child_ends(tmp_path: Path) -> None:
    heard = threading.Event()

    def on_line(line: bytes) -> bool:
        heard.set()
        return True

    code = "import time; print('now', flush=True); time.sleep(600)"
    end, _ = python(code, tmp_path, on_line=on_line, seconds=60, stop=heard)
    assert end.status == "timeout"
    assert end.seconds < 30


def test_a_listener_that_has_enough_ends_the_child(tmp_path: Path) -> None:
    end, _ = python("while True: print('x')", tmp_path, on_line=lambda line: False)
    assert end.status == "output-limit"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        "import os\nwhile True: os.write(2, b'x' * 65536)",
        "import os\nwhile True: os.write(1, (b'x' * 100 + b'\\n') * 600)",
    ],
    ids=["one-line", "stderr", "lines"],
)
def test_a_gigabyte_of_output_is_cut(tmp_path: Path, code: str) -> None:
    end, lines = python(code, tmp_path, output_limit=1 << 22, stderr_limit=1 << 22)
    assert end.status == "output-limit"
    assert sum(map(len, lines)) <= 1 << 23
    assert len(end.stderr_tail) <= 8192


def test_sleeping_and_computing_end_at_the_deadline(tmp_path: Path) -> None:
    for code in ("import time; time.sleep(600)", "while True: pass"):
        end, _ = python(code, tmp_path, seconds=0.3)
        assert (end.status, end.code) == ("timeout", None)
        assert end.seconds < 10


@linux
def test_memory_that_no_file_backs_is_limited(tmp_path: Path) -> None:
    code = "import time; x = bytearray(600 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(60)"
    end, _ = python(code, tmp_path, memory_mib=300)
    assert end.status == "memory"


@linux
def test_addresses_that_are_only_reserved_cost_nothing(tmp_path: Path) -> None:
    code = "import mmap, time; x = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_NORESERVE); time.sleep(.5)"
    end, _ = python("import mmap\n" + code.replace("MAP_NORESERVE", "MAP_ANONYMOUS | 0x4000"), tmp_path)
    assert (end.status, end.code) == ("exited", 0)


def test_a_signal_is_a_negative_code_also_behind_a_shell(tmp_path: Path) -> None:
    end, _ = python("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert end.code == -9
    end, _ = python("import os; os._exit(139)", tmp_path)
    assert end.code == -11


@linux
@pytest.mark.parametrize("session", [False, True], ids=["in-the-group", "left-the-group"])
def test_a_grandchild_that_holds_the_pipe_delays_nobody_and_dies(tmp_path: Path, session: bool) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        f" start_new_session={session})\n"
        "print(child.pid, flush=True)\n"
    )
    end, lines = python(code, tmp_path, seconds=30)
    assert (end.status, end.code) == ("exited", 0)
    assert end.seconds < 15
    assert gone(int(lines[0]))


@linux
def test_the_child_is_what_the_kernel_would_rather_end(tmp_path: Path) -> None:
    code = "import time; time.sleep(.2); print(open('/proc/self/oom_score_adj').read(), end='')"
    _, lines = python(code, tmp_path)
    assert int(lines[0]) >= 800


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    end = stream_child(
        [str(tmp_path / "none")], b"", lambda line: True, env={}, cwd=str(tmp_path), seconds=5, memory_mib=100
    )
    assert end.status == "not-started"
    assert "cannot be started" in end.stderr_tail
