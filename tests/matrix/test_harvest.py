"""The ledger is made by one command, from what an index has; made again it has the same bytes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harvesting.kept import _merged
from harvesting.ledger_format import complaints_of_folder
from harvesting.metadata import installed, modules, required
from harvesting.releases import File, chosen, released
from harvesting.selecting import selected
from harvesting.writing import history
from small_index import SmallIndex

from envdoctor.facts import Unknown
from envdoctor.matrix import PACKED, Ledger, Released, load_toml, parse_toml

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """listed = 2018-01-01
since = 2023-01-01
names = ["spade", "rake", "peft"]
metadata = []
packed = ["bucket"]
patches = { rake = "last" }
reading = { thin = ["spade.models"], lean = ["rake"], unlisted = [], surface = [], private = ["_dig_deep"] }
selection = { shallow = [], deep = [], compact = [], methods = ["spade"], subclassed = ["spade"], unaliased = [], \
platforms = ["s390x"], sparse = [], uncalled = [], bare = [] }
"""
OLD = {
    "spade/__init__.py": "from .handles import Handle, HandleConfig\nfrom .digging import dig, old_dig\n",
    "spade/handles.py": (
        "from dataclasses import dataclass\nimport os, numpy\nfrom .digging import dig\n"
        "class _Base:\n    def __init__(self, length): ...\n    def grip(self, far): self.grip(1)\n"
        "class Handle(_Base):\n    def __init__(self, length): self.turn(1)\n    def turn(self, by, hard=False): ...\n"
        "@dataclass\nclass HandleConfig:\n    length: int = 1\n"
    ),
    "spade/digging.py": "def dig(ground): ...\ndef old_dig(): ...\ndef _dig_deep(): ...\ndef _hidden(): ...\n",
    "spade/checks.py": "pkgs_to_check_at_runtime = ['python', 'torch', 'tqdm']\nrequire_version('numpy>=1.17,<2')\n",
    "spade/dependency_versions_table.py": "deps = {'python': 'python>=3.8', 'torch': 'torch>=2', 'tqdm': 'tqdm'}\n",
    "spade/models/one.py": "from ..handles import Handle\nclass One(Handle): ...\n",
    "spade/tests/test_one.py": "class Test: ...\n",
    "spade/_fast.cpython-311-x86_64-linux-gnu.so": "",
}
NEW = {
    **OLD,
    "spade/__init__.py": "from .handles import Handle, HandleConfig\nfrom .digging import dig\n",
    "spade/handles.py": OLD["spade/handles.py"]
    .replace("length: int = 1", "size: int = 1")
    .replace("turn(1)", "turn(1, hard=2)"),
    "spade/digging.py": "def dig(ground, *, fast=False): ...\n",
    "spade/extras.py": "def old_dig(): ...\n",
}


RAKE = {
    "src/rake/__init__.py": "teeth = 9\nfrom spade import dig\nfrom .tines import tine\n",
    "src/rake/tines.py": "from . import teeth\ndef tine(): ...\n",
}
#: A package that people import by statements of the shipped table.
USER = {
    "peft/__init__.py": (
        "import importlib.util\nimport numpy\nfrom spade import dig, old_dig\nfrom .config import LoraConfig\n"
        "if importlib.util.find_spec('rake'):\n    import rake\n"
        "try:\n    from spade import maybe\nexcept ImportError:\n    pass\n"
    ),
    "peft/config.py": "import spade.handles\nclass LoraConfig: ...\n",
}


@contextmanager
def small_index() -> Iterator[SmallIndex]:
    """Three packages, one of them with sdists alone."""
    with SmallIndex() as index:
        for name in ("spade-0.9.0.tar.gz", "spade-1.1.0rc1-py3-none-any.whl", "spade-notes.txt"):
            index._add(name, b"", "2022-12-31", {})
        wheel = {"requires": ("NumPy (>=1.17)", "torch<3,>=2; python_version >= '3.9'", "pytest; extra == 'test'")}
        index.wheel("spade", "1.0.0", "2023-01-05", OLD, **wheel, **{"requires-python": ">=3.8"})
        index.wheel("spade", "1.0.1", "2023-02-05", {"spade/broken.py": "x"}, yanked="broken")
        index.wheel("spade", "1.0.2", "2023-03-05", OLD, **wheel, **{"requires-python": ">=3.5.*"})
        index.wheel("spade", "1.1.0", "2023-04-05", NEW, requires=("numpy>=2",))
        egg = {"rake.egg-info/requires.txt": "spade==1.0.3\ntorch\n\n[:python_version<'3.9']\nold\n\n[test]\npytest\n"}
        index.sdist("rake", "0.1.0", "2023-01-05", {"rake/__init__.py": ""})
        index.sdist("rake", "0.1.1", "2023-01-06", {**RAKE, "setup.py": "", **egg})
        index.wheel("peft", "0.17.0", "2024-01-05", USER, requires=("spade",))
        for tag in ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-win_amd64", "cp311-cp311-manylinux_2_28_s390x"):
            index.wheel("bucket", "3.0", "2024-01-05", {"pail.py": "volume = 9"}, tags=tag)
        yield index


def harvest(index: SmallIndex, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the documented command; the ledger is written to ``ledger`` below the folder."""
    (folder / "settings.toml").write_text(SETTINGS)
    environ = {key: value for key, value in os.environ.items() if not key.upper().startswith("PIP_")}
    environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index.url, "PIP_RETRIES": "0", "PYTHONPATH": str(ROOT)}
    environ |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    command = [sys.executable, str(ROOT / "tools" / "harvest.py"), "--work", str(folder / "work")]
    options = ["--ledger", str(folder / "ledger"), "--settings", str(folder / "settings.toml")]
    return subprocess.run([*command, *options, *arguments], env=environ, capture_output=True, text=True, check=False)


