"""Which environment is judged, and what is said of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envdoctor.facts.values import Unknown
from envdoctor.observe.environment import EnvironmentNotFound, EnvironmentUnreadable, Layout, choose, observe
from envdoctor.observe.environment.caller import Running

HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}"
VERSION = "{}.{}.{}".format(*sys.version_info)


def pick(tmp_path: Path, python: object = None, *, running: Running | None = None, **environ: object) -> Layout:
    variables = {name: str(value) for name, value in environ.items()}
    given = None if python is None else str(python)
    return choose(given, None, None, environ=variables, cwd=str(tmp_path), running=running)


def running_in(prefix: Path, **changes: str) -> Running:
    return Running.this()._replace(prefix=str(prefix), executable=str(prefix / "bin" / "python"), **changes)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A virtual environment in the way uv and pipx make them, without a receipt yet."""
    folder = tmp_path / "tools" / "envdoctor"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


# --- --python -------------------------------------------------------------------------------------------------------


def test_a_virtual_environment_is_named_by_its_folder(venv: Path, site: Path, tmp_path: Path) -> None:
    layout = pick(tmp_path, venv)
    assert (layout.prefix, layout.kind, layout.because, layout.live) == (str(venv), "venv", "--python", True)
    assert layout.executable == str(venv / "bin" / "python")
    assert layout.site_packages == (str(site),)


@pytest.mark.parametrize("name", ["python", "python3", HERE])
def test_a_virtual_environment_is_named_by_its_interpreter(venv: Path, tmp_path: Path, name: str) -> None:
    layout = pick(tmp_path, venv / "bin" / name)
    assert (layout.prefix, layout.kind) == (str(venv), "venv")
    assert layout.executable == str(venv / "bin" / name)


def test_the_interpreter_may_be_a_relative_path(venv: Path, tmp_path: Path) -> None:
    assert pick(venv.parent, "env/bin/python").prefix == str(venv)


def test_the_interpreter_may_be_a_command_name(venv: Path, tmp_path: Path) -> None:
    assert pick(tmp_path, HERE, PATH=venv / "bin").prefix == str(venv)


def test_version_and_implementation_come_from_files(venv: Path, tmp_path: Path) -> None:
    other = Running.this()._replace(prefix="/somewhere/else")
    layout = pick(tmp_path, venv, running=other)
    assert (layout.python_version, layout.implementation) == (VERSION, "cpython")
    assert layout.version_origin in (f"include/{HERE}/patchlevel.h", "pyvenv.cfg")


def test_a_link_to_a_base_interpreter_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(Path(sys.base_prefix) / "bin" / HERE)
    layout = pick(tmp_path, tmp_path / "python", running=Running.this()._replace(prefix="/else"))
    assert os.path.samefile(layout.prefix, sys.base_prefix)
    assert layout.kind in ("system", "conda")
    assert layout.python_version == VERSION


def test_the_interpreter_of_a_venv_is_not_resolved_to_its_base(venv: Path, tmp_path: Path) -> None:
    assert (venv / "bin" / "python").is_symlink()
    assert pick(tmp_path, venv / "bin" / "python").prefix == str(venv)


def test_a_shim_is_asked_for_its_interpreter(venv: Path, tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\nexec {venv / "bin" / "python"} "$@"\n')
    shim.chmod(0o755)
    layout = pick(tmp_path, shim, PATH=os.environ["PATH"])
    assert layout.prefix == str(venv)
    assert layout.executable == str(venv / "bin" / "python")


def test_a_version_that_files_do_not_give_is_asked_for_once(venv: Path, tmp_path: Path) -> None:
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path / 'gone'}\n")
    log = tmp_path / "log"
    python = venv / "bin" / "python"
    real = os.path.realpath(python)
    python.unlink()
    python.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    python.chmod(0o755)
    layout = choose(str(venv), None, None, environ={"PATH": "/bin:/usr/bin"}, cwd=str(tmp_path))
    assert (layout.python_version, layout.version_origin) == (VERSION, "the interpreter")
    calls = log.read_text().splitlines()
    assert len(calls) == 1
    assert calls[0].startswith("-I -S -B -c ")


def test_a_venv_whose_base_is_gone_is_still_read(venv: Path, site: Path, tmp_path: Path, make_dist) -> None:
    make_dist(site, "numpy", "2.4.6")
    for name in ("python", "python3", HERE):
        (venv / "bin" / name).unlink()
        (venv / "bin" / name).symlink_to("/gone/bin/python")
    text = (venv / "pyvenv.cfg").read_text()
    (venv / "pyvenv.cfg").write_text(re.sub(r"(?m)^(home|executable) = .*", r"\1 = /gone/bin", text))
    layout = pick(tmp_path, venv)
    assert layout.executable is None
    assert layout.notes == (f"the interpreter {venv}/bin/python leads to /gone/bin/python, which is gone",)
    assert layout.python_version == VERSION
    assert observe(layout).complete
    assert pick(tmp_path, venv / "bin" / "python").prefix == str(venv)


