"""What --python may name, what is said of what it may not, and how an interpreter is asked what it is."""

import json
import sys
from pathlib import Path

import pytest
from observing import choose, program
from processes import gone

from envdoctor.observe import EnvironmentNotFound
from envdoctor.observe.locate import target

HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_virtual_environment_is_named_by_its_folder_or_its_interpreter(venv: Path, site: Path, pick) -> None:
    layout = pick(venv)
    assert (layout.prefix, layout.kind, layout.because, layout.live) == (str(venv), "venv", "--python", True)
    assert (layout.executable, layout.site_packages) == (str(venv / "bin" / "python"), (str(site),))
    for name in ("python", "python3", HERE):
        layout = pick(venv / "bin" / name)
        assert (layout.prefix, layout.kind, layout.executable) == (str(venv), "venv", str(venv / "bin" / name))


def test_the_interpreter_may_be_a_relative_path_or_a_command_name(venv: Path, pick) -> None:
    assert pick("env/bin/python", cwd=venv.parent).prefix == str(venv)
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


@pytest.fixture
def refusal(tmp_path: Path, pick):
    """What is said of a program that is called like an interpreter."""

    def say(script: str, name: str = "python3", **environ: str) -> str:
        with pytest.raises(EnvironmentNotFound) as refused:
            pick(program(tmp_path / name, script), PATH="/bin:/usr/bin", **environ)
        return str(refused.value)

    return say


def test_what_is_not_called_like_python_is_not_started(tmp_path: Path, refusal) -> None:
    assert "is not called like a Python interpreter" in refusal(f"touch {tmp_path / 'ran'}", "rm")
    assert not (tmp_path / "ran").exists()


def with_null(place: str) -> str:
    """An answer with a null byte there."""
    said = {"version": "3.11.7", "implementation": "cpython", "executable": "/gone/python3", "prefix": "/gone"}
    return f"cat <<'END'\n{json.dumps({**said, place: '/gone' + chr(0)})}\nEND"


@pytest.mark.parametrize(
    "text",
    ["echo hello", "exit 3", "echo '[1]'", "echo '{\"version\": 3}'", "yes", "cat; echo nothing"]
    + [with_null(place) for place in ("executable", "prefix", "version")],
)
def test_an_interpreter_that_answers_nonsense_is_said(refusal, text: str) -> None:
    assert "does not answer like a Python interpreter" in refusal(text)


def test_an_interpreter_gets_few_variables(refusal, tmp_path: Path) -> None:
    refusal(f"env > {tmp_path}/seen", SECRET_TOKEN="x", PYTHONSTARTUP="y")
    seen = (tmp_path / "seen").read_text()
    assert "PATH" in seen and "SECRET" not in seen and "PYTHONSTARTUP" not in seen


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("sleep 600 & echo $! > {pid}\nsleep 600", 0.5, "took more than 0.5 s"),
        # one that keeps the pipe open is not waited for
        ("setsid sleep 600 & echo $! > {pid}", 10.0, "does not answer like a Python interpreter"),
    ],
)
def test_children_of_one_that_does_not_answer_are_killed(
    refusal, tmp_path: Path, monkeypatch, script: str, seconds: float, said: str
) -> None:
    monkeypatch.setattr(target, "_TIMEOUT_SECONDS", seconds)
    assert refusal(script.format(pid=tmp_path / "pid")) == f"--python: {tmp_path}/python3 {said}"
    assert gone(int((tmp_path / "pid").read_text()))


def test_one_that_cannot_be_started_is_said(tmp_path: Path, pick) -> None:
    program(tmp_path / "python3", "").write_text("#!/gone/sh\n")
    with pytest.raises(EnvironmentNotFound, match="cannot be started"):
        pick(tmp_path / "python3")


def test_two_environments_at_once_are_refused() -> None:
    with pytest.raises(EnvironmentNotFound, match="give only one of them"):
        choose("a", path="b")
