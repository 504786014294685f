"""The folders packages are imported from, held against what real interpreters say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from observing import choose

HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}"
PRINT = "import sys, json, sysconfig; print(json.dumps([sys.path, sysconfig.get_paths()['stdlib']]))"


def real_path(python: Path, environ: dict[str, str], cwd: Path) -> list[str]:
    """What the interpreter itself imports from, without its standard library and the entry of -c."""
    done = subprocess.run([str(python), "-c", PRINT], env=environ, cwd=cwd, capture_output=True, text=True, check=True)
    entries, stdlib = json.loads(done.stdout)
    inner = (stdlib, os.path.join(stdlib, "lib-dynload"))
    return [os.path.normpath(entry) for entry in entries[1:] if os.path.isdir(entry) and entry not in inner]


def read_path(python: Path, environ: dict[str, str], cwd: Path) -> list[str]:
    return list(choose(str(python), None, None, environ=environ, cwd=str(cwd)).site_packages)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a user site that holds something."""
    folder = tmp_path / "home"
    (folder / ".local" / "lib" / HERE / "site-packages").mkdir(parents=True)
    return folder


@pytest.fixture
def busy_site(site: Path, tmp_path: Path) -> Path:
    """A site folder with ``.pth`` files of every kind."""
    for name in ("editable", "relative", "second", "hidden", "comment"):
        (tmp_path / name).mkdir()
    (site / "inner").mkdir()
    (site / "b.pth").write_text(f"{tmp_path / 'second'}\n\n# {tmp_path / 'comment'}\n{tmp_path / 'gone'}\ninner\n")
    (site / "a.pth").write_text(f"{tmp_path / 'editable'}\r\n../../../../relative\nimport sys\n")
    (site / "c.pth").write_text(f"{tmp_path / 'editable'}\n")
    (site / "note.txt").write_text(str(tmp_path / "hidden"))
    return site


