"""The same answers as ``uv pip check`` and ``pip check``, in environments that are built and asked for real."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from observing import choose, observe
from sharing import once
from uv import find_uv_bin

from envdoctor.facts import Records
from envdoctor.matrix import load_toml

Told = set[tuple[str, str, str]]
Put = Callable[[Path, Mapping[str, Sequence[str]]], None]

#: What is installed, as ``put`` takes it, and what must be told: ``kind asker package``.
_TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "lists" / "conflicts.toml")
CASES: dict[str, tuple[dict[str, list[str]], list[str]]] = json.loads(
    json.dumps(_TABLE["case"]).replace("PLATFORM", sys.platform).replace("LICENCE", "x" * 20_000)
)


def site_packages(folder: Path) -> Path:
    """Where the packages of a virtual environment lie."""
    (site,) = folder.glob("lib/python3*/site-packages") if os.name != "nt" else [folder / "Lib" / "site-packages"]
    return site


def build(folder: Path, dists: Mapping[str, Sequence[str]], put: Put) -> Path:
    """A virtual environment without pip that holds these metadata directories; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    put(site_packages(folder), dists)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ours(python: Path) -> tuple[Told, Records]:
    conflicts = observe(choose(python, cwd=python.parent)).known.value("conflict")
    assert isinstance(conflicts, Records)
    told = {
        (str(item["kind"]), asker.partition(" ")[0] if item["kind"] != "python" else item["package"], item["package"])
        for item in conflicts
        for asker in item["required_by"]
    }
    return told, conflicts


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def told_by_uv(python: Path) -> Told:
    done = subprocess.run(
        [find_uv_bin(), "pip", "check", "--python", str(python), "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    told: Told = set()
    for line in done.stderr.splitlines():
        named = [normal(name) for name in re.findall(r"`([A-Za-z0-9._-]+)[^`]*`", line)]
        if "multiple installed" in line:
            told.add(("duplicate", named[0], named[0]))
        elif "requires Python" in line:
            told.add(("python", named[0], named[0]))
        elif "not installed" in line:
            told.add(("missing", named[0], named[1]))
        elif "requires" in line:
            told.add(("conflict", named[0], named[1]))
    assert bool(told) is (done.returncode == 1), done.stderr
    return told


#: The check of pip's own code for every folder it is given, in one process: pip starts ten times as long as it checks.
PIP_CHECK = """
import contextlib, io, json, sys, sysconfig
from pip._internal.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["check", "--disable-pip-version-check"])  # whatever is imported late is there before the path changes
own, said = set(sysconfig.get_paths().values()), {}
rest = [entry for entry in sys.path if entry not in own or entry == sysconfig.get_path("stdlib")]
for name, folder in json.load(sys.stdin).items():
    sys.path[:] = [folder, *rest]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(["check", "--disable-pip-version-check"])
    said[name] = [code, out.getvalue()]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, put: Put) -> dict[str, Any]:
    """The environment of each case by its name, and what pip's check says of it: its exit code and its lines."""

    def make(scratch: Path) -> dict[str, Any]:
        pythons = {case: build(scratch / str(number), CASES[case][0], put) for number, case in enumerate(CASES)}
        folders = json.dumps({case: str(site_packages(python.parents[1])) for case, python in pythons.items()})
        command = [sys.executable, "-I", "-c", PIP_CHECK]
        done = subprocess.run(command, input=folders, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {"pythons": pythons, "pip": json.loads(done.stdout)}

    result: dict[str, Any] = once(tmp_path_factory, "conflicts", make)
    return result


def told_by_pip(code: int, lines: str) -> Told:
    told: Told = set()
    for line in lines.splitlines():
        missing = re.match(r"(\S+) \S+ requires (\S+), which is not installed", line)
        wrong = re.match(r"(\S+) \S+ has requirement .*, but you have (\S+) ", line)
        match = missing or wrong
        if match:
            told.add(("missing" if missing else "conflict", normal(match[1]), normal(match[2].partition("[")[0])))
    assert bool(told) is (code == 1), lines
    return told


@pytest.mark.parametrize("case", CASES)
def test_the_same_is_told_as_by_uv_and_pip(built: dict[str, Any], case: str) -> None:
    expected: Told = {tuple(told.split()) for told in CASES[case][1]}  # type: ignore[misc]
    python = built["pythons"][case]
    told, records = ours(python)
    assert told == expected
    assert records.incomplete is None
    assert told_by_uv(python) == expected
    # pip check does not look at Requires-Python.
    assert told_by_pip(*built["pip"][case]) == {entry for entry in expected if entry[0] != "python"}


def test_what_is_installed_twice_is_left_to_the_duplicate(tmp_path: Path, put: Put) -> None:
    """uv skips it too; only what both versions would break is told."""
    python = build(tmp_path / "env", {"a 1.0": ["b>=2", "c"], "b 1.0": ["d"], "b 2.0": []}, put)
    told, records = ours(python)
    assert told_by_uv(python) == {("duplicate", "b", "b"), ("missing", "a", "c")}
    assert told == {("missing", "a", "c")}
    assert records.incomplete is not None and "b" in records.incomplete
