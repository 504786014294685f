"""What ``--code`` reads, what is the project's own, what could not be read; and what installed files lack of it."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from observing import a_layout, one, values, write
from rooms import observer

from envdoctor.facts import ABSENT, Records, Value
from envdoctor.matrix import Matrix, load_toml
from envdoctor.observe import ObservationError, Request

observe = observer("use").observe


@pytest.fixture
def read(tmp_path: Path, matrix: Matrix) -> Callable[..., Mapping[str, Value]]:
    """Write files below a folder and observe the paths as somebody there would give them."""

    def observed(files: Mapping[str, str | bytes], *paths: str, cwd: str = "") -> Mapping[str, Value]:
        write(tmp_path, files)
        return values(observe(Request({}, cwd=str(tmp_path / cwd), code=paths, rows=matrix.rows)))

    return observed


def uses(facts: Mapping[str, Value]) -> dict[str, tuple[str, ...]]:
    """Places by dotted name."""
    found = facts["use"]
    assert isinstance(found, Records)
    names = ((item["module"], item["name"]) for item in found)
    dotted = [".".join(str(part) for part in name if part is not ABSENT) for name in names]
    return dict(zip(dotted, (item["place"] for item in found), strict=True))  # type: ignore[arg-type]


def unread(facts: Mapping[str, Value]) -> dict[str, tuple[str, bool]]:
    found = facts["code_unread"]
    assert isinstance(found, Records)
    return {str(item["place"]): (str(item["reason"]), bool(item["named"])) for item in found}


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]})


def test_a_script_a_folder_and_a_notebook(read: Any):
    files = {"train.py": "import peft", "more/a.py": "\nimport peft", "nb.ipynb": notebook("x = 1", "\nimport trl")}
    facts = read(files, "train.py", "more", "nb.ipynb")
    assert uses(facts) == {"peft": ("train.py:1", "more/a.py:2"), "trl": ("nb.ipynb:cell 2:2",)}
    assert facts["code.files"] == ("train.py", "more/a.py", "nb.ipynb")
    assert unread(facts) == {} and facts["use"].incomplete is None


def test_a_file_is_read_once(read: Any):
    assert uses(read({"a/train.py": "import peft"}, "a/train.py", "a")) == {"peft": ("a/train.py:1",)}


def test_code_of_others_in_a_folder_is_passed_over(read: Any):
    folders = (".git", "__pycache__", "env/lib/site-packages", "node_modules", "venv", "kit/tests")
    others = {f"{folder}/x.py": "import trl" for folder in folders}
    marks = {"venv/pyvenv.cfg": "", "kit/setup.py": ""}
    assert list(uses(read({**others, **marks, "train.py": "import peft"}, "."))) == ["peft"]


@pytest.mark.parametrize(
    ("script", "source", "others", "path", "names"),
    [
        ("a/train.py", "import utils, data.x, peft", ["a/utils.py", "a/data/x.py"], "a/train.py", ["peft"]),
        # a file beside the script hides a distribution of its name; a folder of it, or a file elsewhere, does not
        ("a/train.py", "import datasets", ["a/datasets.py"], "a/train.py", []),
        ("a/train.py", "import datasets", ["a/datasets/data.csv"], "a", ["datasets"]),
        ("a/train.py", "import datasets", ["a/datasets/read.py"], "a", ["datasets"]),
        ("a/train.py", "import datasets", ["a/deeper/datasets.py"], "a", ["datasets"]),
        # modules of a package are no top-level modules of its siblings
        ("kit/a.py", "import datasets, kit.datasets", ["kit/__init__.py", "kit/datasets.py"], ".", ["datasets"]),
        # up to the root of the project
        (
            "scripts/x/train.py",
            "import kit, tools, peft",
            ["pyproject.toml", "kit/__init__.py", "src/tools/__init__.py"],
            "scripts/x/train.py",
            ["peft"],
        ),
    ],
)
def test_modules_of_the_project_are_its_own(read: Any, script, source, others, path, names):
    assert list(uses(read({**dict.fromkeys(others, ""), script: source}, path))) == names


def test_links_to_folders_are_not_followed(read: Any, tmp_path: Path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert list(uses(read({"inside/a.py": "import peft", "b.py": "import trl"}, "inside"))) == ["peft"]


def test_what_one_file_defines_another_may_call(read: Any):
    source = "def f():\n    import a\ndef g():\n    import b\n"
    facts = read({"lib.py": source, "main.py": "from lib import f\nf()"}, ".")
    reach = {str(item["module"]): item["reach"] for item in facts["use"]}
    assert reach == {"a": "call", "b": "unused"}


def test_what_one_file_provides_is_there_for_all(read: Any):
    facts = read({"a.py": "import numpy as np\nnp.float = float", "b.py": "import numpy\nnumpy.float"}, ".")
    assert {item["guarded"] for item in facts["use"] if item["name"] == "float"} == {True}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.py", "print 'x'", "not Python that this interpreter can parse (line 1)"),
        ("x.py", "name = f\"{row['k']}\" f'{a[k}'", "not Python that"),
        ("x.py", b"a = 1\0", "not Python"),
        ("x.py", b"# coding: no-such\nimport a", "not Python"),
        ("x.py", b"\xff\xfe\x00import a", "not Python"),
        ("x.py", "(" * 5000, "not Python"),
        ("x.py", "x = " + "-" * 100_000 + "1", ""),
        ("x.py", b"#" * (3 << 20), "larger than 2 MiB"),
        ("x.py", "import a\n" + "a.b\n" * 30_000, "too much code"),
        ("x.ipynb", "import a", "not a notebook"),
        ("x.ipynb", "[" * 100_000, ""),
        ("x.ipynb", '{"cells": 1}', "not a notebook"),
    ],
)
def test_what_cannot_be_read_is_said(read: Any, name: str, content: str | bytes, reason: str):
    facts = read({name: content, "good.py": "import peft"}, name, "good.py")
    assert list(uses(facts)) == ["peft"]
    ((place, (why, named)),) = unread(facts).items()
    assert place == name and reason in why and named
    assert facts["use"].incomplete.startswith(f"{name}: ")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="reads it")
@pytest.mark.parametrize(
    "line",
    [
        "type A = int",
        "async def f[T](x: T): pass",
        "class A[T]: pass",
        'name = f"{model_name.split("/")[-1]}"',
        "name = rf'{{ {a} {row['k']}'",
        "name = f'{chr(10).join(a)} {\"\\n\".join(a)}'",
    ],
)
def test_a_form_of_python_3_12_asks_for_that_python(read: Any, line: str):
    ((_, (why, _)),) = unread(read({"x.py": f"import a\n{line}\n", "b.py": "import b"}, ".")).items()
    assert "needs Python 3.12 or newer (line 2): run envdoctor with such a Python" in why


def test_a_cell_that_cannot_be_read_costs_that_cell(read: Any):
    facts = read({"x.ipynb": notebook("import peft", "print 'x'")}, "x.ipynb")
    assert list(uses(facts)) == ["peft"] and list(unread(facts)) == ["x.ipynb:cell 2:1"]


def test_a_pipe_in_a_folder_is_passed_over(read: Any, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.py")
    assert list(uses(read({"a.py": "import peft"}, "."))) == ["peft"]


@pytest.mark.parametrize(
    ("path", "why"),
    [("gone.py", "not found"), ("notes.txt", "neither a folder"), ("empty", "no Python file"), ("", "no Python file")],
)
def test_paths_without_code_are_refused(read: Any, tmp_path: Path, path: str, why: str):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ObservationError, match=why):
        read({"notes.txt": "", "data/x.csv": ""}, path)


def test_names_with_control_characters_are_escaped(read: Any):
    facts = read({"a\x1b[31m.py": "import peft"}, ".")
    assert uses(facts)["peft"] == ("a\\x1b[31m.py:1",)


TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "source" / "lacking.toml")
#: What a script says, and what of it the files lack: ABSENT for nothing, None where that cannot be told.
CASES: dict[str, Value | None] = {
    script: {"absent": ABSENT, "?": None}.get(lacks, lacks) for script, lacks in TABLE["case"]
}


def lacking(folder: Path, scripts: list[str], incomplete: str | None = None) -> list[Value | None]:
    """What each script lacks of the packages in the folder."""
    write(folder, {f"scripts/s{number}.py": script for number, script in enumerate(scripts)})
    layout = a_layout(folder, folder / "site", incomplete=incomplete)
    uses = one(observer("use"), layout, {"dist": Records(())}, code=("scripts",), cwd=str(folder)).value
    assert isinstance(uses, Records)
    found: dict[int, Value | None] = {}
    for item in uses:
        for place in item["place"]:
            number = int(place.partition(".")[0].rpartition("/s")[2])
            found[number] = item.get("lacks") if found.get(number, ABSENT) is ABSENT else found[number]
    return [found[number] for number in range(len(scripts))]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Value | None]:
    folder = tmp_path_factory.mktemp("lacking")
    write(folder / "site", TABLE["files"])
    return dict(zip(CASES, lacking(folder, list(CASES)), strict=True))


@pytest.mark.parametrize("script", CASES)
def test_what_a_script_uses_is_there_or_lacking_or_cannot_be_told(found: Mapping[str, Value | None], script: str):
    assert found[script] == CASES[script]


def test_a_module_of_an_environment_that_is_not_wholly_known_is_not_missing(tmp_path: Path):
    assert lacking(tmp_path, ["import nowhere"]) == ["nowhere"]
    (tmp_path / "more").mkdir()
    assert lacking(tmp_path / "more", ["import nowhere"], "a folder cannot be read") == [None]


def test_a_method_overrides_that_of_a_base_class_behind_a_class_of_another_file(read: Any):
    """Two classes of one name leave open which is meant."""
    files = {
        "base.py": "import trl\nclass A(trl.B): ...",
        "a.py": "from base import A as C\nclass D(C):\n def f(self, x): ...",
    }
    found = {item["name"]: item["parameters"] for item in read(files, ".")["use"] if item["kind"] == "override"}
    assert found == {"B.f": ("x",)}
    facts = read({**files, "other.py": "class A: ..."}, ".")
    assert not [item for item in facts["use"] if item["kind"] == "override"]