def test_the_path_is_that_of_the_real_interpreter(venv: Path, busy_site: Path, home: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    expected = real_path(venv / "bin" / "python", environ, tmp_path)
    assert read_path(venv, environ, tmp_path) == expected
    assert len(expected) == 5


def test_pythonpath_comes_first_and_may_be_relative(venv: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    environ = {"PYTHONPATH": f"two:{tmp_path / 'one'}:gone:two", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    expected = real_path(venv / "bin" / "python", environ, tmp_path)
    assert read_path(venv, environ, tmp_path) == [path for path in dict.fromkeys(expected) if os.path.isdir(path)]
    assert read_path(venv, environ, tmp_path)[:2] == [str(tmp_path / "two"), str(tmp_path / "one")]


def with_system_site(venv: Path) -> None:
    settings = venv / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("packages = false", "packages = true"))


def test_a_venv_that_includes_its_base_imports_from_user_site_and_base(venv: Path, home: Path, tmp_path: Path) -> None:
    with_system_site(venv)
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    expected = real_path(venv / "bin" / "python", environ, tmp_path)
    assert read_path(venv, environ, tmp_path) == expected
    assert str(home / ".local" / "lib" / HERE / "site-packages") in expected
    assert expected[-1].startswith(sys.base_prefix)


@pytest.mark.parametrize("line", ["", "Include-System-Site-Packages = TRUE", "include-system-site-packages = yes"])
def test_a_venv_that_does_not_say_so_is_read_as_python_reads_it(line: str, venv: Path, home: Path, tmp_path: Path):
    settings = venv / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("include-system-site-packages = false", line))
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    expected = real_path(venv / "bin" / "python", environ, tmp_path)
    assert read_path(venv, environ, tmp_path) == expected
    assert any(path.startswith(sys.base_prefix) for path in expected) is (not line or "TRUE" in line)


def test_pythonnousersite_leaves_out_the_user_site(venv: Path, home: Path, tmp_path: Path) -> None:
    with_system_site(venv)
    environ = {"HOME": str(home), "PYTHONNOUSERSITE": "1", "PATH": os.environ["PATH"]}
    assert read_path(venv, environ, tmp_path) == real_path(venv / "bin" / "python", environ, tmp_path)


def test_pythonuserbase_moves_the_user_site(venv: Path, tmp_path: Path) -> None:
    with_system_site(venv)
    base = tmp_path / "base"
    (base / "lib" / HERE / "site-packages").mkdir(parents=True)
    environ = {"HOME": str(tmp_path), "PYTHONUSERBASE": str(base), "PATH": os.environ["PATH"]}
    expected = real_path(venv / "bin" / "python", environ, tmp_path)
    assert read_path(venv, environ, tmp_path) == expected
    assert str(base / "lib" / HERE / "site-packages") in expected


def test_the_base_interpreter_imports_from_user_site_first(home: Path, tmp_path: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / HERE
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    assert read_path(python, environ, tmp_path) == real_path(python, environ, tmp_path)


@pytest.mark.parametrize("python", ["/usr/bin/python3", "/bin/python3", "/usr/local/bin/python3"])
def test_the_system_python_is_laid_out_as_its_distribution_does(python: str, home: Path, tmp_path: Path) -> None:
    if not os.path.exists(python):
        pytest.skip(f"no {python} here")
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    assert read_path(Path(python), environ, tmp_path) == real_path(Path(python), environ, tmp_path)


def test_the_user_site_of_windows_is_below_appdata(tmp_path: Path) -> None:
    prefix, user = tmp_path / "env", tmp_path / "roaming" / "Python" / "Python311" / "site-packages"
    (prefix / "Lib" / "site-packages").mkdir(parents=True)
    user.mkdir(parents=True)
    text = "home = C:\\Python311\r\nversion = 3.11.9\r\ninclude-system-site-packages = true\r\n"
    (prefix / "pyvenv.cfg").write_text(text)
    found = read_path(prefix, {"APPDATA": str(tmp_path / "roaming")}, tmp_path)
    assert found == [str(prefix / "Lib" / "site-packages"), str(user)]


def test_the_user_site_of_a_macos_framework_is_below_library(tmp_path: Path) -> None:
    prefix = tmp_path / "Python.framework" / "Versions" / "3.11"
    site = prefix / "lib" / "python3.11" / "site-packages"
    user = tmp_path / "home" / "Library" / "Python" / "3.11" / "lib" / "python" / "site-packages"
    site.mkdir(parents=True)
    user.mkdir(parents=True)
    assert read_path(prefix, {"HOME": str(tmp_path / "home")}, tmp_path) == [str(user), str(site)]


def test_import_lines_are_recorded_and_not_run(venv: Path, site: Path, tmp_path: Path) -> None:
    line = f"import os; os.mkdir({str(tmp_path / 'ran')!r})"
    (site / "hook.pth").write_text(line + "\n")
    layout = choose(str(venv), None, None, environ={}, cwd=str(tmp_path))
    assert layout.import_lines == (("hook.pth", line),)
    assert not (tmp_path / "ran").exists()
    assert layout.incomplete is None


def test_a_pth_file_that_is_not_utf8_is_read(venv: Path, site: Path, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    (site / "a.pth").write_bytes(folder + b"\n")
    assert os.fsdecode(folder) in read_path(venv, {}, tmp_path)


@pytest.mark.parametrize(
    "content", [b"\0\n", b"a\0b\n", b"\xff\xfe\n", b"/" * 5000, b"import\n", b"\xef\xbb\xbf/tmp\n"]
)
def test_a_hostile_pth_file_is_harmless(venv: Path, site: Path, tmp_path: Path, content: bytes) -> None:
    (site / "a.pth").write_bytes(content)
    assert str(site) in read_path(venv, {}, tmp_path)


def test_a_pth_file_that_cannot_be_read_makes_the_listing_incomplete(venv: Path, site: Path, read) -> None:
    (site / "a.pth").mkdir()
    layout, observed, _ = read(python=venv)
    assert layout.incomplete == "a.pth cannot be read: it is a folder"
    assert not observed.complete
    assert observed.notes == ("a.pth cannot be read: it is a folder",)


def test_a_pth_file_with_thousands_of_folders_is_cut_and_said(venv: Path, site: Path, tmp_path: Path) -> None:
    for number in range(520):
        (tmp_path / f"d{number}").mkdir()
    (site / "a.pth").write_text("".join(f"{tmp_path}/d{number}\n" for number in range(520)))
    layout = choose(str(venv), None, None, environ={}, cwd=str(tmp_path))
    assert len(layout.site_packages) == 500
    assert "500" in (layout.incomplete or "")


def test_an_editable_source_folder_holds_its_own_metadata(
    venv: Path, site: Path, tmp_path: Path, make_dist, read
) -> None:
    source = tmp_path / "src"
    (source / "mine.egg-info").mkdir(parents=True)
    (source / "mine.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.3\n")
    (site / "mine.egg-link").write_text(f"{source}\n.\n")
    (site / "easy-install.pth").write_text(f"{source}\n")
    _, _, facts = read(python=venv)
    assert facts["pkg.mine"] == "0.3"
    assert [item["editable"] for item in facts["dist"]] == [True]


def test_an_egg_named_by_a_pth_file_is_found(venv: Path, site: Path, read) -> None:
    egg = site / "six-1.16.0-py3.8.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: six\nVersion: 1.16.0\n")
    zipped = site / "docutils-0.20-py3.8.egg"
    zipped.write_bytes(b"PK")
    (site / "easy-install.pth").write_text("./six-1.16.0-py3.8.egg\n./docutils-0.20-py3.8.egg\n")
    _, _, facts = read(python=venv)
    assert (facts["pkg.six"], facts["pkg.docutils"]) == ("1.16.0", "0.20")
