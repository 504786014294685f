"""Environments of every kind, and the version of their Python."""

import os
import re
import sys
from pathlib import Path

import pytest
from observing import observe, program, write
from tables import cases

from envdoctor.observe import EnvironmentNotFound, Running

CASES = cases("installation.toml")

HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}"
VERSION = sys.version.split()[0].rstrip("+")


def test_version_and_implementation_come_from_files(venv: Path, pick) -> None:
    other = Running.this()._replace(prefix="/somewhere/else")
    layout = pick(venv, running=other)
    assert (layout.python_version, layout.implementation) == (VERSION, "cpython")
    assert layout.version_origin in (f"include/{HERE}/patchlevel.h", "pyvenv.cfg")


def test_a_link_to_a_base_interpreter_is_resolved(tmp_path: Path, pick) -> None:
    (tmp_path / "python").symlink_to(Path(sys.base_prefix) / "bin" / HERE)
    layout = pick(tmp_path / "python", running=Running.this()._replace(prefix="/else"))
    assert os.path.samefile(layout.prefix, sys.base_prefix)
    assert layout.kind in ("system", "conda")
    assert layout.python_version == VERSION


def test_a_shim_is_asked_for_its_interpreter(venv: Path, tmp_path: Path, pick) -> None:
    shim = program(tmp_path / "python3", f'exec {venv / "bin" / "python"} "$@"')
    layout = pick(shim, PATH=os.environ["PATH"])
    assert (layout.prefix, layout.executable) == (str(venv), str(venv / "bin" / "python"))
    assert layout.notes == (f"{shim} was started, to be asked what no file tells",)


@pytest.mark.parametrize("settings", ["home = /gone/bin\nversion = 3.11.9\n", "home = /gone/bin\n"])
def test_a_script_in_a_virtual_environment_is_not_its_shim(venv: Path, tmp_path: Path, settings: str, pick) -> None:
    """Where pyvenv.cfg gives the version, nothing has to be started; a chosen environment is never started."""
    python, witness = replaced(venv, tmp_path)
    (venv / "pyvenv.cfg").write_text(settings)
    tool = Running.this()._replace(prefix=str(tmp_path / "tool"))
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "uv-receipt.toml").write_text("")
    chosen = pick(running=tool, VIRTUAL_ENV=venv)
    assert chosen.prefix == str(venv) and not witness.exists()
    if "version" in settings:
        assert pick(python).python_version == "3.11.9"
        assert not witness.exists()
    else:
        assert "only one named with --python is asked" in chosen.python_version.reason


def test_an_interpreter_beside_settings_that_are_a_pipe_is_not_started(venv: Path, tmp_path: Path, pick) -> None:
    """It would read them first, and wait for a writer."""
    python, witness = replaced(venv, tmp_path)
    (venv / "pyvenv.cfg").unlink()
    os.mkfifo(venv / "pyvenv.cfg")
    with pytest.raises(EnvironmentNotFound, match="it is not a regular file"):
        pick(python)
    assert "it is not a regular file" in pick(venv).python_version.reason
    assert not witness.exists()