def test_a_base_that_is_gone_leaves_an_including_venv_incomplete(venv: Path, tmp_path: Path) -> None:
    (venv / "pyvenv.cfg").write_text("home = /gone/bin\nversion = 3.11.9\ninclude-system-site-packages = true\n")
    observed = observe(pick(tmp_path, venv))
    assert "the base is gone" in (observed.incomplete or "")


@pytest.mark.parametrize(
    ("setting", "version"),
    [
        ("version = 3.11.9", "3.11.9"),
        ("version_info = 3.13.0.candidate.2", "3.13.0rc2"),
        ("version_info = 3.12.4.final.0", "3.12.4"),
        ("version_info = 3.14.0a3", "3.14.0a3"),
    ],
)
def test_pyvenv_cfg_gives_the_version_when_the_base_is_gone(tmp_path: Path, setting: str, version: str) -> None:
    minor = ".".join(version.split(".")[:2])
    (tmp_path / "env" / "lib" / f"python{minor}" / "site-packages").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text(f"home = /gone/bin\n{setting}\n")
    assert pick(tmp_path, tmp_path / "env").python_version == version


def test_a_base_that_was_upgraded_in_place_beats_pyvenv_cfg(tmp_path: Path) -> None:
    base = tmp_path / "base"
    for folder in ("bin", "lib/python3.11", "include/python3.11"):
        (base / folder).mkdir(parents=True)
    (base / "lib/python3.11/os.py").touch()
    (base / "include/python3.11/patchlevel.h").write_text('#define PY_MAJOR_VERSION 3\n#define PY_VERSION "3.11.9+"\n')
    (tmp_path / "env/lib/python3.11/site-packages").mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.11.2\n")
    assert pick(tmp_path, tmp_path / "env").python_version == "3.11.9"


def test_a_free_threaded_venv_is_read(tmp_path: Path, make_dist) -> None:
    site = tmp_path / "env/lib/python3.13t/site-packages"
    make_dist(site, "numpy", "2.4.6")
    (tmp_path / "env/pyvenv.cfg").write_text("home = /gone/bin\nversion = 3.13.1\n")
    layout = pick(tmp_path, tmp_path / "env")
    assert (layout.site_packages, layout.python_version) == ((str(site),), "3.13.1")


def test_pypy_is_read(tmp_path: Path, make_dist) -> None:
    site = tmp_path / "env/lib/pypy3.10/site-packages"
    make_dist(site, "numpy", "2.4.6")
    (tmp_path / "env/pyvenv.cfg").write_text(
        "home = /gone/bin\nimplementation = PyPy\nversion_info = 3.10.14.final.0\n"
    )
    layout = pick(tmp_path, tmp_path / "env")
    assert (layout.site_packages, layout.implementation) == ((str(site),), "pypy")


def test_a_windows_venv_is_read_and_is_not_live_elsewhere(tmp_path: Path, make_dist) -> None:
    site = tmp_path / "env/Lib/site-packages"
    make_dist(site, "torch", "2.5.1", header="Metadata-Version: 2.1\r\nName: torch\r\nVersion: 2.5.1\r\n\r\n")
    (tmp_path / "env/Scripts").mkdir()
    (tmp_path / "env/Scripts/python.exe").write_bytes(b"MZ")
    (tmp_path / "env/pyvenv.cfg").write_text("home = C:\\Python311\r\nversion = 3.11.9\r\n")
    for named in (tmp_path / "env", tmp_path / "env/Scripts/python.exe"):
        layout = pick(tmp_path, named)
        assert (layout.prefix, layout.site_packages) == (str(tmp_path / "env"), (str(site),))
        assert layout.python_version == "3.11.9"
        assert layout.live is (os.name == "nt")


def test_a_windows_conda_environment_is_read(tmp_path: Path, make_dist) -> None:
    make_dist(tmp_path / "conda/Lib/site-packages", "numpy", "2.4.6")
    (tmp_path / "conda/conda-meta").mkdir()
    (tmp_path / "conda/conda-meta/python-3.12.7-hce54a09_0.json").write_text("{}")
    (tmp_path / "conda/python.exe").write_bytes(b"MZ")
    layout = pick(tmp_path, tmp_path / "conda")
    assert (layout.kind, layout.python_version) == ("conda", "3.12.7")