def written(folder: Path) -> dict[str, bytes]:
    """The files of the ledger."""
    return {path.name: path.read_bytes() for path in sorted((folder / "ledger").iterdir())}


@pytest.fixture
def index() -> Iterator[SmallIndex]:
    """An index that nobody has harvested."""
    with small_index() as index:
        yield index


class First(NamedTuple):
    """A harvest of everything: the folder of it, the index, and what was asked of that."""

    folder: Path
    index: SmallIndex
    asked: list[str]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    """Tests read the folder and leave it as it is."""
    folder = tmp_path_factory.mktemp("first")
    with small_index() as index:
        done = harvest(index, folder)
        assert done.returncode == 0, done.stderr
        yield First(folder, index, list(index.asked))


@pytest.fixture
def spade(first: First) -> Released:
    """A package as the harvest wrote it."""
    assert list(complaints_of_folder(first.folder / "ledger")) == []
    found = Ledger(first.folder / "ledger").package("spade")
    assert found is not None
    return found


def test_a_harvest_writes_what_the_files_say(spade: Released, first: First):
    assert [release[:6] for release in spade.releases] == [
        ("0.9.0", "2022-12-31", "", False, False, False),
        ("1.0.0", "2023-01-05", ">=3.8", True, True, False),
        ("1.0.1", "2023-02-05", "", False, True, True),
        ("1.0.2", "2023-03-05", "", True, True, False),
        ("1.1.0", "2023-04-05", "", True, True, False),
    ]
    assert spade.items("requires", "*", "1.0.0") == ("numpy>=1.17", 'torch<3,>=2; python_version >= "3.9"')
    assert spade.items("wheels", "*", "0.9.0") == ("sdist",)
    assert spade.modules == ("spade",)
    assert spade.items("offers", "spade", "1.0.1") == ("Handle", "HandleConfig", "dig", "old_dig")
    assert spade.items("offers", "spade.handles", "1.0.0") == ("Handle", "HandleConfig", "dig")
    assert spade.items("offers", "spade.digging", "1.0.0") == ("_dig_deep", "dig", "old_dig")
    assert spade.items("offers", "spade.models.one", "1.0.0") == ("One",)
    assert spade.items("offers", "*", "1.0.0") == ("Handle", "dataclass", "numpy", "os")
    assert spade.listed("offers", "spade.tests.test_one", "1.0.0") is False
    assert spade.items("open", "spade._fast", "1.0.0") == ("it is compiled",)
    assert spade.items("parameters", "spade.handles:HandleConfig", "1.0.0") == ("length",)
    assert spade.items("parameters", "spade.handles:HandleConfig", "1.1.0") == ("size",)
    assert spade.items("parameters", "spade.digging:dig", "1.1.0") == ("fast", "ground")
    assert spade.items("parameters", "spade.handles:Handle.turn", "1.1.0") == ("by", "hard")
    assert spade.items("alias", "spade:dig", "1.0.0") == ("spade.digging:dig",)
    assert spade.items("calls", "spade.handles:Handle.turn", "1.0.0") == ("1",)
    assert spade.items("calls", "spade.handles:Handle", "1.0.0") == ("&spade.handles:_Base",)
    assert spade.items("calls", "spade.handles:_Base.grip", "1.0.0") == ("1",)
    assert spade.items("parameters", "spade.handles:_Base", "1.0.0") == ("length",)
    assert spade.items("calls", "spade.handles:Handle.turn", "1.1.0") == ("1 hard=",)
    assert spade.items("demands", "*", "1.0.0") == ("numpy>=1.17,<2 @spade.checks", "torch>=2 @spade.checks")
    assert spade.having("moved", "spade.digging:old_dig", item="spade.extras:old_dig").versions == ["1.1.0"]
    rake, bucket = (Ledger(first.folder / "ledger").package(name) for name in ("rake", "bucket"))
    assert rake is not None and bucket is not None
    # there is no spade 1.0.3 any more
    assert [(release.read, release.yanked) for release in rake.releases] == [(False, False), (True, True)]
    assert rake.items("requires", "*", "0.1.1") == ('old; python_version < "3.9"', "spade==1.0.3", "torch")
    assert rake.items("offers", "rake", "0.1.1") == ("dig", "teeth", "tine")
    assert rake.items("offers", "rake.tines", "0.1.1") == ("tine",)
    assert bucket.modules == ("pail",) and not bucket.by_names
    assert Ledger(first.folder / "ledger").packages() == ("peft", "rake", "spade")  # bucket shares a file
    assert bucket.items("wheels", "*", "3.0") == ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-win_amd64")
    # names that are not recorded are unknown
    assert spade.offers("spade.handles", "os", "1.0.0") == Unknown("the ledger does not say from where os can be taken")
    assert isinstance(spade.offers("spade.handles", "_private", "1.0.0"), Unknown)
    assert spade.offers("spade.handles", "Other", "1.0.0") is False
    assert spade.offers("spade.digging", "_dig_deep", "1.1.0") is False


