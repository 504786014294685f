"""Which tags of wheels go with an interpreter and a machine, and what is said when none does."""

from __future__ import annotations

import pytest

from envdoctor.versions import WheelTarget, wheel_target

HERE = WheelTarget(12, False, "linux", "x86_64", (2, 31))
TAKEN = [
    "py3-none-any",
    "cp312-cp312-linux_x86_64",
    "cp38-abi3-manylinux1_x86_64",
    "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64",
    "cp312-cp312-manylinux_2_28_x86_64.manylinux_2_34_x86_64",
    "py39-none-manylinux_2_28_x86_64",
    "cp311.cp312-cp311.cp312-manylinux_2_5_x86_64",
]
REFUSED = {
    "cp313-cp313-manylinux_2_28_x86_64": ("CPython 3.13", "Python 3.12 on Linux x86_64"),
    "cp312-cp312t-manylinux_2_28_x86_64": ("CPython 3.12 without the GIL", "Python 3.12 on Linux x86_64"),
    "cp313-abi3-manylinux_2_28_x86_64": ("CPython 3.13 or newer", "Python 3.12 on Linux x86_64"),
    "cp312-cp312-win_amd64": ("win_amd64", "Linux"),
    "cp312-cp312-macosx_11_0_arm64": ("macosx_11_0_arm64", "Linux"),
    "cp312-cp312-manylinux_2_28_aarch64": ("manylinux_2_28_aarch64", "Linux x86_64"),
    "cp312-cp312-manylinux_2_35_x86_64": ("manylinux_2_35_x86_64", "glibc 2.31"),
    "cp312-cp312-musllinux_1_2_x86_64": ("musllinux_1_2_x86_64", "glibc 2.31"),
    "cp312-cp312-plan9_x86_64": ("plan9_x86_64", "Linux"),
}


@pytest.mark.parametrize("tag", TAKEN)
def test_a_fitting_tag_is_taken(tag):
    assert HERE.misses(tag) is None
    assert HERE.lacks([tag]) is None


@pytest.mark.parametrize("tag", REFUSED)
def test_what_keeps_a_tag_from_fitting_is_named(tag):
    assert (HERE.misses(tag), HERE.lacks([tag])) == REFUSED[tag]


def test_of_many_tags_the_nearest_says_what_is_lacking():
    tags = ["cp312-cp312-win_amd64", "cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_17_aarch64"]
    assert HERE.lacks(tags) == "Python 3.12 on Linux x86_64"
    assert HERE.lacks([*tags, "cp312-cp312-manylinux_2_34_x86_64"]) == "glibc 2.31"
    assert HERE.lacks([*tags, "py3-none-any"]) is None
    assert HERE.lacks([]) is None


def test_what_is_not_known_goes_with_every_tag():
    assert WheelTarget().lacks(["cp39-cp39-win_amd64"]) is None
    assert WheelTarget(13).lacks(["cp312-cp312-win_amd64"]) == "Python 3.13"
    assert WheelTarget(None, False, "windows").lacks(["cp312-cp312-win_amd64"]) is None
    assert WheelTarget(None, False, "windows").lacks(["cp312-cp312-manylinux_2_28_x86_64"]) == "Windows"
    assert not WheelTarget(13, False, "linux", "x86_64").known
    assert WheelTarget(13, False, "windows", "x86_64").known


@pytest.mark.parametrize(
    ("tag", "machine"),
    [("win_amd64", "x86_64"), ("win_arm64", "aarch64"), ("win32", "x86"), ("any", "x86_64")],
)
def test_windows_names_its_processors_in_its_own_way(tag, machine):
    assert WheelTarget(12, False, "windows", machine).misses(f"cp312-none-{tag}") is None


@pytest.mark.parametrize("tag", ["macosx_11_0_arm64", "macosx_10_9_universal2"])
def test_macos_on_apple_silicon(tag):
    assert WheelTarget(12, False, "darwin", "aarch64").misses(f"cp312-cp312-{tag}") is None
    assert WheelTarget(12, True, "darwin", "aarch64").misses(f"cp312-abi3-{tag}") is not None


def test_the_target_of_facts():
    facts = {"python.minor": "3.12", "python.implementation": "cpython", "os.platform": "linux", "os.arch": "x86_64"}
    libc = {"os.libc": "glibc", "os.libc_version": "2.31"}
    assert wheel_target({**facts, **libc}.get) == HERE
    assert wheel_target({"os.platform": "darwin", "os.arch": "arm64"}.get) == (None, False, "darwin", "aarch64", None)
    assert wheel_target({}.get) == WheelTarget()
    for other in ({"os.libc": "musl"}, {"python.implementation": "pypy"}, {"python.minor": "2.7"}):
        assert wheel_target({**facts, **other}.get) is None
