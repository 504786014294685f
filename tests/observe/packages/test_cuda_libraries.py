"""NVIDIA's wheels of an environment by component: majors, torch's pin, and files that two of them own."""

import sys
from pathlib import Path

import pytest
from observing import a_layout, observe, write

from envdoctor.facts import ABSENT, Records, Unknown

PINS = [
    'nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux"',
    'nvidia-nccl-cu12==2.21.5; platform_system == "Nowhere"',
    "nvidia-cublas-cu12<=12.4.5.8,>=12.1",
    "numpy",
]


@pytest.fixture
def libraries(tmp_path: Path, make_dist, read):
    """The records by component of an environment with these wheels; each may list files."""

    def run(wheels, pins=(), cuda="12.4"):
        site = tmp_path / "packages"
        make_dist(site, "torch", "2.5.1", lines=[f"Requires-Dist: {pin}" for pin in pins])
        write(site, {"torch/version.py": f"__version__ = '2.5.1'\ncuda = {cuda!r}\n"})
        for name, version, *listed in wheels:
            record = "".join(f"{file},sha256=x,1\n" for file in listed)
            make_dist(site, name, version, RECORD=record)
        _, _, facts = read(path=site)
        found = facts["cuda_library"]
        assert isinstance(found, Records)
        return {item["component"]: item for item in found}

    return run


def test_one_wheel_a_component_is_what_torch_brings(libraries):
    found = libraries([("nvidia-cudnn-cu12", "9.1.0.70"), ("nvidia-nccl-cu12", "2.21.5")])
    assert found["cudnn"] == {
        "component": "cudnn",
        "package": "nvidia-cudnn-cu12",
        "packages": "nvidia-cudnn-cu12",
        "majors": "12",
        "installed": "9.1.0.70",
        "pinned": ABSENT,
        "order": ABSENT,
        "same_files": ABSENT,
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the pins are those of Linux")
def test_pins_are_those_of_torch_whose_marker_holds_and_that_name_one_version(tmp_path, make_dist):
    make_dist(tmp_path, "torch", "2.5.1", lines=[f"Requires-Dist: {pin}" for pin in PINS])
    for name, version in (("cudnn-cu12", "9.5.1.17"), ("nccl-cu12", "2.27.3"), ("cublas-cu12", "12.4.5.8")):
        make_dist(tmp_path, f"nvidia-{name}", version)
    items = observe(a_layout(tmp_path)).known.value("cuda_library")
    found = {item["component"]: item["pinned"] for item in items}
    assert found == {"cudnn": "9.1.0.70", "nccl": ABSENT, "cublas": ABSENT}


NCCL = [("nvidia-nccl-cu12", "2.21.5"), ("nvidia-nccl-cu13", "2.28.9")]
CUBLAS = [("nvidia-cublas-cu11", "11.11.3.6"), ("nvidia-cublas-cu12", "12.4.5.8"), ("nvidia-cublas-cu13", "1.0")]


@pytest.mark.parametrize(
    ("component", "wheels", "more", "found"),
    [
        # the one for torch counts, and before it the one that torch pins
        ("cublas", CUBLAS, {}, ("nvidia-cublas-cu12", "12.4.5.8", "11, 12, 13")),
        ("nccl", NCCL, {"pins": ["nvidia-nccl-cu13==2.28.9"]}, ("nvidia-nccl-cu13", "2.28.9", "12, 13")),
        # wheels that carry no major are of that of the toolkit
        (
            "cufft",
            [("nvidia-cufft", "12.0.0.61"), ("cuda-toolkit", "13.0.2")],
            {"cuda": "13.0"},
            ("nvidia-cufft", "12.0.0.61", "13"),
        ),
    ],
)
def test_of_several_wheels_of_a_component_one_counts(libraries, component, wheels, more, found):
    records = libraries(wheels, **more)
    assert tuple(records[component][column] for column in ("package", "installed", "majors")) == found
    assert "toolkit" not in records


def test_without_anything_that_tells_the_major_it_is_unknown(libraries):
    assert isinstance(libraries([("nvidia-cufft", "12.0.0.61")])["cufft"]["majors"], Unknown)


def test_a_library_that_two_list_is_named(libraries):
    files = ["nvidia/__init__.py", "nvidia/cudnn/include/cudnn.h", "nvidia/cudnn/lib/libcudnn.so.9"]
    found = libraries([("nvidia-cudnn-cu12", "9.1.0.70", *files), ("nvidia-cudnn-cu13", "9.19.0.56", *files)])
    assert found["cudnn"]["same_files"] == "nvidia/cudnn/lib/libcudnn.so.9"


def test_headers_in_common_are_no_libraries_in_common(libraries):
    header = "nvidia/cublas/include/cublas.h"
    found = libraries(
        [
            ("nvidia-cublas-cu11", "11.11.3.6", header, "nvidia/cublas/lib/libcublas.so.11"),
            ("nvidia-cublas-cu12", "12.4.5.8", header, "nvidia/cublas/lib/libcublas.so.12"),
        ]
    )
    assert found["cublas"]["same_files"] is ABSENT


def test_an_empty_list_of_files_tells_nothing(libraries):
    found = libraries([("nvidia-cudnn-cu11", "9.1.0.70"), ("nvidia-cudnn-cu12", "9.1.0.70")])
    assert isinstance(found["cudnn"]["same_files"], Unknown)