def test_what_a_release_takes_of_others_is_written_by_what_people_import(first: First):
    peft = Ledger(first.folder / "ledger").package("peft")
    assert peft is not None
    assert peft.items("takes", "peft", "0.17.0") == ("spade @peft", "spade:old_dig @peft")  # the rest all have
    assert peft.items("takes", "peft:LoraConfig", "0.17.0") == ()


def test_the_same_again_asks_for_nothing_and_has_the_same_bytes(first: First, tmp_path: Path):
    index, folder, before = first.index, tmp_path / "again", written(first.folder)
    whole = [asked for asked in first.asked if not asked.endswith(".whl")]  # wheels are read by ranges
    assert len(whole) == len(set(whole)) == 6
    shutil.copytree(first.folder, folder)
    index.asked.clear()
    assert harvest(index, folder, "spade", "rake").returncode == 0
    assert written(folder) == before and index.asked == []
    index.wheel("spade", "1.2.0", "2023-05-05", NEW)
    assert harvest(index, folder, "spade", "--fresh").returncode == 0
    assert {asked.rpartition("/")[2] for asked in index.asked} == {"", "spade-1.2.0-py3-none-any.whl"}
    assert b"\n1.2.0\t2023-05-05\t.\tmr\n" in written(folder)["spade.txt"]


