"""``--code``: what the user's own scripts and notebooks use, against installed releases, before anything runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """import numpy as np
from datasets import load_dataset, load_metric

def main():
    metric = load_metric("accuracy")
    labels = np.array([1, 2], dtype=np.float)

if __name__ == "__main__":
    main()
"""


def written(tmp_path: Path, name: str, content: str) -> str:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content)
    return name


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4})


@pytest.fixture
def judged(run: Any, facts_file: Any, tmp_path: Path) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """The exit code and the findings about the code ``content`` with packages of these versions."""

    def check(content: str, packages: Mapping[str, str], name: str = "train.py") -> tuple[int, list[dict[str, Any]]]:
        given = facts_file({f"pkg.{package}": version for package, version in packages.items()})
        code = written(tmp_path, name, content)
        result = run("check", "--facts", given, "--code", code, "--format", "json")
        return result.code, [finding for finding in result.json["findings"] if finding["id"].startswith("use-")]

    return check


def test_names_that_went_are_named_with_their_lines_and_new_places(judged: Any):
    code, findings = judged(SCRIPT, {"datasets": "3.0.0", "numpy": "1.26.4"})
    assert code == 1
    said = {finding["message"]: [place["line"] for place in finding["locations"]] for finding in findings}
    metric = next(message for message in said if "load_metric" in message)
    number = next(message for message in said if "numpy.float" in message)
    assert "datasets 3.0.0" in metric and "evaluate.load" in metric and said[metric] == [2]
    assert "numpy 1.26.4" in number and said[number] == [6]
    assert all(finding["severity"] == "error" and finding["gate"] for finding in findings)


def test_releases_that_still_have_them_are_content(judged: Any):
    assert judged(SCRIPT, {"datasets": "2.14.0", "numpy": "1.23.5"}) == (0, [])


def test_what_the_code_provides_for_is_not_told(judged: Any):
    guarded = (
        "try:\n    from datasets import load_metric\nexcept ImportError:\n    from evaluate import load as load_metric"
    )
    assert judged(guarded, {"datasets": "3.0.0"}) == (0, [])


def test_a_function_that_nothing_calls_only_warns(judged: Any):
    code, findings = judged("def f():\n    from datasets import load_metric\n", {"datasets": "3.0.0"})
    assert code == 0 and [finding["severity"] for finding in findings] == ["warning"]


def test_a_notebook_names_the_cell(judged: Any):
    cells = ("!pip install datasets", "x = 1\nfrom datasets import load_metric")
    _, (finding,) = judged(notebook(*cells), {"datasets": "3.0.0"}, "train.ipynb")
    assert finding["locations"] == [{"path": "train.ipynb", "line": 2, "cell": 2}]


def test_a_person_reads_where_and_what(run: Any, facts_file: Any, tmp_path: Path):
    code = written(tmp_path, "train.py", SCRIPT)
    result = run("check", "--facts", facts_file({"pkg.datasets": "3.0.0", "pkg.numpy": "1.23.5"}), "--code", code)
    lines = result.out.splitlines()
    assert "Code         train.py" in lines
    assert "error[use-name-moved]" in lines and "  --> train.py:2" in lines
    assert "datasets 3.0.0 has no datasets.load_metric; instead: evaluate.load" in result.out


def test_a_facts_file_carries_the_uses_to_another_machine(run: Any, facts_file: Any, tmp_path: Path):
    code = written(tmp_path, "train.py", SCRIPT)
    empty = str(tmp_path / "none")
    Path(empty).mkdir()
    carried = run("facts", "--path", empty, "--code", code, "--format", "json").json
    given = facts_file({**{key: carried["facts"][key] for key in ("use", "code.files")}, "pkg.datasets": "3.0.0"})
    result = run("check", "--facts", given, "--format", "json")
    (finding,) = [one for one in result.json["findings"] if one["id"] == "use-name-moved"]
    assert finding["locations"] == [{"path": "train.py", "line": 2}]


def test_for_others_the_facts_name_no_file(run: Any, tmp_path: Path):
    code = written(tmp_path, "secret_project/train.py", SCRIPT)
    (tmp_path / "none").mkdir()
    result = run("facts", "--path", str(tmp_path / "none"), "--code", code, "--format", "json", "--public")
    assert "secret_project" not in result.out and "load_metric" in result.out


def test_the_configuration_names_the_code_once_for_all(run: Any, facts_file: Any, tmp_path: Path):
    written(tmp_path, "project/src/train.py", SCRIPT)
    written(tmp_path, "project/pyproject.toml", '[tool.envdoctor]\ncode = ["src"]\n')
    given = facts_file({"pkg.datasets": "3.0.0"})
    result = run("check", "--facts", given, "--format", "json", cwd=tmp_path / "project")
    places = [place["path"] for finding in result.json["findings"] for place in finding["locations"]]
    assert places == [str(Path("src", "train.py"))]


def test_code_that_was_not_read_is_said_and_fails_the_run_when_it_was_named(run: Any, facts_file: Any, tmp_path: Path):
    written(tmp_path, "src/good.py", "import datasets")
    bad = written(tmp_path, "src/bad.py", "print 'x'")
    given = facts_file({"pkg.datasets": "3.0.0"})
    folder = run("check", "--facts", given, "--code", "src")
    assert folder.code == 0 and f"Not judged: {bad}: it is not Python" in folder.out
    assert run("check", "--facts", given, "--code", bad).code == 3


@pytest.mark.parametrize("path", ["gone.py", "notes.txt", "empty"])
def test_a_path_without_code_is_a_wrong_use(run: Any, facts_file: Any, tmp_path: Path, path: str):
    written(tmp_path, "notes.txt", "")
    (tmp_path / "empty").mkdir()
    result = run("check", "--facts", facts_file({"pkg.datasets": "3.0.0"}), "--code", path)
    assert result.code == 2 and path in result.err and "Traceback" not in result.err


def test_a_folder_with_training_code_gets_one_hint(run: Any, tmp_path: Path):
    (tmp_path / "none").mkdir()
    hint = "--code train.py checks what your own code uses"
    assert hint not in run("check", "--path", "none").out
    written(tmp_path, "train.py", "import os\nfrom trl import SFTTrainer\n")
    assert run("check", "--path", "none").out.count(hint) == 1
    assert hint not in run("check", "--path", "none", "--code", "train.py").out
    written(tmp_path, "eval.py", "import peft\n")
    assert "--code ." in run("check", "--path", "none").out


def installed(folder: Path, name: str, version: str, files: Mapping[str, str]) -> None:
    """A package as an installer leaves it."""
    meta = folder / f"{name}-{version}.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    listed = [*files, f"{meta.name}/METADATA", f"{meta.name}/RECORD"]
    (meta / "RECORD").write_text("".join(f"{path},,\n" for path in listed))


def test_installed_files_are_asked_where_no_release_is_known(run: Any, tmp_path: Path):
    files = {
        "spade/__init__.py": "class Handle:\n    def __init__(self, length): ...\n",
        "spade/deep.py": "def dig(): ...",
    }
    installed(tmp_path / "site", "spade", "2.0", files)
    source = (
        "from spade import Handle, Blade\nfrom spade.deep import dig\nHandle(length=1)\nHandle(width=2)\nimport nowhere"
    )
    written(tmp_path, "train.py", source)
    result = run("check", "--path", "site", "--code", "train.py", "--format", "json", "--no-gpu")
    findings = {one["item"]["what"]: one for one in result.json["findings"] if one["id"].startswith("use-")}
    lines = {what: [place["line"] for place in finding["locations"]] for what, finding in findings.items()}
    assert lines == {"spade.Blade": [1], "spade.Handle(width=)": [4], "nowhere": [5]}
    assert {finding["severity"] for finding in findings.values()} == {"warning"}


def test_nothing_of_the_code_is_run(run: Any, tmp_path: Path):
    installed(tmp_path / "site", "spade", "2.0", {"spade/__init__.py": "open('ran', 'w')"})
    written(tmp_path, "train.py", f"import spade\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    assert run("check", "--path", "site", "--code", ".").code in (0, 1)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_hostile_code_is_named_and_costs_nothing_else(run: Any, facts_file: Any, tmp_path: Path):
    import os

    os.mkfifo(tmp_path / "pipe.py")
    written(tmp_path, "deep.py", "x = " + "(" * 3000)
    written(tmp_path, "null.py", "x = 1\0")
    written(tmp_path, "odd.py", "# coding: rot13\nimport os")
    written(tmp_path, "escape\x1b[31m.py", "from datasets import load_metric")
    written(tmp_path, "names.py", "import datasets as d\n" + "".join(f"d.x{n}\n" for n in range(100_000)))
    result = run("check", "--facts", facts_file({"pkg.datasets": "3.0.0"}), "--code", ".")
    assert result.code == 1 and "\x1b" not in result.out and "Traceback" not in result.err
    assert "escape\\x1b[31m.py:1" in result.out
    for name in ("deep.py", "null.py", "names.py"):
        assert f"Not judged: {name}: " in result.out
