"""A child never outlives its limits, says which one it met, and leaves nobody behind."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from processes import gone

from envdoctor.system import Limits, run_child

linux = pytest.mark.skipif(sys.platform != "linux", reason="what is shown here is bounded on Linux only")
both = pytest.mark.parametrize("confined", [True, False], ids=["confined", "watched"])
SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(600)']"


POPEN = subprocess.Popen
LIMITS = Limits(seconds=20, mib=512, output=1 << 16)
PATIENT = {"limits": LIMITS._replace(seconds=0.5, patience=600)}


def python(code: str, stdin: bytes = b"", limits: Limits = LIMITS, **options: Any) -> Any:
    """Run Python code, as an own child that parses unless told otherwise."""
    return run_child([sys.executable, "-I", "-S", "-B", "-c", code], limits, stdin, **options)


@both
def test_what_goes_in_comes_out(confined: bool) -> None:
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    result = python(code, b"abc" * 1000, confined=confined)
    assert (result.status, result.code, result.stdout) == ("ok", 0, b"cba" * 1000)


@both
@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "while True: pass"], ids=["sleeps", "computes"])
def test_a_child_that_does_not_end_is_ended_at_the_deadline(code: str, confined: bool) -> None:
    result = python(code, limits=LIMITS._replace(seconds=0.3), confined=confined)
    assert (result.status, result.code) == ("timeout", None)


HOLD = "import time; x = bytearray(600 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(60)"
RESERVE = "import mmap; mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)"
KILLED = "import os; os.kill(os.getpid(), 9)"
# A patient parent counts the processor time of the child.


@pytest.mark.parametrize(
    ("code", "given", "status", "exit_code"),
    [
        ("raise SystemExit(3)", {}, "failed", 3),
        ("import os; os.abort()", {}, "crash", -6),
        ("import os; os._exit(139)", {}, "crash", -11),  # what a shell says of a program that got signal 11
        ("raise MemoryError", {}, "memory", 1),
        (KILLED, {}, "memory", -9),  # by the system, which does so where memory is limited in advance
        (KILLED, {"confined": False}, "crash", -9),
        ("print(1)", {"stdin": b"x" * 3_000_000}, "ok", 0),  # which it does not read
        ("while True: print('x')", {"on_line": lambda line: False}, "output-limit", None),
        pytest.param("bytearray(10**9)", {"limits": LIMITS._replace(mib=256)}, "memory", 1, marks=linux),
        pytest.param(HOLD, {"limits": LIMITS._replace(mib=300), "confined": False}, "memory", None, marks=linux),
        pytest.param(RESERVE, {"confined": False}, "ok", 0, marks=linux),  # addresses cost a watched child nothing
        pytest.param("import time; time.sleep(1.5)", PATIENT, "ok", 0, marks=linux),
        pytest.param("while True: pass", PATIENT, "timeout", ANY, marks=linux),
    ],
)
def test_every_end_has_its_name(code: str, given: dict[str, Any], status: str, exit_code: Any) -> None:
    result = python(code, **given)
    assert (result.status, result.code) == (status, exit_code)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        "import os\nwhile True: os.write(1, (b'x' * 100 + b'\\n') * 600)",
        "import os\nwhile True: os.write(2, b'x' * 65536)",
    ],
    ids=["one-line", "lines", "stderr"],
)
@pytest.mark.parametrize("listens", [True, False])
def test_endless_output_is_cut(code: str, listens: bool) -> None:
    lines: list[bytes] = []
    on_line = (lambda line: not lines.append(line)) if listens else None
    result = python(code, limits=LIMITS._replace(output=1 << 22), on_line=on_line)
    assert result.status == "output-limit"
    assert len(result.stdout) <= 1 << 22 and sum(map(len, lines)) <= 1 << 23 and len(result.stderr_tail) <= 8192


def test_what_is_read_behind_the_end_of_a_child_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    read, made = os.read, []
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **more: made.append(POPEN(*given, **more)) or made[0])

    def late(number: int, size: int) -> bytes:
        for process in made:  # none yet where subprocess asks how the start went
            with suppress(ChildProcessError):  # ended, and collected by who waits for it
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return read(number, size)

    monkeypatch.setattr(os, "read", late)
    result = python("print('x' * 100)", limits=LIMITS._replace(output=10))
    assert (result.status, result.stdout) == ("output-limit", b"x" * 10)


def test_endless_complaints_keep_only_their_end() -> None:
    result = python("import sys\nfor number in range(100000): print(number, file=sys.stderr)")
    assert (result.status, result.stderr_tail[-6:]) == ("ok", "99999\n") and len(result.stderr_tail) <= 8192


def test_lines_are_handed_on_one_by_one_and_the_rest_is_kept() -> None:
    lines: list[bytes] = []
    code = "import sys; sys.stdout.write(sys.stdin.read() + 'b\\nhalf')"
    result = python(code, b"a\n", on_line=lambda line: not lines.append(line))
    assert lines == [b"a", b"b"]
    assert (result.status, result.stdout) == ("ok", b"half")


def test_lines_are_heard_before_the_child_ends_which_is_when_nobody_waits_any_more() -> None:
    heard = threading.Event()
    code = "import time; print('now', flush=True); time.sleep(600)"
    minute = LIMITS._replace(seconds=60)
    result = python(code, limits=minute, on_line=lambda line: not heard.set(), until=lambda used: heard.is_set())
    assert (result.status, result.code) == ("timeout", None)


@pytest.mark.parametrize("name", ["none", "folder", "text"])
def test_a_command_that_cannot_be_started_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_bytes(b"\x7fELF nothing")
    (tmp_path / "text").chmod(0o755)
    result = run_child([str(tmp_path / name)], Limits(5, 64, 10))
    assert (result.status, result.code) == ("unstarted", None)
    assert result.stderr_tail.startswith("it cannot be started: ")


@linux
@both
@pytest.mark.parametrize(
    "how", ["", ", start_new_session=True", ", stdin=none, stdout=none, stderr=none"], ids=["pipes", "left", "quiet"]
)
def test_grandchildren_delay_nobody_and_end_with_the_child(how: str, confined: bool) -> None:
    code = f"import subprocess, sys; none = subprocess.DEVNULL; print(subprocess.Popen({SLEEPER}{how}).pid)"
    result = python(code, confined=confined)
    assert result.status == "ok"
    assert gone(int(result.stdout))


@linux
@pytest.mark.parametrize("program", ["own", "foreign"])
def test_the_child_ends_with_us_though_we_had_no_chance_to_end_it(tmp_path: Path, program: str) -> None:
    """SIGKILL takes the parent away in the middle of waiting."""
    script = tmp_path / "waits.py"
    script.write_text("import os, time\ndef main():\n    print(os.getpid(), flush=True)\n    time.sleep(600)\nmain()\n")
    argv = ["module:waits:main", str(tmp_path)] if program == "own" else [sys.executable, str(script)]
    code = (
        "from envdoctor.system import Limits, run_child\n"
        "tell = lambda line: not print(line.decode(), flush=True)\n"
        f"run_child({argv!r}, Limits(600, 512, 99), confined=False, on_line=tell)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert gone(child)


@linux
def test_a_confined_child_cannot_fill_the_disk(tmp_path: Path) -> None:
    target = tmp_path / "file"
    result = python(f"import sys; sys.stdin.read(); open({str(target)!r}, 'wb', buffering=0).write(b'x' * 10)")
    assert result.status == "failed"
    assert target.stat().st_size == 0


@linux
def test_the_child_is_what_the_kernel_would_rather_end() -> None:
    result = python("print(open('/proc/self/oom_score_adj').read(), end='')")
    assert int(result.stdout) >= 800


@linux
def test_a_program_gets_its_signals_as_a_shell_gives_them() -> None:
    result = run_child(["/bin/sh", "-c", "grep SigIgn /proc/self/status"], Limits(5, 99, 999))
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))


@pytest.mark.parametrize("confined", [True, False])
def test_secrets_and_proxies_of_the_environment_stay_outside(monkeypatch: pytest.MonkeyPatch, confined: bool) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    result = python("import os; print(sorted(os.environ.items()))", confined=confined)
    assert b"secret" not in result.stdout
    assert b"('HF_HUB_DISABLE_TELEMETRY', '1')" in result.stdout
