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

Told = set[tuple[str, str, str]]
Put = Callable[[Path, Mapping[str, Sequence[str]]], None]

#: What is installed, as ``put`` takes it, and what must be told: ``kind asker package``.
CASES: dict[str, tuple[dict[str, list[str]], list[str]]] = {
    "ok": ({"a 1.0": ["b>=1,<2"], "b 1.5": []}, []),
    "missing": ({"a 1.0": ["b"]}, ["missing a b"]),
    "missing, asked for twice": ({"a 1.0": ["c>=1"], "b 1.0": ["c"]}, ["missing a c", "missing b c"]),
    "conflict": ({"a 1.0": ["b<2"], "b 2.0": []}, ["conflict a b"]),
    "old brackets": ({"a 1.0": ["b (<2,>=1)"], "b 2.0": []}, ["conflict a b"]),
    "true marker": ({"a 1.0": ['b ; python_version >= "3.8" and sys_platform != "nowhere"']}, ["missing a b"]),
    "false marker": ({"a 1.0": ['b; python_version < "3.0" or os_name == "x"']}, []),
    "turned marker": ({"a 1.0": ['b; "3.8" <= python_version']}, ["missing a b"]),
    "marker with brackets": (
        {"a 1.0": ['b; (os_name == "x" or python_full_version > "3.1.2") and extra != "e"']},
        ["missing a b"],
    ),
    "marker with in": ({"a 1.0": [f"b; sys_platform in '{sys.platform} other'", 'c; "q" in os_name']}, ["missing a b"]),
    "extra": ({"a 1.0": ["Provides-Extra: x", 'b; extra == "x"', "c>2; extra=='x'"]}, []),
    "extra or something else": ({"a 1.0": ["Provides-Extra: x", 'b; extra == "x" or os_name != "x"']}, ["missing a b"]),
    "a name that ends in extra": ({"a 1.0": ["b-extra ==1.0", "extra == 2.0"], "extra 2.0": []}, ["missing a b-extra"]),
    "an extra of what is required": ({"a 1.0": ["b[x,y]>=1"], "b 1.0": []}, []),
    "pre-release": ({"a 1.0": ["b>=2.0", "c>=2.0"], "b 2.0rc1": [], "c 2.1b2": []}, ["conflict a b"]),
    "pre-release below its release": ({"a 1.0": ["b<2.0"], "b 2.0rc1": []}, ["conflict a b"]),
    "development release": ({"a 1.0": ["b>=1.0.dev0"], "b 1.0.dev3": []}, []),
    "post-release": ({"a 1.0": ["b>1.0", "b>=1.0"], "b 1.0.post1": []}, ["conflict a b"]),
    "local version": ({"a 1.0": ["b==2.5.0", "b<=2.5.0"], "b 2.5.0+cu118": []}, []),
    "another local version": ({"a 1.0": ["b==2.5.0+cpu"], "b 2.5.0+cu118": []}, ["conflict a b"]),
    "epoch": ({"a 1.0": ["b>=3"], "b 1!1.0": [], "c 1": ["b<3"]}, ["conflict c b"]),
    "URL": (
        {"a 1.0": ["b @ https://example.org/b-2.0.zip", "c@ https://example.org/c.zip ; os_name != 'x'"], "b 1.0": []},
        ["missing a c"],
    ),
    "names are normalised": (
        {"A_b.C 1.0": ["Flash_Attn.x>=2"], "flash-attn-X 1.0": []},
        ["conflict a-b-c flash-attn-x"],
    ),
    "other Python": ({"a 1.0": ["Requires-Python: >=3.99"]}, ["python a a"]),
    "this Python": ({"a 1.0": ["Requires-Python: >=3.6,!=3.7.*,<4"]}, []),
    "wildcards": ({"a 1.0": ["b==1.4.*", "c!=1.4.*"], "b 1.4.2": [], "c 1.4.9": []}, ["conflict a c"]),
    "compatible release": ({"a 1.0": ["b~=1.4.2", "c~=1.4"], "b 1.5.0": [], "c 1.5.0": []}, ["conflict a b"]),
    "not equal": ({"a 1.0": ["b!=1.5"], "b 1.5.0": []}, ["conflict a b"]),
    "behind a long header": ({"a 1.0": ["License: " + "x" * 20_000, "        and more", "b"]}, ["missing a b"]),
}


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