def test_the_interpreter_of_a_conda_environment_names_it(tmp_path: Path, make_dist) -> None:
    prefix = tmp_path / "conda"
    make_dist(prefix / "lib/python3.11/site-packages", "numpy", "2.4.6")
    (prefix / "lib/python3.11/os.py").touch()
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta/python-3.11.9-h955ad1f_0.json").write_text("{}")
    (prefix / "bin").mkdir()
    (prefix / "bin/python3.11").write_bytes(b"\x7fELF")
    (prefix / "bin/python3.11").chmod(0o755)
    (prefix / "bin/python").symlink_to("python3.11")
    layout = pick(tmp_path, prefix / "bin/python")
    assert (layout.prefix, layout.kind, layout.python_version) == (str(prefix), "conda", "3.11.9")


def test_of_two_libraries_the_interpreters_own_is_read(tmp_path: Path, make_dist) -> None:
    prefix = tmp_path / "usr"
    for minor in ("3.9", "3.12"):
        make_dist(prefix / f"lib/python{minor}/site-packages", "numpy", f"1.{minor}")
        (prefix / f"lib/python{minor}/os.py").touch()
        (prefix / f"include/python{minor}").mkdir(parents=True)
        (prefix / f"include/python{minor}/patchlevel.h").write_text(f'#define PY_VERSION "{minor}.1"\n')
        (prefix / "bin").mkdir(exist_ok=True)
        (prefix / f"bin/python{minor}").write_bytes(b"\x7fELF")
        (prefix / f"bin/python{minor}").chmod(0o755)
    (prefix / "bin/python3").symlink_to("python3.9")
    assert pick(tmp_path, prefix / "bin/python3.12").python_version == "3.12.1"
    assert pick(tmp_path, prefix / "bin/python3").python_version == "3.9.1"
    assert pick(tmp_path, prefix).python_version == "3.9.1"


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
def test_what_is_wrong_with_python_is_said_in_a_sentence(tmp_path: Path, make, says: str) -> None:
    place = tmp_path / "python3"
    make(place)
    with pytest.raises(EnvironmentNotFound) as error:
        pick(tmp_path, place)
    assert str(error.value) == "--python: " + says.format(p=place)


def test_a_project_folder_is_answered_with_its_venv(venv: Path, tmp_path: Path) -> None:
    venv.rename(tmp_path / ".venv")
    with pytest.raises(EnvironmentNotFound, match=r"did you mean .*/\.venv\?"):
        pick(tmp_path, tmp_path)


def test_what_is_not_called_like_python_is_not_started(tmp_path: Path) -> None:
    program = tmp_path / "rm"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentNotFound, match="is not called like a Python interpreter"):
        pick(tmp_path, program)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("script", ["echo hello", "exit 3", "echo '[1]'", "echo '{\"version\": 3}'", "yes"])
def test_an_interpreter_that_answers_nonsense_is_said(tmp_path: Path, script: str) -> None:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentNotFound, match="does not answer like a Python interpreter"):
        pick(tmp_path, program, PATH="/bin:/usr/bin")


def test_two_environments_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotFound, match="give only one of them"):
        choose("a", "b", None, environ={}, cwd=str(tmp_path))


# --- the default ----------------------------------------------------------------------------------------------------


def test_the_running_interpreter_is_the_default(tmp_path: Path) -> None:
    layout = pick(tmp_path)
    assert (layout.prefix, layout.because) == (sys.prefix, "the interpreter that runs envdoctor")
    assert layout.python_version == sys.version.split()[0].rstrip("+")
    assert layout.notes == ()


def test_inside_and_outside_read_the_same(venv: Path, site: Path, make_dist, tmp_path: Path) -> None:
    make_dist(site, "numpy", "2.4.6")
    inside = observe(pick(tmp_path, running=running_in(venv)))
    outside = observe(pick(tmp_path, venv, running=Running.this()._replace(prefix="/else")))
    strip = [(fact.key, fact.value) for fact in inside.facts]
    assert strip == [(fact.key, fact.value) for fact in outside.facts]


def test_another_active_environment_is_mentioned(pristine_venv: Path, tmp_path: Path) -> None:
    layout = pick(tmp_path, VIRTUAL_ENV=pristine_venv)
    assert layout.prefix == sys.prefix
    assert len(layout.notes) == 1
    assert f"--python {pristine_venv}" in layout.notes[0]


