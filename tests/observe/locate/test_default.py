"""The environment that is judged when none is named."""

import os
import sys
from pathlib import Path
from venv import create

import pytest
from observing import observe, program
from tables import cases

from envdoctor.observe import EnvironmentNotFound, Running

CASES = cases("default.toml")


def running_in(prefix: Path, **changes: str) -> Running:
    return Running.this()._replace(prefix=str(prefix), executable=str(prefix / "bin" / "python"), **changes)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A virtual environment in the way uv and pipx make them, without a receipt."""
    folder = tmp_path / "tools" / "envdoctor"
    create(folder, symlinks=os.name != "nt")
    return folder


@pytest.fixture
def tool(plain: Path) -> Path:
    """The same, as uv leaves it."""
    (plain / "uv-receipt.toml").write_text("")
    return plain


def test_the_running_interpreter_is_the_default(pick) -> None:
    layout = pick()
    assert (layout.prefix, layout.because) == (sys.prefix, "the interpreter that runs envdoctor")
    assert layout.python_version == sys.version.split()[0].rstrip("+")
    assert layout.notes == ()


def test_inside_and_outside_read_the_same(venv: Path, site: Path, make_dist, pick) -> None:
    make_dist(site, "numpy", "2.4.6")
    inside = observe(pick(running=running_in(venv)))
    outside = observe(pick(venv, running=Running.this()._replace(prefix="/else")))
    strip = [(fact.key, fact.value) for fact in inside.facts]
    assert strip == [(fact.key, fact.value) for fact in outside.facts]


def test_another_active_environment_is_mentioned(pristine_venv: Path, pick) -> None:
    layout = pick(VIRTUAL_ENV=pristine_venv)
    assert layout.prefix == sys.prefix
    assert len(layout.notes) == 1
    assert f"--python {pristine_venv}" in layout.notes[0]


@pytest.mark.parametrize(("place", "beside", "settings", "environ", "because"), CASES["tools_own_environment"])
def test_a_tools_own_environment_gives_way_to_the_active_one(
    plain: Path, pristine_venv: Path, tmp_path: Path, pick, place, beside, settings, environ, because
) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    own = plain.rename(tmp_path / place)
    if beside is not None:
        (own / beside).write_text("{}")
    with (own / "pyvenv.cfg").open("a") as file:
        file.write(settings)
    variables = {name: tmp_path / folder for name, folder in environ.items()}
    layout = pick(running=running_in(own), VIRTUAL_ENV=pristine_venv, **variables)
    assert layout.prefix == str(pristine_venv) and because in layout.because


def test_a_virtual_env_that_is_the_tools_own_is_passed_over(tool: Path, venv: Path, pick) -> None:
    layout = pick(running=running_in(tool), VIRTUAL_ENV=tool, CONDA_PREFIX=venv)
    assert layout.because.startswith("the active conda environment (CONDA_PREFIX)")


def test_the_projects_venv_comes_after_active_ones(tool: Path, venv: Path, tmp_path: Path, pick) -> None:
    venv.rename(tmp_path / ".venv")
    layout = pick(running=running_in(tool))
    assert layout.prefix == str(tmp_path / ".venv")
    assert layout.because.startswith(".venv in the working directory;")


def test_python_on_path_comes_last_and_is_never_the_tools_own(tool: Path, venv: Path, tmp_path: Path, pick) -> None:
    path = f"relative:{tmp_path / 'gone'}::{tool / 'bin'}:{venv / 'bin'}"
    layout = pick(running=running_in(tool), PATH=path)
    assert (layout.prefix, layout.because.partition(";")[0]) == (str(venv), "python on PATH")


def test_a_script_on_path_is_not_started_unasked(tool: Path, venv: Path, tmp_path: Path, pick) -> None:
    shims = program(tmp_path / "shims/python", f"touch {tmp_path / 'started'}\nexec {venv / 'bin/python'} $@").parent
    layout = pick(running=running_in(tool), PATH=f"{shims}:{venv / 'bin'}")
    assert layout.prefix == str(venv) and "--python python asks it" in layout.notes[0]
    with pytest.raises(EnvironmentNotFound, match="could say which Python it starts"):
        pick(running=running_in(tool), PATH=shims)
    assert not (tmp_path / "started").exists()


def test_an_interpreter_of_the_projects_venv_is_not_started_unasked(
    tool: Path, venv: Path, tmp_path: Path, pick
) -> None:
    """A cloned repository may bring a .venv whose settings do not give the version."""
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path / 'gone'}\n")
    (venv / "bin" / "python").unlink()
    program(venv / "bin" / "python", f"touch {tmp_path / 'started'}")
    venv.rename(tmp_path / ".venv")
    layout = pick(running=running_in(tool))
    assert layout.prefix == str(tmp_path / ".venv") and not isinstance(layout.python_version, str)
    assert not (tmp_path / "started").exists()


def test_an_active_environment_that_is_gone_is_said(tool: Path, venv: Path, tmp_path: Path, pick) -> None:
    layout = pick(running=running_in(tool), VIRTUAL_ENV=tmp_path / "gone", PATH=venv / "bin")
    assert layout.notes == (f"VIRTUAL_ENV names {tmp_path / 'gone'}, which is no environment",)


def test_a_tool_environment_without_any_other_is_an_error(tool: Path, pick) -> None:
    with pytest.raises(EnvironmentNotFound, match="Point at the environment with --python PATH"):
        pick(running=running_in(tool), PATH=tool / "bin", VIRTUAL_ENV=tool)


def test_the_environment_that_uv_run_extends_is_judged(plain: Path, venv: Path, tmp_path: Path, pick) -> None:
    (tmp_path / "cache" / "builds-v0").mkdir(parents=True)
    cached = plain.rename(tmp_path / "cache" / "builds-v0" / ".tmpX")
    with (cached / "pyvenv.cfg").open("a") as file:
        file.write(f"uv = 0.13.8\nextends-environment = {venv}\n")
    layout = pick(running=running_in(cached), VIRTUAL_ENV=cached)
    assert layout.because.startswith("the environment that uv run extends")


def test_a_plain_venv_of_uv_is_judged_itself(venv: Path, pick) -> None:
    with (venv / "pyvenv.cfg").open("a") as file:
        file.write("uv = 0.13.8\n")
    assert pick(running=running_in(venv)).prefix == str(venv)
