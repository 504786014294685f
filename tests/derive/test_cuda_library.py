"""Installed CUDA wheels against the versions that torch pins, and which of NVIDIA's packages count."""

from __future__ import annotations

import pytest
from known import answer
from rooms import computing

from envdoctor.facts import ABSENT, Records, Unknown

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
