"""The folders packages are imported from, held against what real interpreters say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from observing import choose, write

HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}"
PRINT = "import sys, json, sysconfig; print(json.dumps([sys.path, sysconfig.get_paths()['stdlib']]))"


def real_path(python: Path, environ: dict[str, str], cwd: Path) -> list[str]:
    """What the interpreter itself imports from, without its standard library and the entry of -c."""
    done = subprocess.run([str(python), "-c", PRINT], env=environ, cwd=cwd, capture_output=True, text=True, check=True)
    entries, stdlib = json.loads(done.stdout)
    inner = (stdlib, os.path.join(stdlib, "lib-dynload"))
    return [os.path.normpath(entry) for entry in entries[1:] if os.path.isdir(entry) and entry not in inner]


def read_path(python: Path, environ: dict[str, str], cwd: Path) -> list[str]:
    return list(choose(python, environ=environ, cwd=cwd).site_packages)


def same_path(named: Path, cwd: Path, **environ: object) -> list[str]:
    """Hold what is read of an environment, or an interpreter, against what the interpreter says."""
    variables = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in environ.items()}}
    expected = real_path(named / "bin" / "python" if named.is_dir() else named, variables, cwd)
    expected = [path for path in dict.fromkeys(expected) if os.path.isdir(path)]
    assert read_path(named, variables, cwd) == expected
    return expected


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
    (site / "c.pth").write_text(f"{tmp_path / 'editable'}\nimport os, inner\nimport gone\n{tmp_path / 'hidden'}\n")
    (site / "note.txt").write_text(str(tmp_path / "hidden"))
    return site


@pytest.mark.usefixtures("busy_site")
def test_the_path_is_that_of_the_real_interpreter(venv: Path, home: Path, tmp_path: Path) -> None:
    assert len(same_path(venv, tmp_path, HOME=home)) == 5


def test_pythonpath_comes_first_and_may_be_relative(venv: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    found = same_path(venv, tmp_path, PYTHONPATH=f"two:{tmp_path / 'one'}:gone:two", HOME=tmp_path)
    assert found[:2] == [str(tmp_path / "two"), str(tmp_path / "one")]


#: How pyvenv.cfg may say whether the base's packages count; without a line they do.
SYSTEM_SITE = ["include-system-site-packages = true", "", "Include-System-Site-Packages = TRUE"]


@pytest.mark.parametrize("line", [*SYSTEM_SITE, "include-system-site-packages = yes"])
def test_a_venv_that_includes_its_base_imports_from_user_site_and_base(
    line: str, venv: Path, home: Path, tmp_path: Path
) -> None:
    settings = venv / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("include-system-site-packages = false", line))
    found = same_path(venv, tmp_path, HOME=home)
    user = str(home / ".local" / "lib" / HERE / "site-packages")
    assert (user in found, found[-1].startswith(sys.base_prefix)) == ((line in SYSTEM_SITE,) * 2)


def test_variables_leave_out_or_move_the_user_site(venv: Path, home: Path, tmp_path: Path) -> None:
    settings = venv / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
    assert not any(path.startswith(str(home)) for path in same_path(venv, tmp_path, HOME=home, PYTHONNOUSERSITE=1))
    assert str(home / ".local" / "lib" / HERE / "site-packages") in same_path(
        venv, tmp_path, HOME=tmp_path, PYTHONUSERBASE=home / ".local"
    )


@pytest.mark.parametrize(
    "python", [f"{sys.base_prefix}/bin/{HERE}", "/usr/bin/python3", "/bin/python3", "/usr/local/bin/python3"]
)
def test_the_base_and_the_system_python_are_laid_out_as_their_distribution_does(
    python: str, home: Path, tmp_path: Path
) -> None:
    if not os.path.exists(python):
        pytest.skip(f"no {python} here")
    same_path(Path(python), tmp_path, HOME=home)


def test_the_user_site_of_windows_is_below_appdata(tmp_path: Path) -> None:
    settings = "home = C:\\Python311\r\nversion = 3.11.9\r\ninclude-system-site-packages = true\r\n"
    site, user = "env/Lib/site-packages", "roaming/Python/Python311/site-packages"
    write(tmp_path, {"env/pyvenv.cfg": settings, f"{site}/x": "", f"{user}/x": ""})
    found = read_path(tmp_path / "env", {"APPDATA": str(tmp_path / "roaming")}, tmp_path)
    assert found == [str(tmp_path / site), str(tmp_path / user)]


def test_the_user_site_of_a_macos_framework_is_below_library(tmp_path: Path) -> None:
    prefix = tmp_path / "Python.framework/Versions/3.11"
    site, user = "lib/python3.11/site-packages", "home/Library/Python/3.11/lib/python/site-packages"
    write(prefix, {f"{site}/x": ""})
    write(tmp_path, {f"{user}/x": ""})
    assert read_path(prefix, {"HOME": str(tmp_path / "home")}, tmp_path) == [str(tmp_path / user), str(prefix / site)]


@pytest.mark.parametrize("file", ["zz.pth", "sitecustomize.py"])
@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.path.insert(0, 'A')",
        "import sys, os; sys.path.append('A')",
        "import sys; sys.path[:0] = ['A']",
        "import site; site.addsitedir('A')",
    ],
)
def test_folders_that_code_adds_lie_where_the_interpreter_has_them(
    venv: Path, site: Path, tmp_path: Path, code: str, file: str
) -> None:
    write(tmp_path, {"A/x": "", "given/x": "", "more/x": ""})
    code = code.replace("'A'", repr(str(tmp_path / "A")))
    (site / file).write_text(f"{code}\n")
    found = same_path(venv, tmp_path, HOME=tmp_path, PYTHONPATH=f"{tmp_path / 'given'}:{tmp_path / 'more'}")
    assert str(tmp_path / "A") in found


@pytest.mark.parametrize("shared", ["true", "false"])
def test_usercustomize_counts_where_the_user_site_does(venv: Path, site: Path, tmp_path: Path, shared: str) -> None:
    settings = venv / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("packages = false", f"packages = {shared}"))
    write(tmp_path, {"front/x": ""})
    (site / "usercustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path / 'front')!r})\n")
    assert (str(tmp_path / "front") in same_path(venv, tmp_path, HOME=tmp_path)) == (shared == "true")


def test_import_lines_are_recorded_and_not_run(venv: Path, site: Path, tmp_path: Path) -> None:
    line = f"import os; os.mkdir({str(tmp_path / 'ran')!r})"
    (site / "hook.pth").write_text(line + "\n")
    layout = choose(venv)
    assert ([one[:2] for one in layout.startup], layout.incomplete) == ([(str(site / "hook.pth"), line)], None)
    assert not (tmp_path / "ran").exists()


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
    assert layout.incomplete == observed.incomplete == "a.pth cannot be read: it is a folder"
    assert observed.notes == (layout.incomplete,)


def test_a_pth_file_with_thousands_of_folders_is_cut_and_said(venv: Path, site: Path, tmp_path: Path) -> None:
    for number in range(520):
        (tmp_path / f"d{number}").mkdir()
    (site / "a.pth").write_text("".join(f"{tmp_path}/d{number}\n" for number in range(520)))
    layout = choose(venv)
    assert len(layout.site_packages) == 500
    assert "500" in (layout.incomplete or "")


def test_an_editable_source_folder_holds_its_own_metadata(venv: Path, site: Path, tmp_path: Path, read) -> None:
    write(tmp_path, {"src/mine.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: mine\nVersion: 0.3\n"})
    write(site, {"mine.egg-link": f"{tmp_path}/src\n.\n", "easy-install.pth": f"{tmp_path}/src\n"})
    _, _, facts = read(python=venv)
    assert facts["pkg.mine"] == "0.3"
    assert [item["editable"] for item in facts["dist"]] == [True]


def test_an_egg_named_by_a_pth_file_is_found(venv: Path, site: Path, read) -> None:
    egg, zipped = "six-1.16.0-py3.8.egg", "docutils-0.20-py3.8.egg"
    info = "Metadata-Version: 1.2\nName: six\nVersion: 1.16.0\n"
    write(site, {f"{egg}/EGG-INFO/PKG-INFO": info, zipped: "PK", "easy-install.pth": f"./{egg}\n./{zipped}\n"})
    _, _, facts = read(python=venv)
    assert (facts["pkg.six"], facts["pkg.docutils"]) == ("1.16.0", "0.20")
