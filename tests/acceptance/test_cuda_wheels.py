"""NVIDIA's wheels of two CUDA majors, and ones put in the place of what torch pins, through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shown(run, tmp_path: Path):
    """The findings that are shown for an environment with a torch and these wheels: (id, severity, package)."""

    def check(wheels: dict[str, str], pins: tuple[str, ...] = ()) -> list[tuple[str, str, Any]]:
        site = tmp_path / "packages"
        dists = {"torch": "2.4.0", **wheels}
        for name, version in dists.items():
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            lines = "".join(f"Requires-Dist: {pin}\n" for pin in pins) if name == "torch" else ""
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\n")
            (info / "RECORD").write_text("")
        (site / "torch").mkdir()
        (site / "torch" / "version.py").write_text("__version__ = '2.4.0+cu121'\ncuda = '12.1'\nhip = None\n")
        result = run("check", "--no-config", "--path", str(site), "--format", "json")
        return [
            (entry["id"], entry["severity"], entry["item"].get("package"))
            for entry in result.json["findings"]
            if entry.get("superseded_by") is None
        ]

    return check


def test_wheels_of_cuda_11_and_12_together(shown):
    wheels = {
        "nvidia-cublas-cu11": "11.11.3.6",
        "nvidia-cublas-cu12": "12.4.5.8",
        "nvidia-cudnn-cu11": "9.1.0.70",
        "nvidia-cudnn-cu12": "9.1.0.70",
        "nvidia-nccl-cu11": "2.21.5",
        "nvidia-nccl-cu12": "2.21.5",
    }
    assert shown(wheels) == [
        ("nvidia-wheels-share-files", "warning", "nvidia-cudnn-cu12"),
        ("nvidia-wheels-share-files", "warning", "nvidia-nccl-cu12"),
    ]


def test_a_newer_cudnn_on_purpose_is_a_note(shown):
    found = shown({"nvidia-cudnn-cu12": "9.15.1.9"}, ("nvidia-cudnn-cu12==9.1.0.70",))
    assert found == [("cuda-wheel-newer-than-torch-asks", "note", "nvidia-cudnn-cu12")]


def test_an_older_nccl_is_one_warning(shown):
    found = shown({"nvidia-nccl-cu12": "2.18.1"}, ("nvidia-nccl-cu12==2.20.5",))
    assert found == [("cuda-wheel-older-than-torch-asks", "warning", "nvidia-nccl-cu12")]


def test_a_cudnn_of_another_major_is_one_error(shown):
    found = shown({"nvidia-cudnn-cu12": "8.9.7.29"}, ("nvidia-cudnn-cu12==9.1.0.70",))
    assert found == [("cudnn-wheel-of-another-major", "error", "nvidia-cudnn-cu12")]


def test_what_torch_asks_for_is_fine_beside_other_packages_of_nvidia(shown):
    wheels = {"nvidia-cudnn-cu12": "9.1.0.70", "nvidia-ml-py": "13.580.65", "nvidia-modelopt": "0.39.0"}
    assert shown(wheels, ("nvidia-cudnn-cu12==9.1.0.70",)) == []