def test_an_interrupted_harvest_goes_on_where_it_was(first: First, index: SmallIndex, tmp_path: Path):
    index.broken = r"spade-1\.1\.0-|rake-0\.1\.1"
    stopped = harvest(index, tmp_path)
    assert stopped.returncode == 1 and "start again to go on from here" in stopped.stderr
    assert not (tmp_path / "ledger" / "spade.txt").exists()
    index.broken, index.asked[:] = "", []
    assert harvest(index, tmp_path).returncode == 0
    assert written(tmp_path) == written(first.folder)
    assert not any("/spade/" in asked or "spade-1.0." in asked for asked in index.asked)


def test_a_package_that_nobody_listed_is_refused(index: SmallIndex, tmp_path: Path):
    done = harvest(index, tmp_path, "shovel")
    assert done.returncode == 2 and "shovel is not in" in done.stderr and index.asked == []


def test_the_shipped_settings_name_each_package_once():
    settings = load_toml(ROOT / "tools" / "harvest.toml")
    known = [*settings["names"], *settings["metadata"], *settings["packed"]]
    assert len(known) == len(set(known)) and sorted(known) == [*Ledger(ROOT / "matrices" / "ledger").every()]
    changes = {path.stem for path in (ROOT / "matrices" / "ledger").glob("*.xz")} - {Path(PACKED).stem}
    assert changes == set(settings["changes"]["packages"]) <= set(known)
    assert set(settings["patches"]) <= set(known) and set(settings["patches"].values()) <= {"all", "last"}
    tried = parse_toml(SETTINGS.encode(), "")
    assert all(settings[part].keys() == tried[part].keys() for part in ("reading", "selection"))


def kept(offers: dict[str, Any], opened: Mapping[str, Any], /, *, parts: Mapping[str, Any], **settings: Any) -> Any:
    """What the ledger keeps of modules and names, by settings; other ``parts`` go by their names."""
    nothing = dict.fromkeys(load_toml(ROOT / "tools" / "harvest.toml")["selection"], ())
    found = {"offers": offers, "open": opened, "parameters": {}, "calls": {}, "alias": {}, **parts}
    return selected(found, {**nothing, **settings})


UNLISTED = ["not all modules of the package are listed here"]
NAMELESS = ["its names are not listed here"]


def test_what_the_ledger_has_no_room_for_is_left_out_and_said():
    offers = {name: ["x"] for name in ("a", "a.b", "a.b.c", "a.b.deep", "a.kinds.one", "a.kinds.one.code")}
    offers, opened = {**offers, "a.kinds": []}, {"a.b.c": ["it is compiled"]}
    parts = {"parameters": {"a:C": ["x"], "a:C.m": ["x"], "b:C.m": ["x"]}, "calls": {"a:C.m": ["1"], "b:C.m": ["1"]}}
    parts |= {"alias": {"a:C": ["a.b:C"], "a.b:D": ["a.c:D"]}}
    settings = {"shallow": ["a"], "deep": ["a.b.deep"], "compact": ["a.kinds"], "methods": ["b"], "subclassed": ["a"]}
    found = kept(offers, opened, parts=parts, **settings, unaliased=["a.b"])
    assert found["offers"] == {**{name: ["x"] for name in ("a", "a.b", "a.b.deep")}, "a.kinds": [], "a.kinds.one": []}
    assert found["open"] == {"a.*": UNLISTED, "a.kinds.one": NAMELESS}
    assert [list(found[part]) for part in ("parameters", "calls", "alias")] == [["a:C", "b:C.m"], ["a:C.m"], ["a:C"]]
    assert len(offers) == 7 and opened  # they are left as they are


def test_of_a_sparse_package_the_names_of_its_packages_are_listed():
    offers = {"*": ["List", "join"], "a": ["x"], "a.b": ["y"], "a.b.c": ["z"], "a.d": ["z"], "a.e.f": ["z"]}
    parts = {"parameters": {"a:x": ["p"]}, "alias": {"a:x": ["a.d:x"]}}
    found = kept(offers, {"a.d": ["it is compiled"]}, parts=parts, sparse=["a"])
    assert found["offers"] == {"*": ["List"], "a": ["x"], "a.b": ["y"], "a.d": []}
    assert found["open"] == {"a.d": NAMELESS, "a.*": UNLISTED}
    assert found["parameters"] == found["alias"] == {}


