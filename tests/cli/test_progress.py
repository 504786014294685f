"""On a terminal, what takes over two seconds says what it does; nothing of it stays, and a pipe sees none of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pty = pytest.importorskip("pty", reason="a pseudo terminal is needed")
FACTS = json.dumps({"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.5.0"}})


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that waits for its standard input, and the terminal that its standard error is."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "envdoctor", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        yield run, ours
    os.close(ours)


@pytest.mark.parametrize(
    ("arguments", "doing"),
    [
        (("check", "--facts", "-"), "checking (2 s)"),
        (("check", "--facts", "-", "--lang", "zh"), "正在检查 (2 s)"),
        (("facts", "--facts", "-", "--lang", "zh"), "正在读取 (2 s)"),
        (("plan", "--facts", "-"), "checking (2 s)"),
    ],
)
def test_a_long_run_says_what_it_does_and_wipes_it(arguments: tuple[str, ...], doing: str) -> None:
    with on_a_terminal(*arguments) as (run, terminal):
        seen = b""
        while doing.encode() not in seen:
            seen += os.read(terminal, 1000)
        out = run.communicate(FACTS.encode())[0].decode()
        last = os.read(terminal, 100_000).decode()
    assert " s)" not in out and last.rpartition("\r")[2].strip() == ""
    assert "\r" + " " * 78 + "\r" in last


def test_quiet_runs_and_pipes_see_nothing_of_it(run, facts_file) -> None:
    assert run("check", "--facts", facts_file({"pkg.torch": "2.5.0"})).err == ""
    with on_a_terminal("check", "--facts", "-", "-q") as (quiet, terminal):
        quiet.communicate(FACTS.encode())
        os.set_blocking(terminal, False)
        with pytest.raises(OSError):
            os.read(terminal, 1)
