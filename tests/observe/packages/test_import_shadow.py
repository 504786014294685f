"""What stands in front of installed packages: the working directory, PYTHONPATH and the user's site folder."""

import os
import sys
from pathlib import Path

import pytest
from observing import choose, observe, one, write
from rooms import observer
from tables import cases

from envdoctor.facts import ABSENT, Records, Unknown, Value

CASES = cases("import-shadow.toml")

import_shadow = observer("import_shadow")

TABLE = {"module": [{"module": "datasets", "name": "datasets"}, {"module": "sklearn", "name": "scikit-learn"}]}
TAKEN = [
    {"module": "random", "name": "python", "taken": [{"by": "datasets", "name": "Random"}]},
    {"module": "yaml", "name": "pyyaml", "taken": [{"by": "datasets", "name": "safe_load"}]},
]


def module(folder: Path, name: str, *, package: bool = True) -> Path:
    """A package or a module file that can be imported from the folder."""
    file = f"{name}/__init__.py" if package else f"{name}.py"
    return write(folder, {file: ""}) / file


def seen(layout, environ: dict[str, str], cwd: Path) -> Value:
    """What stands in front of the packages of an environment, where an import stops at PIL."""
    tables = {"stack-modules": TABLE["module"], "taken-modules": TAKEN, "entry-statements": [{"name": "trl"}]}
    rows = lambda name, part: tables[name]  # noqa: E731
    stop = {"module": "PIL.Image", "provider": "pillow"}
    facts = {"dist": observe(layout).seen.value("dist"), "link": Records((stop,))}
    return one(import_shadow, layout, facts, environ=environ, cwd=str(cwd), rows=rows).value


@pytest.fixture
def shadows(venv: Path, site: Path, tmp_path: Path, make_dist):
    """The records for a virtual environment with datasets 4.4.1, started from ``tmp_path / "run"``."""
    make_dist(site, "datasets", "4.4.1")
    module(site, "datasets")
    (tmp_path / "run").mkdir()

    def run(**environ: str):
        layout = choose(venv / "bin" / "python", environ=environ, cwd=tmp_path / "run")
        found = seen(layout, environ, tmp_path / "run")
        assert isinstance(found, Records)
        return list(found)

    return run


def test_a_package_in_the_working_directory_hides_the_installed_one(shadows, tmp_path):
    assert shadows() == []
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


@pytest.mark.parametrize(("files", "hiding"), CASES["working_directory_holds"])
def test_what_the_working_directory_holds_may_hide_it(shadows, tmp_path, files, hiding):
    write(tmp_path / "run", files)
    assert [item["path"] for item in shadows()] == [str(tmp_path / "run" / name) for name in hiding]


EDITABLE = '{"url": "file:///somewhere", "dir_info": {"editable": true}}'


@pytest.mark.parametrize(("file", "text"), [("datasets-4.4.1.dist-info/direct_url.json", EDITABLE), ("a.pth", "{}\n")])
def test_a_working_directory_that_packages_come_from_hides_none(shadows, site, tmp_path, file, text):
    module(tmp_path / "run", "datasets")
    (site / file).write_text(text.replace("{}", str(tmp_path / "run")))
    assert shadows() == []


def test_a_link_to_the_installed_package_hides_nothing(shadows, site, tmp_path):
    (tmp_path / "run" / "datasets").symlink_to(site / "datasets")
    assert shadows() == []


@pytest.mark.parametrize(
    ("listed", "text", "version", "differs"),
    [
        ("2.14.6", "", "2.14.6", True),
        ("4.4.1", "", "4.4.1", False),
        (None, "", ABSENT, Unknown("not both are of a known version")),
        (None, '__version__ = "2.14.0"\n', "2.14.0", True),  # a checkout without metadata says it itself
    ],
)
def test_another_one_on_pythonpath_hides_the_environments(shadows, tmp_path, make_dist, listed, text, version, differs):
    module(tmp_path / "cluster", "datasets").write_text(text)
    if listed is not None:
        make_dist(tmp_path / "cluster", "datasets", listed)
    (item,) = shadows(PYTHONPATH=f"/nowhere{os.pathsep}{tmp_path / 'cluster'}")
    assert (item["kind"], item["version"], item["hidden_version"]) == ("pythonpath", version, "4.4.1")
    assert item["differs"] == differs


def test_what_an_import_stops_at_may_lie_in_front(shadows, site, tmp_path, make_dist):
    for name, top in (("pillow", "PIL"), ("pyyaml", "yaml")):
        make_dist(site, name, "1.0")
        module(site, top)
        module(tmp_path / "libs", top)
    assert [item["package"] for item in shadows(PYTHONPATH=str(tmp_path / "libs"))] == ["pillow"]