def test_of_a_bare_package_it_is_said_that_it_is_there():
    parts = {"parameters": {f"{name}:x": ["p"] for name in "abc"}, "alias": {"a:x": ["a.b:x"]}}
    offers = {"*": ["List"], "a": ["x"], "a.b": ["y"], "b": ["x"]}
    found = kept(offers, {"a.b": ["it is compiled"]}, parts=parts, bare=["a"], uncalled=["c"])
    assert found["offers"] == {"a": [], "b": ["x"]} and found["open"].keys() == {"a", "a.*"}
    assert list(found["parameters"]) == ["b:x"] and found["alias"] == {}


def file(name: str, day: str = "2024-01-01", *, yanked: bool = False) -> File:
    """A file as the index lists it."""
    return File(name, f"https://a.b/{name}", 1, "", day, yanked, False)


def test_first_and_last_patches_of_minors_are_chosen():
    names = [f"a-{version}.tar.gz" for version in ("1.0", "1.0.1", "1.0.2", "1.1", "2.0", "2.0.1", "1.0.3rc1")]
    releases = released([*map(file, names), file("a-0.9.tar.gz", "2022-01-01"), file("a-2.0.2.tar.gz", yanked=True)])

    wanted = {
        "ends": "1.0 1.0.2 1.1 2.0 2.0.1",
        "last": "1.0.2 1.1 2.0.1",
        "all": "1.0 1.0.1 1.0.2 1.1 2.0 2.0.1 2.0.2",
    }
    for patches, versions in wanted.items():
        assert [str(one.version) for one in chosen(releases, "2023-01-01", patches)] == versions.split()


def test_a_release_is_read_from_a_pure_wheel_or_one_for_linux():
    names = ["a-1-cp39-cp39-win_amd64.whl", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "a-1.tar.gz"]
    assert [found.name for found in released(map(file, names))[0].files] == [names[1], names[0], names[2]]
    assert released(map(file, [*names, "a-1-py3-none-any.whl"]))[0].files[0].name == "a-1-py3-none-any.whl"


def test_histories_have_a_line_for_each_span():
    found = [{"m": {"a", "b"}}, {"m": {"a"}, "n": set()}, {"m": {"a", "b", "c"}}, {"m": {"b", "c"}}]
    assert list(history(["1", "2", "3", "4"], found)) == ["m\tA..A\tb", "m\tA..C\ta", "m\tC..\tb\tc", "n\tB..B"]
    assert list(history(["1", "2"], [{}, {"m": set()}])) == ["m\tB.."]
    assert list(history([], [])) == []


def test_requirements_are_written_in_one_way():
    text = "Requires-Dist: Flash_Attn (>=2.0,<3)\nRequires-Dist: b; extra == 'x'\nRequires-Dist: ???\nName: c\n"
    text += "Requires-Dist: D>1; python_version>'3' and extra == 'x'\nRequires-Dist: e; python_version < '3.9'\n"
    here = {"flash-attn<3,>=2.0", 'e; python_version < "3.9"'}
    assert required(text) == {"*": here}
    assert required(text, ["x", "y"]) == {"*": here, "x": {"b"}, "y": set()}


def test_modules_are_what_a_release_installs():
    names = ["a/__init__.py", "b.py", "c.cpython-311.so", "d/data.json", "a-1.dist-info/METADATA", "tests/x.py"]
    assert modules([*names, "a-1.data/purelib/e/f.py", "src/g/__init__.py", "README.md"]) == {"a", "b", "c", "e", "g"}
    assert installed("a-1.data/purelib/e/f.py") == "e/f.py" and installed("a/src/b.py") == "a/src/b.py"


def test_members_that_lie_near_each_other_are_fetched_together():
    assert list(_merged(iter([(0, 10), (11, 20), (5_000_000, 5_000_010)]))) == [(0, 20), (5_000_000, 5_000_010)]
    assert list(_merged(iter([]))) == []