@pytest.mark.parametrize("receipt", ["uv-receipt.toml", "pipx_metadata.json"])
def test_a_tools_own_environment_gives_way_to_the_active_one(
    tool: Path, pristine_venv: Path, tmp_path: Path, receipt: str
) -> None:
    (tool / receipt).write_text("")
    layout = pick(tmp_path, running=running_in(tool), VIRTUAL_ENV=pristine_venv)
    assert layout.prefix == str(pristine_venv)
    assert layout.because.startswith("the active virtual environment (VIRTUAL_ENV); envdoctor itself runs in")


def test_a_virtual_env_that_is_the_tools_own_is_passed_over(tool: Path, venv: Path, tmp_path: Path) -> None:
    (tool / "uv-receipt.toml").write_text("")
    layout = pick(tmp_path, running=running_in(tool), VIRTUAL_ENV=tool, CONDA_PREFIX=venv)
    assert layout.because.startswith("the active conda environment (CONDA_PREFIX)")


def test_the_projects_venv_comes_after_active_ones(tool: Path, venv: Path, tmp_path: Path) -> None:
    (tool / "uv-receipt.toml").write_text("")
    venv.rename(tmp_path / ".venv")
    layout = pick(tmp_path, running=running_in(tool))
    assert (layout.prefix, layout.because.partition(";")[0]) == (
        str(tmp_path / ".venv"),
        ".venv in the working directory",
    )


def test_python_on_path_comes_last_and_is_never_the_tools_own(tool: Path, venv: Path, tmp_path: Path) -> None:
    (tool / "uv-receipt.toml").write_text("")
    path = f"relative:{tmp_path / 'gone'}::{tool / 'bin'}:{venv / 'bin'}"
    layout = pick(tmp_path, running=running_in(tool), PATH=path)
    assert (layout.prefix, layout.because.partition(";")[0]) == (str(venv), "python on PATH")


def test_an_active_environment_that_is_gone_is_said(tool: Path, venv: Path, tmp_path: Path) -> None:
    (tool / "uv-receipt.toml").write_text("")
    layout = pick(tmp_path, running=running_in(tool), VIRTUAL_ENV=tmp_path / "gone", PATH=venv / "bin")
    assert layout.notes == (f"VIRTUAL_ENV names {tmp_path / 'gone'}, which is no environment",)


def test_a_tool_environment_without_any_other_is_an_error(tool: Path, tmp_path: Path) -> None:
    (tool / "uv-receipt.toml").write_text("")
    with pytest.raises(EnvironmentNotFound, match="Point at the environment with --python PATH"):
        pick(tmp_path, running=running_in(tool), PATH=tool / "bin", VIRTUAL_ENV=tool)


@pytest.mark.parametrize("bucket", ["archive-v0/abc", "environments-v2/envdoctor-1234", "builds-v0/.tmpXyz"])
def test_an_environment_in_the_cache_of_uv_is_a_tools_own(tool: Path, venv: Path, tmp_path: Path, bucket: str) -> None:
    cached = tmp_path / "cache" / bucket
    cached.parent.mkdir(parents=True)
    tool.rename(cached)
    layout = pick(tmp_path, running=running_in(cached), UV_CACHE_DIR=tmp_path / "cache", VIRTUAL_ENV=venv)
    assert layout.prefix == str(venv)


def test_a_cache_of_uv_that_no_variable_names_is_known_by_its_shape(tool: Path, venv: Path, tmp_path: Path) -> None:
    cached = tmp_path / "elsewhere" / "archive-v0" / "abc"
    cached.parent.mkdir(parents=True)
    tool.rename(cached)
    with (cached / "pyvenv.cfg").open("a") as file:
        file.write("uv = 0.13.8\n")
    assert pick(tmp_path, running=running_in(cached), VIRTUAL_ENV=venv).prefix == str(venv)


