"""What --python may name, and what is said of what it may not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from observing import choose

from envdoctor.observe import EnvironmentNotFound

HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_virtual_environment_is_named_by_its_folder(venv: Path, site: Path, pick) -> None:
    layout = pick(venv)
    assert (layout.prefix, layout.kind, layout.because, layout.live) == (str(venv), "venv", "--python", True)
    assert layout.executable == str(venv / "bin" / "python")
    assert layout.site_packages == (str(site),)


@pytest.mark.parametrize("name", ["python", "python3", HERE])
def test_a_virtual_environment_is_named_by_its_interpreter(venv: Path, name: str, pick) -> None:
    layout = pick(venv / "bin" / name)
    assert (layout.prefix, layout.kind) == (str(venv), "venv")
    assert layout.executable == str(venv / "bin" / name)


def test_the_interpreter_may_be_a_relative_path(venv: Path, pick) -> None:
    assert pick("env/bin/python", cwd=venv.parent).prefix == str(venv)


def test_the_interpreter_may_be_a_command_name(venv: Path, pick) -> None:
    assert pick(HERE, PATH=venv / "bin").prefix == str(venv)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "{p} does not exist; give an interpreter or the folder of an environment"),
        (lambda p: p.mkdir(), "{p} holds no Python environment (no pyvenv.cfg, no conda-meta, no library folder)"),
        (
            lambda p: (p / "x-1.dist-info").mkdir(parents=True),
            "{p} holds no Python environment; for a folder of packages use --path",
        ),
        (lambda p: p.write_text("x"), "{p} is not executable"),
        (lambda p: p.symlink_to("/gone/python"), "{p} is a link to /gone/python, which is gone"),
    ],
)
def test_what_is_wrong_with_python_is_said_in_a_sentence(tmp_path: Path, make, says: str, pick) -> None:
    place = tmp_path / "python3"
    make(place)
    with pytest.raises(EnvironmentNotFound) as error:
        pick(place)
    assert str(error.value) == "--python: " + says.format(p=place)


def test_a_project_folder_is_answered_with_its_venv(venv: Path, tmp_path: Path, pick) -> None:
    venv.rename(tmp_path / ".venv")
    with pytest.raises(EnvironmentNotFound, match=r"did you mean .*/\.venv\?"):
        pick(tmp_path)


def test_what_is_not_called_like_python_is_not_started(tmp_path: Path, pick) -> None:
    program = tmp_path / "rm"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentNotFound, match="is not called like a Python interpreter"):
        pick(program)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("script", ["echo hello", "exit 3", "echo '[1]'", "echo '{\"version\": 3}'", "yes"])
def test_an_interpreter_that_answers_nonsense_is_said(tmp_path: Path, script: str, pick) -> None:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentNotFound, match="does not answer like a Python interpreter"):
        pick(program, PATH="/bin:/usr/bin")


@pytest.mark.parametrize("place", ["executable", "prefix", "version"])
def test_an_answer_with_a_null_byte_is_refused(tmp_path: Path, place: str, pick) -> None:
    said = {"version": "3.11.7", "implementation": "cpython", "executable": "/gone/python3", "prefix": "/gone"}
    program = tmp_path / "python3"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + json.dumps({**said, place: "/gone\0"}) + "\nEND\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentNotFound, match="does not answer like a Python interpreter"):
        pick(program, PATH="/bin:/usr/bin")


def test_two_environments_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotFound, match="give only one of them"):
        choose("a", "b", None, environ={}, cwd=str(tmp_path))
