"""What stands in front of installed packages: the working directory, PYTHONPATH and the user's site folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from observing import choose, observe, one
from rooms import observer

from envdoctor.facts import ABSENT, Records, Unknown

import_shadow = observer("import_shadow")

TABLE = {"module": [{"module": "datasets", "name": "datasets"}, {"module": "sklearn", "name": "scikit-learn"}]}


def module(folder: Path, name: str, *, package: bool = True) -> Path:
    """A package or a module file that can be imported from the folder."""
    path = folder / name / "__init__.py" if package else folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


@pytest.fixture
def shadows(venv: Path, site: Path, tmp_path: Path, make_dist):
    """The records for a virtual environment with datasets 4.4.1, started from ``tmp_path / "run"``."""
    make_dist(site, "datasets", "4.4.1")
    module(site, "datasets")
    (tmp_path / "run").mkdir()

    def run(**environ: str):
        cwd = str(tmp_path / "run")
        layout = choose(str(venv / "bin" / "python"), None, None, environ=environ, cwd=cwd)
        fact = one(
            import_shadow, layout, observe(layout).seen, environ=environ, cwd=cwd, rows=lambda name, part: TABLE[part]
        )
        assert isinstance(fact.value, Records)
        return list(fact.value)

    return run


def test_an_empty_working_directory_hides_nothing(shadows):
    assert shadows() == []


def test_a_package_in_the_working_directory_hides_the_installed_one(shadows, tmp_path):
    module(tmp_path / "run", "datasets")
    assert shadows() == [
        {
            "module": "datasets",
            "kind": "working-directory",
            "package": "datasets",
            "hidden_version": "4.4.1",
            "version": ABSENT,
            "differs": Unknown("not both are of a known version"),
            "path": str(tmp_path / "run" / "datasets"),
            "lacks": ABSENT,
            "asked_by": ABSENT,
            "script": ABSENT,
        }
    ]


def test_a_module_file_does_so_too(shadows, tmp_path):
    module(tmp_path / "run", "datasets", package=False)
    assert [item["path"] for item in shadows()] == [str(tmp_path / "run" / "datasets.py")]


def test_a_folder_of_data_hides_nothing(shadows, tmp_path):
    (tmp_path / "run" / "datasets").mkdir()
    (tmp_path / "run" / "datasets" / "train.jsonl").write_text("{}")
    (tmp_path / "run" / "datasets" / "prepare.py").write_text("")
    assert shadows() == []


def test_what_is_not_installed_is_not_hidden(shadows, tmp_path):
    module(tmp_path / "run", "sklearn")
    assert shadows() == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\nname = "datasets"\nversion = "4.5.0.dev0"\n'),
        ("setup.py", 'from setuptools import setup\nsetup(name="datasets", version="4.5.0.dev0")\n'),
        ("setup.cfg", "[metadata]\nname = datasets\n"),
    ],
)
def test_the_source_of_the_package_itself_is_no_accident(shadows, tmp_path, file, text):
    module(tmp_path / "run", "datasets")
    (tmp_path / "run" / file).write_text(text)
    assert shadows() == []


def test_a_project_of_another_name_hides_it(shadows, tmp_path):
    module(tmp_path / "run", "datasets")
    (tmp_path / "run" / "pyproject.toml").write_text('[project]\nname = "datasets-for-me"\n')
    assert len(shadows()) == 1


def test_an_editable_install_is_meant_to_be_imported_from_its_source(shadows, site, tmp_path):
    module(tmp_path / "run", "datasets")
    info = site / "datasets-4.4.1.dist-info" / "direct_url.json"
    info.write_text('{"url": "file:///somewhere", "dir_info": {"editable": true}}')
    assert shadows() == []


def test_a_working_directory_on_the_import_path_is_where_packages_come_from(shadows, site, tmp_path):
    module(tmp_path / "run", "datasets")
    (site / "own.pth").write_text(f"{tmp_path / 'run'}\n")
    assert shadows() == []


def test_a_link_to_the_installed_package_hides_nothing(shadows, site, tmp_path):
    (tmp_path / "run" / "datasets").symlink_to(site / "datasets")
    assert shadows() == []


def test_another_installation_on_pythonpath_hides_the_environments(shadows, tmp_path, make_dist):
    make_dist(tmp_path / "cluster", "datasets", "2.14.6")
    module(tmp_path / "cluster", "datasets")
    (item,) = shadows(PYTHONPATH=f"/nowhere{os.pathsep}{tmp_path / 'cluster'}")
    assert (item["kind"], item["version"], item["hidden_version"]) == ("pythonpath", "2.14.6", "4.4.1")
    assert item["differs"] is True


def test_the_same_version_on_pythonpath_does_not_differ(shadows, tmp_path, make_dist):
    make_dist(tmp_path / "cluster", "datasets", "4.4.1")
    module(tmp_path / "cluster", "datasets")
    (item,) = shadows(PYTHONPATH=str(tmp_path / "cluster"))
    assert item["differs"] is False


def test_a_source_tree_on_pythonpath_has_no_version(shadows, tmp_path):
    module(tmp_path / "src", "datasets")
    (item,) = shadows(PYTHONPATH=str(tmp_path / "src"))
    assert item["version"] is ABSENT
    assert isinstance(item["differs"], Unknown)


def test_the_users_site_stands_in_front_of_a_conda_environment(tmp_path, make_dist):
    library = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    prefix, home = tmp_path / "conda", tmp_path / "home"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "conda-meta" / f"python-{library[6:]}.0-0.json").write_text("{}")
    for base, version in ((prefix, "4.4.1"), (home / ".local", "2.14.6")):
        folder = base / "lib" / library / "site-packages"
        make_dist(folder, "datasets", version)
        module(folder, "datasets")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(sys.executable)
    (prefix / "lib" / library / "os.py").write_text("")
    environ = {"HOME": str(home), "CONDA_PREFIX": str(prefix)}
    layout = choose(str(prefix), None, None, environ=environ, cwd=str(tmp_path))
    assert layout.kind == "conda"
    fact = one(
        import_shadow,
        layout,
        observe(layout).seen,
        environ=environ,
        cwd=str(tmp_path),
        rows=lambda name, part: TABLE[part],
    )
    (item,) = fact.value
    assert (item["kind"], item["version"], item["hidden_version"]) == ("user-site", "2.14.6", "4.4.1")
    quiet = {**environ, "PYTHONNOUSERSITE": "1"}
    layout = choose(str(prefix), None, None, environ=quiet, cwd=str(tmp_path))
    assert (
        list(
            one(
                import_shadow,
                layout,
                observe(layout).seen,
                environ=quiet,
                cwd=str(tmp_path),
                rows=lambda name, part: TABLE[part],
            ).value
        )
        == []
    )


def test_a_folder_of_packages_alone_does_not_tell_what_is_in_front(tmp_path, make_dist):
    make_dist(tmp_path / "packages", "datasets", "4.4.1")
    layout = choose(None, str(tmp_path / "packages"), None, environ={}, cwd=str(tmp_path))
    fact = one(
        import_shadow, layout, observe(layout).seen, environ={}, cwd=str(tmp_path), rows=lambda name, part: TABLE[part]
    )
    assert isinstance(fact.value, Unknown) is not layout.live


def test_a_checkout_without_metadata_says_its_version_itself(shadows, tmp_path):
    old = tmp_path / "old"
    module(old, "datasets")
    (old / "datasets" / "__init__.py").write_text('__version__ = "2.14.0"\n')
    (item,) = shadows(PYTHONPATH=str(old))
    assert (item["kind"], item["version"], item["differs"]) == ("pythonpath", "2.14.0", True)


@pytest.mark.parametrize(
    "line",
    [
        "import sys; sys.path.insert(0, '{old}')",
        "import sys; sys.__plen = len(sys.path)\n{old}\nimport sys; p=getattr(sys,'__egginsert',0); sys.__egginsert=p",
    ],
)
def test_a_line_of_a_pth_file_puts_an_old_checkout_first(shadows, site, tmp_path, line):
    old = tmp_path / "old"
    module(old, "datasets")
    (old / "datasets" / "__init__.py").write_text('__version__ = "2.14.0"\n')
    (site / "old.pth").write_text(line.replace("{old}", str(old)))
    (item,) = shadows()
    assert (item["kind"], item["version"], item["hidden_version"]) == ("pth", "2.14.0", "4.4.1")


def test_a_folder_that_a_pth_file_adds_behind_hides_nothing(shadows, site, tmp_path):
    module(tmp_path / "old", "datasets")
    (site / "old.pth").write_text(str(tmp_path / "old"))
    assert shadows() == []


LACKING = ("datasets.Dataset", "trl", "train.py")


def lacking(items):
    (item,) = items
    return item["lacks"], item["asked_by"], item["script"]


@pytest.fixture
def beside(tmp_path: Path, site: Path, make_dist, monkeypatch):
    """Write the module datasets and a script into the working directory; trl is installed and takes Dataset."""
    make_dist(site, "trl", "0.23.0")
    taken = [{"by": "trl", "name": "Dataset", "through": ["SFTTrainer"]}]
    monkeypatch.setitem(TABLE["module"][0], "taken", taken)

    def write(text: str, script: str, *, package: bool = False) -> None:
        module(tmp_path / "run", "datasets", package=package).write_text(text)
        (tmp_path / "run" / "train.py").write_text(script)

    return write


def test_a_script_beside_the_module_that_needs_the_installed_one_fails(shadows, beside):
    beside("x = 1\n", "from trl import SFTTrainer\n")
    assert lacking(shadows()) == LACKING


@pytest.mark.parametrize("text", ["class Dataset: ...\n", "from mine import *\n", "def __getattr__(name): ...\n"])
def test_a_module_that_may_have_the_name_is_not_said_to_lack_it(shadows, beside, text):
    beside(text, "from trl import SFTTrainer\n")
    assert lacking(shadows()) == (ABSENT, ABSENT, ABSENT)


@pytest.mark.parametrize(
    "script", ["import datasets\n", "from trl import ModelConfig\n", "# from trl import SFTTrainer\n"]
)
def test_a_script_that_needs_none_of_it_is_not_named(shadows, beside, script):
    beside("x = 1\n", script)
    assert lacking(shadows())[2] == ABSENT


def test_a_package_may_have_it_as_a_module_of_its_own(shadows, beside, tmp_path):
    beside("x = 1\n", "from trl import SFTTrainer\n", package=True)
    assert lacking(shadows()) == LACKING
    (tmp_path / "run" / "datasets" / "Dataset.py").write_text("")
    assert lacking(shadows()) == (ABSENT, ABSENT, ABSENT)
