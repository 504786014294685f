"""Packages that must be of torch's build and release, and NVIDIA's wheels against those that torch pins."""

import pytest
from known import answer, derived, given
from rooms import computing

from envdoctor.facts import ABSENT, Records, Unknown


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


CU126 = {"pkg.torchvision": "0.22.1+cu126"}


@pytest.mark.parametrize(
    ("torch", "more", "told"),
    [
        # builds differ by platform, major or minor
        *(
            (torch, {"pkg.torchvision": f"0.22.1+{build}"}, {"apart": apart})
            for torch, build, apart in (
                ("2.7.1+cu126", "cu126", "same"),
                ("2.7.1+cu126", "cu128", "minor"),
                ("2.11.0+cu130", "cu128", "major"),
                ("2.7.1+cu126", "cpu", "cpu-on-gpu"),
                ("2.7.1+cpu", "cu126", "other-platform"),
                ("2.8.0+rocm6.4", "cu128", "other-platform"),
                ("2.8.0+rocm6.4", "rocm6.4", "same"),
                ("2.8.0+rocm6.4", "rocm6.3", "minor"),
                ("2.8.0+xpu", "xpu", "same"),
                ("2.4.1+cu121.with.pypi.cudnn", "cu121", "same"),
            )
        ),
        # without a tag the build of torch is that of its CUDA, and that of others is not known
        ("2.7.1", {**CU126, "torch.cuda": "12.6"}, {"torch_build": "cu126"}),
        ("2.7.1", {**CU126, "torch.cuda": None, "torch.hip": None}, {"torch_build": "cpu"}),
        ("2.7.1", CU126, {"apart": Unknown}),
        ("2.7.1+cu126", {"pkg.torchvision": "0.22.1"}, {"apart": Unknown}),
        # a pin counts by its minor release
        *(
            (torch, made("0.1", made_for), {"same_release": same})
            for torch, made_for, same in (
                ("2.7.1", "==2.7.1", True),
                ("2.7.1", "==2.7.0", True),
                ("2.8.0", "==2.7.1", False),
                ("2.15.0", ">=2.14.0", True),
                ("2.13.0", ">=2.14.0", False),
                ("2.16.0.dev20261101+cu132", "==2.16.0.dev20261031", True),
                ("2.5.0a0+872d972e41.nv24.08", "==2.5.0a0+872d972", True),
            )
        ),
        # the table knows what belongs to another release, what is not pinned, and patch releases by their minor
        ("2.4.1+cpu", made("0.22.0+cpu", "==2.7.0"), {"wanted": "0.19.1+cpu"}),
        ("2.1.1+cu118", {"pkg.torchvision": "0.16.0+cu121"}, {"same_release": True, "wanted": "0.16.1+cu118"}),
        ("2.14.1+cu130", made("2.11.0+cu130", None, "torchaudio"), {"made_for": ">=2.11.0", "same_release": True}),
        ("2.4.0+cu121", {"pkg.torchcodec": "0.9.0"}, {"made_for": "==2.9.*", "same_release": False, "wanted": "0.0.3"}),
        ("2.9.1", {"pkg.torchcodec": "0.9.0"}, {"same_release": True}),
        ("2.13.0", {"pkg.torchcodec": "0.12.0"}, {"same_release": True}),
        ("2.10.0", {"pkg.torchcodec": "0.12.0"}, {"same_release": False, "wanted": "0.10.0"}),
        ("2.4.0", {"pkg.torchcodec": "0.99.0"}, {"same_release": Unknown}),
        ("2.15.0", {"pkg.torchvision": "0.29.2"}, {"made_for": ">=2.14.0"}),
    ],
)
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


@pytest.mark.parametrize(
    ("installed", "pinned", "order"),
    [
        ("9.1.0.70", "9.1.0.70", "same"),
        ("2.21.5", "2.21.5.0", "same"),
        ("8.9.7.29", "8.9.2.26", "newer-patch"),
        ("9.15.1.9", "9.10.2.21", "newer"),
        ("9.5.1.17", "9.10.2.21", "older"),
        ("9.10.2.20", "9.10.2.21", "older"),
        ("8.9.7.29", "9.1.0.70", "other-major"),
        ("10.0.0.1", "9.1.0.70", "other-major"),
        ("9.1", ABSENT, ABSENT),
        ("9.1rc1", "9.1.0.70", Unknown),
        (Unknown("damaged"), "9.1.0.70", Unknown),
    ],
)
def test_versions_compare_as_numbers(matrix, installed, pinned, order):
    items = ({"component": "cudnn", "installed": installed, "pinned": pinned},)
    (found,) = compute(lambda key: Records(items), matrix)["cuda_library"].value
    assert answer(found["order"]) == order


@pytest.mark.parametrize("name", ["ml-py", "dali-cuda120", "modelopt", "modelopt-core", "cutlass-dsl", "pytriton"])
def test_packages_of_nvidia_that_are_no_cuda_libraries_do_not_count(matrix, name):
    items = ({"component": name, "installed": "1.0", "pinned": ABSENT},)
    found = compute(lambda key: Records(items), matrix)
    assert not found or list(found["cuda_library"].value) == []