def replaced(venv: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The interpreter of the environment, exchanged for a script, and the file that it leaves when it is started."""
    python, witness = venv / "bin" / "python", tmp_path / "started"
    python.unlink()
    return program(python, f"touch {witness}"), witness


def test_a_version_that_files_do_not_give_is_asked_for_once(venv: Path, tmp_path: Path, pick) -> None:
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path / 'gone'}\n")
    log = tmp_path / "log"
    python = venv / "bin" / "python"
    real = os.path.realpath(python)
    python.unlink()
    program(python, f'echo "$@" >> {log}\nexec {real} "$@"')
    layout = pick(venv, PATH="/bin:/usr/bin")
    assert (layout.python_version, layout.version_origin) == (VERSION, "the interpreter")
    (call,) = log.read_text().splitlines()
    assert call.startswith("-I -S -B -c ")


def test_a_venv_whose_base_is_gone_is_still_read(venv: Path, site: Path, make_dist, pick) -> None:
    make_dist(site, "numpy", "2.4.6")
    for name in ("python", "python3", HERE):
        (venv / "bin" / name).unlink()
        (venv / "bin" / name).symlink_to("/gone/bin/python")
    text = (venv / "pyvenv.cfg").read_text()
    (venv / "pyvenv.cfg").write_text(re.sub(r"(?m)^(home|executable) = .*", r"\1 = /gone/bin", text))
    layout = pick(venv)
    assert (layout.executable, layout.gone, layout.python_version) == (None, "/gone/bin/python", VERSION)
    assert observe(layout).incomplete is None
    assert pick(venv / "bin" / "python").prefix == str(venv)


def test_a_base_that_is_gone_leaves_an_including_venv_incomplete(venv: Path, pick) -> None:
    (venv / "pyvenv.cfg").write_text("home = /gone/bin\nversion = 3.11.9\ninclude-system-site-packages = true\n")
    assert "the base is gone" in (observe(pick(venv)).incomplete or "")


@pytest.mark.parametrize(("library", "settings", "version", "implementation"), CASES["pyvenv_cfg_gives"])
def test_pyvenv_cfg_gives_the_version_when_the_base_is_gone(
    tmp_path: Path, make_dist, pick, library: str, settings: str, version: str, implementation: str
) -> None:
    site = tmp_path / "env" / "lib" / library / "site-packages"
    make_dist(site, "numpy", "2.4.6")
    (tmp_path / "env" / "pyvenv.cfg").write_text(f"home = /gone/bin\n{settings}\n")
    layout = pick(tmp_path / "env")
    assert (layout.python_version, layout.implementation) == (version, implementation)
    assert layout.site_packages == (str(site),)


def test_a_base_that_was_upgraded_in_place_beats_pyvenv_cfg(tmp_path: Path, pick) -> None:
    header = '#define PY_MAJOR_VERSION 3\n#define PY_VERSION "3.11.9+"\n'
    base = {"bin/x": "", "lib/python3.11/os.py": "", "include/python3.11/patchlevel.h": header}
    write(tmp_path / "base", base)
    settings = f"home = {tmp_path}/base/bin\nversion = 3.11.2\n"
    write(tmp_path / "env", {"lib/python3.11/site-packages/x": "", "pyvenv.cfg": settings})
    assert pick(tmp_path / "env").python_version == "3.11.9"


def test_a_windows_venv_is_read_and_is_not_live_elsewhere(tmp_path: Path, make_dist, pick) -> None:
    site = tmp_path / "env/Lib/site-packages"
    make_dist(site, "torch", "2.5.1", header="Metadata-Version: 2.1\r\nName: torch\r\nVersion: 2.5.1\r\n\r\n")
    settings = "home = C:\\Python311\r\nversion = 3.11.9\r\n"
    write(tmp_path / "env", {"Scripts/python.exe": "MZ", "pyvenv.cfg": settings})
    for named in (tmp_path / "env", tmp_path / "env/Scripts/python.exe"):
        layout = pick(named)
        assert (layout.prefix, layout.site_packages) == (str(tmp_path / "env"), (str(site),))
        assert (layout.python_version, layout.live) == ("3.11.9", os.name == "nt")


@pytest.mark.parametrize(
    ("library", "meta", "version", "python"),
    [
        ("Lib", "python-3.12.7-hce54a09_0", "3.12.7", "python.exe"),
        ("lib/python3.11", "python-3.11.9-h955ad1f_0", "3.11.9", "bin/python"),
    ],
)
def test_a_conda_environment_is_named_by_its_folder_or_interpreter(
    tmp_path: Path, make_dist, pick, library: str, meta: str, version: str, python: str
) -> None:
    prefix = tmp_path / "conda"
    make_dist(prefix / library / "site-packages", "numpy", "2.4.6")
    write(prefix, {f"{library}/os.py": "", f"conda-meta/{meta}.json": "{}", "program": "\x7fELF", "bin/x": ""})
    (prefix / "program").chmod(0o755)
    (prefix / python).symlink_to(prefix / "program")
    for named in (prefix, prefix / python):
        layout = pick(named)
        assert (layout.prefix, layout.kind, layout.python_version) == (str(prefix), "conda", version)


def test_of_two_libraries_the_interpreters_own_is_read(tmp_path: Path, make_dist, pick) -> None:
    prefix = tmp_path / "usr"
    for minor in ("3.9", "3.12"):
        make_dist(prefix / f"lib/python{minor}/site-packages", "numpy", f"1.{minor}")
        header = {f"include/python{minor}/patchlevel.h": f'#define PY_VERSION "{minor}.1"\n'}
        write(prefix, {f"lib/python{minor}/os.py": "", f"bin/python{minor}": "\x7fELF", **header})
        (prefix / f"bin/python{minor}").chmod(0o755)
    (prefix / "bin/python3").symlink_to("python3.9")
    assert pick(prefix / "bin/python3.12").python_version == "3.12.1"
    assert pick(prefix / "bin/python3").python_version == "3.9.1"
    assert pick(prefix).python_version == "3.9.1"