def test_the_environment_that_uv_run_extends_is_judged(tool: Path, venv: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "builds-v0" / ".tmpX"
    cached.parent.mkdir(parents=True)
    tool.rename(cached)
    with (cached / "pyvenv.cfg").open("a") as file:
        file.write(f"uv = 0.13.8\nextends-environment = {venv}\n")
    layout = pick(tmp_path, running=running_in(cached), VIRTUAL_ENV=cached)
    assert layout.because.startswith("the environment that uv run extends")


def test_a_plain_venv_of_uv_is_judged_itself(venv: Path, tmp_path: Path) -> None:
    with (venv / "pyvenv.cfg").open("a") as file:
        file.write("uv = 0.13.8\n")
    assert pick(tmp_path, running=running_in(venv)).prefix == str(venv)


def test_an_environment_of_pre_commit_is_a_tools_own(tool: Path, venv: Path, tmp_path: Path) -> None:
    cached = tmp_path / "home/.cache/pre-commit/repo1/py_env-python3"
    cached.parent.mkdir(parents=True)
    tool.rename(cached)
    layout = pick(tmp_path, running=running_in(cached), HOME=tmp_path / "home", VIRTUAL_ENV=venv)
    assert "pre-commit" in layout.because


# --- --path ---------------------------------------------------------------------------------------------------------


def test_a_bare_folder_does_not_know_its_python(bare: Path, read, make_dist) -> None:
    make_dist(bare, "numpy", "2.4.6")
    layout, observed, facts = read(path=bare)
    assert (layout.kind, layout.live, layout.executable) == ("path", True, None)
    assert isinstance(facts["python.version"], Unknown)
    assert facts["pkg.numpy"] == "2.4.6"
    assert observed.complete


def test_a_bare_folder_reads_no_pth_and_no_pythonpath(bare: Path, tmp_path: Path, read) -> None:
    (tmp_path / "other").mkdir()
    (bare / "a.pth").write_text(f"{tmp_path / 'other'}\n")
    layout, _, _ = read(path=bare, environ={"PYTHONPATH": str(tmp_path / "other")})
    assert layout.site_packages == (str(bare),)


def test_a_site_packages_folder_knows_its_python(venv: Path, site: Path, tmp_path: Path, read) -> None:
    (tmp_path / "other").mkdir()
    (site / "a.pth").write_text(f"{tmp_path / 'other'}\n")
    layout, _, facts = read(path=site)
    assert layout.site_packages == (str(site), str(tmp_path / "other"))
    assert facts["python.version"] == VERSION


def test_a_venv_is_no_folder_of_packages(venv: Path, read) -> None:
    with pytest.raises(EnvironmentNotFound, match="use --python"):
        read(path=venv)


def test_a_path_that_is_wrong_is_said(tmp_path: Path, read) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentNotFound, match="does not exist"):
        read(path=tmp_path / "gone")
    with pytest.raises(EnvironmentNotFound, match="is not a folder"):
        read(path=tmp_path / "file")


def test_a_path_without_permission_is_said(forbidden: Path, read) -> None:
    (forbidden / "packages").mkdir(mode=0)
    with pytest.raises(EnvironmentNotFound, match="cannot be listed: Permission denied"):
        read(path=forbidden / "packages")


# --- what cannot be read --------------------------------------------------------------------------------------------


def test_an_environment_without_its_packages_folder_is_unreadable(venv: Path, tmp_path: Path) -> None:
    shutil.rmtree(venv / "lib")
    with pytest.raises(EnvironmentUnreadable, match="has no folder of packages"):
        observe(pick(tmp_path, venv))


def test_a_packages_folder_without_permission_is_unreadable(forbidden: Path) -> None:
    site = forbidden / "env/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (forbidden / "env/pyvenv.cfg").write_text("home = /gone\nversion = 3.11.9\n")
    site.chmod(0)
    with pytest.raises(EnvironmentUnreadable, match="site-packages cannot be read: Permission denied"):
        observe(pick(forbidden, forbidden / "env"))


def test_one_folder_without_permission_leaves_the_listing_incomplete(forbidden: Path, make_dist) -> None:
    site = forbidden / "env/lib/python3.11/site-packages"
    make_dist(site, "numpy", "2.4.6")
    (forbidden / "env/pyvenv.cfg").write_text("home = /gone\nversion = 3.11.9\n")
    (forbidden / "more").mkdir(mode=0)
    observed = observe(pick(forbidden, forbidden / "env", PYTHONPATH=forbidden / "more"))
    reason = f"{forbidden / 'more'} cannot be read: Permission denied"
    assert (observed.complete, observed.incomplete) == (False, reason)
    assert reason in observed.notes
    facts = {fact.key: fact.value for fact in observed.facts}
    assert facts["pkg.numpy"] == "2.4.6"
    assert facts["dist"].incomplete == reason
    assert isinstance(observed.fact_set().value("pkg.torch"), Unknown)


@pytest.mark.parametrize(
    "settings",
    [
        b"",
        b"\0",
        b"home = \0\nversion = 3.11.1\n",
        b"\xff\xfe = \xff",
        b"home = " + b"/x" * 40_000,
        b"version = 9" * 999,
    ],
)
def test_any_pyvenv_cfg_is_harmless(tmp_path: Path, settings: bytes) -> None:
    (tmp_path / "env/lib/python3.11/site-packages").mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_bytes(settings)
    layout = pick(tmp_path, tmp_path / "env")
    assert layout.kind == "venv"
    assert observe(layout).complete
