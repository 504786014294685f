"""A child never outlives its limits, and says which one it met."""

from __future__ import annotations

import os
import sys
import time

import pytest

from envdoctor.sandbox.child import ChildResult, own_python, run_child

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of another process exist on Linux only")


def python(code: str, stdin: bytes = b"", seconds: float = 20, memory_mib: int = 512) -> ChildResult:
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    return run_child(command, stdin, seconds=seconds, memory_mib=memory_mib, output_limit=1 << 16)


def ends(pid: int) -> bool:
    """Gone within five seconds, or only waiting to be collected by its new parent: a killed process takes a moment."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
    return False


def test_what_goes_in_comes_out() -> None:
    result = python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", b"abc" * 1000)
    assert result == ChildResult("ok", b"cba" * 1000, "")


def test_input_that_is_not_read_does_no_harm() -> None:
    assert python("print(1)", b"x" * 3_000_000).status == "ok"


def test_a_child_that_sleeps_ends_at_the_deadline() -> None:
    start = time.monotonic()
    assert python("import time; time.sleep(600)", seconds=0.3).status == "timeout"
    assert time.monotonic() - start < 5


def test_a_child_that_computes_for_ever_ends_at_the_deadline() -> None:
    assert python("while True: pass", seconds=0.3).status == "timeout"


@linux
def test_too_much_memory_is_told_apart() -> None:
    assert python("bytearray(10**9)", memory_mib=256).status == "memory"


def test_endless_output_is_cut_at_the_limit() -> None:
    result = python("while True: print('x' * 1000)")
    assert result.status == "output-limit"
    assert len(result.stdout) == 1 << 16


def test_endless_complaints_keep_only_their_end() -> None:
    result = python("import sys\nfor number in range(100000): print(number, file=sys.stderr)")
    assert result.status == "ok"
    assert len(result.stderr_tail) <= 4096
    assert result.stderr_tail.endswith("99999\n")


def test_a_crash_is_no_failure() -> None:
    assert python("import os; os.abort()").status == "crash"
    assert python("raise SystemExit(3)").status == "failed"


def test_a_command_that_does_not_exist_is_a_failure() -> None:
    result = run_child(["/no/such/program"], b"", seconds=1, memory_mib=64, output_limit=10)
    assert result.status == "failed"
    assert "cannot be started" in result.stderr_tail


@linux
def test_grandchildren_that_hold_the_output_end_with_the_child() -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    result = python(code, seconds=1)
    assert result.status == "timeout"
    assert ends(int(result.stdout))


@linux
def test_grandchildren_that_let_go_of_the_output_end_with_the_child() -> None:
    code = (
        "import subprocess, sys; nothing = subprocess.DEVNULL; print(subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(600)'], stdin=nothing, stdout=nothing, stderr=nothing).pid)"
    )
    result = python(code)
    assert result.status == "ok"
    assert ends(int(result.stdout))


@linux
def test_a_child_cannot_fill_the_disk(tmp_path: os.PathLike[str]) -> None:
    target = os.path.join(tmp_path, "file")
    result = python(f"import sys; sys.stdin.read(); open({target!r}, 'wb', buffering=0).write(b'x' * 10)")
    assert result.status == "failed"
    assert os.path.getsize(target) == 0


def test_secrets_and_proxies_of_the_environment_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    result = python("import os; print(sorted(os.environ.items()))")
    assert b"secret" not in result.stdout
    assert b"('HF_HUB_DISABLE_TELEMETRY', '1')" in result.stdout


def test_own_python_imports_envdoctor_and_nothing_of_the_working_folder(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.path.join(tmp_path, "json.py"), "w") as file:
        file.write("raise SystemExit('imported')")
    result = run_child(
        own_python("envdoctor.revision.code.parts.tree"), b"2\na\n", seconds=20, memory_mib=512, output_limit=1 << 16
    )
    assert result.status == "ok", result
    assert result.stdout.startswith(b"[")


@pytest.mark.parametrize("packages", [False, True])
def test_installed_packages_are_there_only_when_asked_for(packages: bool) -> None:
    command = own_python("sys", packages=packages)
    start = command.index("-c")
    probe = (
        "import sys; sys.path += sys.argv[2:]; import importlib.util as u; print(u.find_spec('packaging') is not None)"
    )
    result = run_child(
        [*command[:start], "-c", probe, *command[start + 2 :]], b"", seconds=20, memory_mib=512, output_limit=100
    )
    assert result.stdout.strip() == str(packages).encode()