def test_the_users_site_stands_in_front_of_a_conda_environment(tmp_path, make_dist):
    library = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    prefix, home = tmp_path / "conda", tmp_path / "home"
    write(prefix, {f"conda-meta/python-{library[6:]}.0-0.json": "{}", f"lib/{library}/os.py": "", "bin/x": ""})
    for base, version in ((prefix, "4.4.1"), (home / ".local", "2.14.6")):
        folder = base / "lib" / library / "site-packages"
        make_dist(folder, "datasets", version)
        module(folder, "datasets")
    (prefix / "bin" / "python").symlink_to(sys.executable)
    environ = {"HOME": str(home), "CONDA_PREFIX": str(prefix)}
    layout = choose(prefix, environ=environ)
    assert layout.kind == "conda"
    (item,) = seen(layout, environ, tmp_path)
    assert (item["kind"], item["version"], item["hidden_version"]) == ("user-site", "2.14.6", "4.4.1")
    quiet = {**environ, "PYTHONNOUSERSITE": "1"}
    assert seen(choose(prefix, environ=quiet), quiet, tmp_path) == Records(())


def test_a_folder_of_packages_alone_does_not_tell_what_is_in_front(bare, make_dist):
    make_dist(bare, "datasets", "4.4.1")
    layout = choose(path=bare)
    assert isinstance(seen(layout, {}, bare.parent), Unknown) is not layout.live


@pytest.mark.parametrize(("line", "hides"), CASES["line_pth_file"])
def test_a_line_of_a_pth_file_puts_an_old_checkout_first_a_folder_comes_behind(shadows, site, tmp_path, line, hides):
    module(tmp_path / "old", "datasets").write_text('__version__ = "2.14.0"\n')
    (site / "old.pth").write_text(line.replace("{old}", str(tmp_path / "old")))
    found = [(item["kind"], item["version"], item["hidden_version"]) for item in shadows()]
    assert found == ([("pth", "2.14.0", "4.4.1")] if hides else [])


@pytest.mark.parametrize(("text", "script", "package", "found"), CASES["script_beside_module"])
def test_a_script_beside_the_module_that_needs_the_installed_one_fails(
    shadows, tmp_path, site, make_dist, monkeypatch, text, script, package, found
):
    """trl is installed and takes Dataset."""
    make_dist(site, "trl", "0.23.0")
    taken = [{"by": "trl", "name": "Dataset", "through": ["SFTTrainer"]}]
    monkeypatch.setitem(TABLE["module"][0], "taken", taken)
    module(tmp_path / "run", "datasets", package=bool(package)).write_text(text)
    if isinstance(package, str):
        (tmp_path / "run" / "datasets" / package).write_text("")
    (tmp_path / "run" / "train.py").write_text(script)
    (item,) = shadows()
    assert (item["lacks"], item["asked_by"], item["script"]) == found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"random.py": "", "train.py": "import datasets\n"}, [("random", "random.Random", "datasets", "train.py")]),
        ({"random/__init__.py": "", "a.py": "import datasets\n"}, [("random", "random.Random", "datasets", "a.py")]),
        ({"yaml.py": "", "train.py": "import datasets\n"}, [("yaml", "yaml.safe_load", "datasets", "train.py")]),
        ({"random.py": "", "train.py": "import csv\n"}, [("random", "random.Random", "datasets", ABSENT)]),
        # what people begin with imports what it requires; of another package this is not known
        ({"random.py": "", "train.py": "from trl import x\n"}, [("random", "random.Random", "trl", "train.py")]),
        ({"random.py": "", "train.py": "import lazy\n"}, [("random", "random.Random", "datasets", ABSENT)]),
        ({"random.py": "class Random: ...\n", "train.py": "import datasets\n"}, []),
        ({"random/seeds.txt": "", "train.py": "import datasets\n"}, []),
        # modules of a package, which is started from above
        ({"random.py": "", "train.py": "import datasets\n", "__init__.py": ""}, []),
        ({"random.py": "", "train.py": "import datasets\nfrom .data import x\n"}, [ABSENT]),
        ({"random.py": "", "train.py": "import datasets\nfrom run.data import x\n"}, [ABSENT]),
    ],
)
def test_a_module_beside_a_script_that_an_import_takes_first(shadows, site, tmp_path, make_dist, files, found):
    make_dist(site, "pyyaml", "6.0")
    for name in ("trl", "lazy"):
        make_dist(site, name, "1.0", lines=["Requires-Dist: datasets>=3"])
    module(site, "yaml")
    write(tmp_path / "run", files)
    items = [tuple(item[key] for key in ("module", "lacks", "asked_by", "script")) for item in shadows()]
    assert (items if found != [ABSENT] else [item[-1] for item in items]) == found
