"""Packages that must be of torch's build and release, and NVIDIA's wheels against those that torch pins."""

import pytest
from known import answer, derived, given
from rooms import computing
from tables import rows

from envdoctor.facts import ABSENT, Records


@pytest.fixture
def companions(matrix):
    """The derived records by package, from facts in the form of a facts file."""

    def run(values, *, complete=True):
        facts = given(values, matrix.registry, ["pkg"] if complete else [])
        records = derived(facts, matrix).value("torch_companion")
        assert isinstance(records, Records)
        return {item["package"]: item for item in records}, records.incomplete

    return run


def test_build_and_release_are_told_by_versions_alone(companions):
    found, incomplete = companions({"pkg.torch": "2.13.0+cpu", "pkg.torchvision": "0.28.0+cu130"})
    assert incomplete is None
    assert found["torchvision"] == {
        "package": "torchvision",
        "version": "0.28.0+cu130",
        "build": "cu130",
        "torch_build": "cpu",
        "apart": "other-platform",
        "made_for": "==2.13.0",
        "same_release": True,
        "wanted": "0.28.0+cpu",
    }


def made(version, made_for, package="torchvision"):
    return {"torch_companion": [{"package": package, "version": version, "made_for": made_for}]}


@rows("torch more told")
def test_how_a_companion_goes_with_torch(companions, torch, more, told):
    (item,) = companions({"pkg.torch": torch, **more})[0].values()
    assert {name: answer(item[name]) for name in told} == told


def test_what_is_no_companion_is_left_out(companions):
    assert companions({"pkg.torch": "2.15.0", **made("1.9.0", ">=2.0", "torchmetrics")}) == ({}, None)


def test_companions_that_were_not_looked_for_leave_the_list_open(companions):
    found, incomplete = companions({"pkg.torch": "2.7.1+cpu", "pkg.torchvision": "0.22.1+cpu"}, complete=False)
    assert set(found) == {"torchvision"}
    assert incomplete == "whether torchaudio is installed is not known"


compute = computing("cuda_library")


@rows("installed pinned order")
def test_versions_compare_as_numbers(matrix, installed, pinned, order):
    items = ({"component": "cudnn", "installed": installed, "pinned": pinned},)
    (found,) = compute(lambda key: Records(items), matrix)["cuda_library"].value
    assert answer(found["order"]) == order


@pytest.mark.parametrize("name", ["ml-py", "dali-cuda120", "modelopt", "modelopt-core", "cutlass-dsl", "pytriton"])
def test_packages_of_nvidia_that_are_no_cuda_libraries_do_not_count(matrix, name):
    items = ({"component": name, "installed": "1.0", "pinned": ABSENT},)
    found = compute(lambda key: Records(items), matrix)
    assert not found or list(found["cuda_library"].value) == []
