"""Asking an interpreter what it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processes import gone

from envdoctor.facts import Unknown
from envdoctor.observe.locate import interpreter
from envdoctor.observe.locate.interpreter import Answer, ask

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def script(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "python3"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_it_says_what_it_is(tmp_path: Path) -> None:
    answer = ask(sys.executable, environ={}, cwd=str(tmp_path))
    assert isinstance(answer, Answer)
    assert (answer.version, answer.implementation) == (sys.version.split()[0].rstrip("+"), sys.implementation.name)
    assert os.path.samefile(answer.executable, sys.executable)


def test_it_gets_few_variables(script, tmp_path: Path) -> None:
    ask(
        script(f"env > {tmp_path}/seen"), environ={"SECRET_TOKEN": "x", "PYTHONSTARTUP": "y", **PATH}, cwd=str(tmp_path)
    )
    seen = (tmp_path / "seen").read_text()
    assert "SECRET" not in seen
    assert "PYTHONSTARTUP" not in seen


def test_it_gets_no_input(script, tmp_path: Path) -> None:
    assert isinstance(ask(script("cat; echo nothing"), environ=PATH, cwd=str(tmp_path)), Unknown)


def test_endless_output_is_cut(script, tmp_path: Path) -> None:
    assert isinstance(ask(script("yes"), environ=PATH, cwd=str(tmp_path)), Unknown)


def test_one_that_does_not_answer_is_killed_with_its_children(script, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(interpreter, "_TIMEOUT_SECONDS", 0.5)
    answer = ask(script(f"sleep 600 & echo $! > {tmp_path}/pid\nsleep 600"), environ=PATH, cwd=str(tmp_path))
    assert isinstance(answer, Unknown)
    assert "did not answer within 0.5 seconds" in answer.reason
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_that_keeps_the_pipe_open_is_not_waited_for(script, tmp_path: Path) -> None:
    answer = ask(script(f"setsid sleep 600 & echo $! > {tmp_path}/pid"), environ=PATH, cwd=str(tmp_path))
    assert answer == Unknown(f"{tmp_path}/python3 does not answer like a Python interpreter")
    assert gone(int((tmp_path / "pid").read_text()))


def test_one_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    answer = ask(str(broken), environ={}, cwd=str(tmp_path))
    assert isinstance(answer, Unknown)
    assert "cannot be started" in answer.reason
