"""Installed CUDA wheels against the versions that torch pins, and which of NVIDIA's packages count."""

from __future__ import annotations

import pytest
from rooms import derivation

from envdoctor.facts import ABSENT, Records, Unknown

compute = derivation("cuda_library").compute


def derived(matrix, *items):
    found = compute(lambda key: Records(items), matrix)
    return list(found["cuda_library"].value) if found else []


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
    ],
)
def test_versions_compare_as_numbers(matrix, installed, pinned, order):
    item = {"component": "cudnn", "installed": installed, "pinned": pinned}
    assert derived(matrix, item)[0]["order"] == order


def test_without_a_pin_there_is_nothing_to_compare(matrix):
    assert derived(matrix, {"component": "cudnn", "installed": "9.1", "pinned": ABSENT})[0]["order"] is ABSENT


@pytest.mark.parametrize("version", ["9.1rc1", Unknown("damaged")])
def test_a_version_that_is_no_number_is_not_compared(matrix, version):
    item = {"component": "cudnn", "installed": version, "pinned": "9.1.0.70"}
    assert isinstance(derived(matrix, item)[0]["order"], Unknown)


@pytest.mark.parametrize("name", ["ml-py", "dali-cuda120", "modelopt", "modelopt-core", "cutlass-dsl", "pytriton"])
def test_packages_of_nvidia_that_are_no_cuda_libraries_do_not_count(matrix, name):
    assert derived(matrix, {"component": name, "installed": "1.0", "pinned": ABSENT}) == []
