"""Build and release of torchvision and the like against those of torch, from versions, pins and the table."""

from __future__ import annotations

import pytest
from known import derived, given

from envdoctor.facts import Records, Unknown


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
        "same_build": False,
        "made_for": "==2.13.0",
        "same_release": True,
        "wanted": "0.28.0+cpu",
    }


@pytest.mark.parametrize(
    ("torch", "build", "apart"),
    [
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
    ],
)
def test_builds_differ_by_platform_major_or_minor(companions, torch, build, apart):
    found, _ = companions({"pkg.torch": torch, "pkg.torchvision": f"0.22.1+{build}"})
    assert found["torchvision"]["apart"] == apart
    assert found["torchvision"]["same_build"] is (apart == "same")


def test_without_a_tag_the_build_of_torch_is_that_of_its_cuda(companions):
    found, _ = companions({"pkg.torch": "2.7.1", "torch.cuda": "12.6", "pkg.torchvision": "0.22.1+cu126"})
    assert found["torchvision"]["torch_build"] == "cu126"
    found, _ = companions(
        {"pkg.torch": "2.7.1", "torch.cuda": None, "torch.hip": None, "pkg.torchvision": "0.22.1+cu126"}
    )
    assert found["torchvision"]["torch_build"] == "cpu"
    found, _ = companions({"pkg.torch": "2.7.1", "pkg.torchvision": "0.22.1+cu126"})
    assert isinstance(found["torchvision"]["apart"], Unknown)


def test_a_version_without_a_tag_is_of_no_known_build(companions):
    found, _ = companions({"pkg.torch": "2.7.1+cu126", "pkg.torchvision": "0.22.1"})
    assert isinstance(found["torchvision"]["apart"], Unknown)
    assert isinstance(found["torchvision"]["same_build"], Unknown)


@pytest.mark.parametrize(
    ("torch", "made_for", "same"),
    [
        ("2.7.1", "==2.7.1", True),
        ("2.7.1", "==2.7.0", True),
        ("2.8.0", "==2.7.1", False),
        ("2.15.0", ">=2.14.0", True),
        ("2.13.0", ">=2.14.0", False),
        ("2.16.0.dev20261101+cu132", "==2.16.0.dev20261031", True),
        ("2.5.0a0+872d972e41.nv24.08", "==2.5.0a0+872d972", True),
    ],
)
def test_a_pin_counts_by_its_minor_release(companions, torch, made_for, same):
    item = {"package": "torchvision", "version": "0.1", "made_for": made_for}
    found, _ = companions({"pkg.torch": torch, "torch_companion": [item]})
    assert found["torchvision"]["same_release"] is same


def test_the_table_knows_what_belongs_to_another_release(companions):
    item = {"package": "torchvision", "version": "0.22.0+cpu", "made_for": "==2.7.0"}
    found, _ = companions({"pkg.torch": "2.4.1+cpu", "torch_companion": [item]})
    assert found["torchvision"]["wanted"] == "0.19.1+cpu"


def test_metadata_that_pins_nothing_leaves_it_to_the_table(companions):
    item = {"package": "torchaudio", "version": "2.11.0+cu130", "made_for": None}
    found, _ = companions({"pkg.torch": "2.14.1+cu130", "torch_companion": [item]})
    assert found["torchaudio"]["made_for"] == ">=2.11.0"
    assert found["torchaudio"]["same_release"] is True


def test_a_patch_release_that_the_table_lacks_is_of_its_minor_release(companions):
    found, _ = companions({"pkg.torch": "2.15.0", "pkg.torchvision": "0.29.2"})
    assert found["torchvision"]["made_for"] == ">=2.14.0"


def test_what_is_no_companion_is_left_out(companions):
    items = [{"package": "torchmetrics", "version": "1.9.0", "made_for": ">=2.0"}]
    found, _ = companions({"pkg.torch": "2.15.0", "torch_companion": items})
    assert found == {}


def test_companions_that_were_not_looked_for_leave_the_list_open(companions):
    found, incomplete = companions({"pkg.torch": "2.7.1+cpu", "pkg.torchvision": "0.22.1+cpu"}, complete=False)
    assert set(found) == {"torchvision"}
    assert incomplete == "whether torchaudio is installed is not known"
