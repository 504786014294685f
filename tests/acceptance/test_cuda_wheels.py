"""NVIDIA's wheels of two CUDA majors, and ones put in the place of what torch pins, through the command line."""

from pathlib import Path

import pytest
from dists import install

PINS = ("nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.21.5")
SAME = {"nvidia-cudnn-cu12": "9.1.0.70"}


@pytest.mark.parametrize(
    ("wheels", "found"),
    [
        ({**SAME, "nvidia-ml-py": "13.580.65", "nvidia-modelopt": "0.39.0"}, []),
        ({"nvidia-cudnn-cu12": "9.15.1.9"}, [("cuda-wheel-newer-than-torch-asks", "note", "nvidia-cudnn-cu12")]),
        ({"nvidia-nccl-cu12": "2.18.1"}, [("cuda-wheel-older-than-torch-asks", "warning", "nvidia-nccl-cu12")]),
        ({"nvidia-cudnn-cu12": "8.9.7.29"}, [("cudnn-wheel-of-another-major", "error", "nvidia-cudnn-cu12")]),
        (
            {
                **{"nvidia-cublas-cu11": "11.11.3.6", "nvidia-cublas-cu12": "12.4.5.8"},
                **{"nvidia-cudnn-cu11": "9.1.0.70", **SAME, "nvidia-nccl-cu11": "2.21.5", "nvidia-nccl-cu12": "2.21.5"},
            },
            [("nvidia-wheels-share-files", "warning", f"nvidia-{name}-cu12") for name in ("cudnn", "nccl")],
        ),
    ],
    ids=["as asked for", "newer on purpose", "older", "another major", "of two majors"],
)
def test_what_is_shown_beside_a_torch_that_pins_its_wheels(run, tmp_path: Path, wheels, found):
    pins = [f"Requires-Dist: {pin}" for pin in PINS if pin.partition("=")[0] in wheels]
    text = "__version__ = '2.4.0+cu121'\ncuda = '12.1'\nhip = None\n"
    install(tmp_path / "packages", "torch", "2.4.0", *pins, files={"torch/version.py": text})
    for name, version in wheels.items():
        install(tmp_path / "packages", name, version)
    result = run("check", "--no-config", "--path", "packages", "--format", "json")
    shown = [entry for entry in result.json["findings"] if entry.get("superseded_by") is None]
    assert [(entry["id"], entry["severity"], entry["item"].get("package")) for entry in shown] == found
