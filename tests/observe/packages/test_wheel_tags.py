"""Wheels for another Python or platform: the answers of uv pip check, in an environment that is built and asked."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from envdoctor.facts import ABSENT, Unknown

MINOR = sys.version_info[1]
OWN = f"cp3{MINOR}"

FITS = {
    "pure": "py3-none-any",
    "both": "py2.py3-none-any",
    "minor": f"py3{MINOR}-none-any",
    "olderminor": "py37-none-any",
    "linux": f"{OWN}-{OWN}-linux_x86_64",
    "many": f"{OWN}-{OWN}-manylinux_2_17_x86_64.manylinux2014_x86_64",
    "named": f"{OWN}-{OWN}-manylinux1_x86_64",
    "stable": "cp39-abi3-manylinux_2_17_x86_64",
    "two": f"cp38-cp38-linux_x86_64\nTag: {OWN}-{OWN}-linux_x86_64",
    "platformonly": "py3-none-manylinux_2_17_x86_64",
    "notag": "",
}
#: Tags that do not fit, and what is told of them.
DOES_NOT = {
    "older": ("cp38-cp38-manylinux_2_17_x86_64", "CPython 3.8"),
    "newerstable": (f"cp3{MINOR + 1}-abi3-linux_x86_64", f"CPython 3.{MINOR + 1} or newer"),
    "newerpure": (f"py3{MINOR + 1}-none-any", f"Python 3.{MINOR + 1} or newer"),
    "olderown": ("cp38-none-any", "CPython 3.8"),
    "python2": ("py2-none-any", "Python 2"),
    "threads": (f"{OWN}-{OWN}t-linux_x86_64", f"CPython 3.{MINOR} without the GIL"),
    "pypy": ("pp310-pypy310_pp73-linux_x86_64", "PyPy 3.10"),
    "windows": (f"{OWN}-{OWN}-win_amd64", "win_amd64"),
    "otherprocessor": (f"{OWN}-{OWN}-manylinux_2_17_aarch64", "manylinux_2_17_aarch64"),
    "musl": (f"{OWN}-{OWN}-musllinux_1_2_x86_64", "musllinux_1_2_x86_64"),
    "newerglibc": (f"{OWN}-{OWN}-manylinux_2_99_x86_64", "manylinux_2_99_x86_64"),
}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.implementation.name != "cpython", reason="tags of CPython on Linux are compared"
)


def wheel(tag: str) -> str:
    return "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n" + (f"Tag: {tag}\n" if tag else "")


@pytest.fixture
def built(venv: Path, site: Path, make_dist) -> Path:
    """An environment with one distribution a tag."""
    if platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
        pytest.skip("the tags are those of x86-64 with glibc")
    for name, tag in {**FITS, **{name: tag for name, (tag, _) in DOES_NOT.items()}}.items():
        make_dist(site, name, "1.0", WHEEL=wheel(tag), RECORD="", INSTALLER="pip\n")
    return venv


def test_what_does_not_fit_is_told_and_nothing_else(built, read):
    _, _, facts = read(python=built / "bin" / "python")
    told = {name: built_for for name, (_, built_for) in DOES_NOT.items()}
    assert {item["package"]: item["built_for"] for item in facts["foreign_wheel"]} == told
    assert not len(facts["metadata_problem"])


@pytest.mark.parametrize(
    ("wheels", "most"),
    [
        ({}, ABSENT),
        ({"pure": "py3-none-any", "stable": "cp39-abi3-linux_x86_64"}, ABSENT),
        ({"torch": "cp310-cp310-linux_x86_64"}, "3.10"),
        ({"torch": "cp310-cp310-linux_x86_64", "one": "cp310-cp310-any", "two": "cp39-cp39-any"}, "3.10"),
        ({"one": "cp310-cp310-any", "two": "cp39-cp39-any"}, None),
        ({"torch": "cp39-cp39-any", "one": "cp310-cp310-any", "two": "cp310-cp310-any"}, None),
        ({"one": "cp310-cp310-any", "two": "cp310-cp310t-any", "three": "py39-none-any"}, "3.10"),
    ],
)
def test_the_python_of_most_compiled_packages_is_told_when_torch_is_one_of_them(
    wheels, most, venv, site, make_dist, read
):
    for name, tag in wheels.items():
        make_dist(site, name, "1.0", WHEEL=wheel(tag))
    found = read(python=venv / "bin" / "python")[2]["environment.packages_python"]
    assert isinstance(found, Unknown) if most is None else found == most


def test_uv_pip_check_says_the_same(built, read):
    done = subprocess.run(
        [find_uv_bin(), "pip", "check", "--python", str(built / "bin" / "python")],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if "different platform" in line]
    assert {line.split("`")[1] for line in lines} == set(DOES_NOT), done.stderr


def test_a_tag_that_is_none_is_a_damaged_record(venv, site, make_dist, read):
    make_dist(site, "odd", "1.0", WHEEL=wheel("nonsense"))
    _, _, facts = read(python=venv / "bin" / "python")
    (item,) = facts["metadata_problem"]
    assert (item["kind"], item["detail"]) == ("unreadable", "odd-1.0.dist-info/WHEEL has a tag that is none: nonsense")


def test_of_an_image_of_another_machine_only_what_is_known_is_compared(tmp_path, make_dist, read):
    site = tmp_path / "root" / "usr" / "lib" / "python3.11" / "site-packages"
    make_dist(site, "odd", "1.0", WHEEL=wheel("cp27-none-any"))
    make_dist(site, "newer", "1.0", WHEEL=wheel("cp311-cp311-manylinux_2_99_x86_64"))  # its C library is not known
    _, _, facts = read(root=tmp_path / "root")
    found = facts["foreign_wheel"]
    assert [item["package"] for item in found] == ["odd"]
    assert found.incomplete is not None
