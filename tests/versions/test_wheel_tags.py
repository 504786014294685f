"""Which tags of wheels go with an interpreter and a machine, and what is said when none does."""

import pytest
from tables import table

from envdoctor.versions import WheelTarget, wheel_target

HERE = WheelTarget(12, False, "linux", "x86_64", (2, 31))
TAKEN = table(__file__)["taken"]
REFUSED = table(__file__)["refused"]


@pytest.mark.parametrize("tag", TAKEN)
def test_a_fitting_tag_is_taken(tag):
    assert HERE.misses(tag) is None
    assert HERE.lacks([tag]) is None


@pytest.mark.parametrize("tag", REFUSED)
def test_what_keeps_a_tag_from_fitting_is_named(tag):
    assert [HERE.misses(tag), HERE.lacks([tag])] == REFUSED[tag]


SEVERAL = ["cp312-cp312-win_amd64", "cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_17_aarch64"]
MACOS = WheelTarget(12, False, "darwin", "aarch64")


@pytest.mark.parametrize(
    ("target", "tags", "lacks"),
    [
        (HERE, SEVERAL, "Python 3.12 on Linux x86_64"),  # the nearest says what is lacking
        (HERE, [*SEVERAL, "cp312-cp312-manylinux_2_34_x86_64"], "glibc 2.31"),
        (HERE, [*SEVERAL, "py3-none-any"], None),
        (HERE, [], None),
        (WheelTarget(), ["cp39-cp39-win_amd64"], None),  # what is not known goes with every tag
        (WheelTarget(13), ["cp312-cp312-win_amd64"], "Python 3.13"),
        (WheelTarget(7), ["cp37-cp37m-manylinux1_x86_64"], None),
        (WheelTarget(None, False, "windows"), ["cp312-cp312-win_amd64"], None),
        (WheelTarget(None, False, "windows"), ["cp312-cp312-manylinux_2_28_x86_64"], "Windows"),
        (WheelTarget(12, False, "windows", "x86_64"), ["cp312-none-win_amd64"], None),
        (WheelTarget(12, False, "windows", "aarch64"), ["cp312-none-win_arm64"], None),
        (WheelTarget(12, False, "windows", "x86"), ["cp312-none-win32"], None),
        (WheelTarget(12, False, "windows", "x86_64"), ["cp312-none-any"], None),
        (MACOS, ["cp312-cp312-macosx_11_0_arm64"], None),
        (MACOS, ["cp312-cp312-macosx_10_9_universal2"], None),
        (
            MACOS._replace(threads=True),
            ["cp312-abi3-macosx_11_0_arm64"],
            "Python 3.12 without the GIL on macOS aarch64",
        ),
        (
            MACOS._replace(threads=True),
            ["cp312-abi3-macosx_10_9_universal2"],
            "Python 3.12 without the GIL on macOS aarch64",
        ),
    ],
)
def test_what_an_interpreter_lacks(target, tags, lacks):
    assert target.lacks(tags) == lacks
    assert len(tags) != 1 or (target.misses(tags[0]) is None) is (lacks is None)


def test_a_target_is_known_when_nothing_of_it_is_open():
    assert not WheelTarget(13, False, "linux", "x86_64").known
    assert WheelTarget(13, False, "windows", "x86_64").known


def test_the_target_of_facts():
    facts = {"python.minor": "3.12", "python.implementation": "cpython", "os.platform": "linux", "os.arch": "x86_64"}
    libc = {"os.libc": "glibc", "os.libc_version": "2.31"}
    assert wheel_target({**facts, **libc}.get) == HERE
    assert wheel_target({"os.platform": "darwin", "os.arch": "arm64"}.get) == (None, False, "darwin", "aarch64", None)
    assert wheel_target({}.get) == WheelTarget()
    for other in ({"os.libc": "musl"}, {"python.implementation": "pypy"}, {"python.minor": "2.7"}):
        assert wheel_target({**facts, **other}.get) is None
