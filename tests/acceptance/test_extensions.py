"""Compiled extensions and the torch beside them, through the command line: one cause, one finding, nothing loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sharing import once

ELF = Path(__file__).resolve().parents[2] / "fixtures" / "elf"
TORCH = {"torch/lib/libc10.so": "libc10.so", "torch/lib/libtorch_cpu.so": "libtorch_cpu.so"}


def install(site: Path, name: str, version: str, files: Mapping[str, str], tag: str = "", header: str = "") -> None:
    """A package made of small ELF files; with a tag it gets a version file, as torch and torchvision have."""
    for file, source in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ELF / source, site / file)
    if tag:
        (site / name).mkdir(parents=True, exist_ok=True)
        (site / name / "version.py").write_text(f"__version__ = '{version}{tag}'\ncuda = None\nhip = None\n")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{header}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with a CPU torch 2.13.0."""
    folder = tmp_path / "packages"
    install(folder, "torch", "2.13.0", TORCH, "+cpu")
    return folder


def found(run: Callable[..., Any], site: Path, *arguments: str) -> dict[str, Any]:
    """The errors that are shown, by id. The specimens are installed without their dependencies: that torch cannot be
    imported without them is true, and told elsewhere."""
    result = run("check", "--no-config", "--path", str(site), "--format", "json", *arguments)
    assert "Traceback" not in result.err, result.err
    findings = [entry for entry in result.json["findings"] if entry.get("superseded_by") is None]
    shown = [entry for entry in findings if entry["severity"] == "error" and not _is_missing_package(entry)]
    assert len({entry["id"] for entry in shown}) == len(shown)
    return {entry["id"]: entry for entry in shown}


def _is_missing_package(entry: dict[str, Any]) -> bool:
    return entry["id"] == "import-takes-a-missing-package" and entry["message"].startswith("torch takes ")


def test_a_cuda_torchvision_on_a_cpu_torch_is_one_finding_that_names_both(run, site):
    install(
        site, "torchvision", "0.28.0", {"torchvision/_C.so": "cuda.so", "torchvision/image.so": "cuda.so"}, "+cu130"
    )
    (entry,) = found(run, site).values()
    assert entry["id"] == "torch-companion-of-another-build"
    assert entry["message"] == "torchvision 0.28.0+cu130 is beside torch 2.13.0+cpu: 0.28.0+cpu belongs there"
    assert entry["item"] == {"package": "torchvision"}


def test_a_torchvision_of_another_release_is_one_finding(run, site):
    pin = "Requires-Dist: torch==2.5.1\n"
    install(site, "torchvision", "0.20.1", {"torchvision/_C.so": "old-abi.so"}, "+cpu", pin)
    result = run("check", "--no-config", "--path", str(site), "--format", "json")
    conflict = [entry for entry in result.json["findings"] if entry["id"] == "requirement-conflict"]
    assert [entry["superseded_by"] for entry in conflict] == ["torchvision-of-another-torch-release"]
    assert list(found(run, site)) == ["torchvision-of-another-torch-release"]


def test_a_torchvision_of_another_release_that_loads_all_the_same_is_still_found_by_its_version(run, site):
    install(site, "torchvision", "0.20.1", {"torchvision/_C.so": "good.so"}, "+cpu")
    assert list(found(run, site)) == ["torchvision-of-another-torch-release"]


def test_each_package_that_does_not_fit_has_its_own_cause(run, site):
    install(site, "torchvision", "0.28.0", {"torchvision/_C.so": "cuda.so"}, "+cu130")
    install(site, "flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"})
    install(site, "xformers", "0.0.35", {"xformers/_C.so": "good.so"})
    named = {entry["item"]["package"]: rule for rule, entry in found(run, site).items()}
    assert named == {
        "torchvision": "torch-companion-of-another-build",
        "flash-attn": "extension-built-for-another-torch",
    }


def test_a_torch_without_its_libraries_is_the_only_finding(run, site):
    install(site, "torchvision", "0.28.0", {"torchvision/_C.so": "cuda.so"}, "+cpu")
    (site / "torch" / "lib" / "libtorch_cpu.so").unlink()
    assert list(found(run, site)) == ["torch-files-missing"]


def test_glibc_and_python_are_those_of_the_target(run, site):
    install(site, "flash-attn", "2.8.3", {"flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so": "new-glibc.so"})
    given = ["os.libc=glibc", "os.libc_version=2.31", "python.version=3.11.9", "python.implementation=cpython"]
    options = [word for text in given for word in ("--set", text)]
    findings = found(run, site, *options)
    assert set(findings) == {"extension-needs-newer-glibc", "extension-for-another-python"}
    assert findings["extension-needs-newer-glibc"]["message"].endswith("needs glibc 2.99, this system has 2.31")


def test_a_file_that_was_cut_off_is_a_finding(run, site):
    install(site, "xformers", "0.0.35", {"xformers/_C.so": "good.so"})
    path = site / "xformers" / "_C.so"
    path.write_bytes(path.read_bytes()[:700])
    (entry,) = found(run, site).values()
    assert entry["message"] == "xformers/_C.so of xformers 0.0.35 is damaged: it is shorter than its own tables say"


def named_wheel(site: Path, package: str, wheel: str) -> None:
    """Say that a package was installed from this wheel."""
    (info,) = site.glob(f"{package}-*.dist-info")
    (info / "direct_url.json").write_text(json.dumps({"url": f"https://host/{wheel}", "archive_info": {}}))


def test_a_wheel_that_names_another_torch_and_does_not_fit_is_one_finding_that_names_it(run, site):
    install(site, "flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"})
    named_wheel(site, "flash_attn", "flash_attn-2.7.4.post1%2Bcu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl")
    (entry,) = found(run, site).values()
    assert entry["id"] == "extension-made-for-another-torch-release"
    assert entry["message"] == "flash-attn 2.7.4.post1 was built for torch 2.6 and does not load with 2.13.0+cpu"


def test_a_wheel_that_names_another_torch_and_fits_all_the_same_is_no_finding(run, site):
    install(site, "flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "good.so"})
    named_wheel(site, "flash_attn", "flash_attn-2.8.3%2Bcu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64.whl")
    result = run("check", "--no-config", "--path", str(site), "--format", "json", "--set", "torch.cuda=13.0")
    assert [entry for entry in result.json["findings"] if entry["id"].startswith("extension")] == []


def test_where_symbols_cannot_be_compared_what_the_wheel_names_is_a_warning(run, site):
    install(site, "flash-attn", "2.8.3", {"flash_attn_2_cuda.cp311-win_amd64.pyd": "good.so"})
    named_wheel(site, "flash_attn", "flash_attn-2.8.3+cu128torch2.8.0cxx11abiFALSE-cp311-cp311-win_amd64.whl")
    result = run("check", "--no-config", "--path", str(site), "--format", "json")
    shown = {entry["id"]: entry for entry in result.json["findings"]}
    entry = shown["extension-may-be-for-another-torch-release"]
    assert entry["severity"] == "warning"
    assert entry["message"] == "flash-attn 2.8.3 says it was built for torch 2.8.0; this is 2.13.0+cpu"


def test_a_package_for_another_machine_c_library_or_cuda_says_which(run, site):
    install(site, "flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "cudart.so"})
    install(site, "deepspeed", "0.19.8", {"deepspeed/ops/op.so": "new-glibcxx.so"})
    given = ["os.platform=linux", "os.arch=aarch64", "os.libstdcxx=3.4.25", "torch.cuda=13.0"]
    result = run(
        "check",
        "--no-config",
        "--path",
        str(site),
        "--format",
        "json",
        *(f"--set={assignment}" for assignment in given),
    )
    shown = {(entry["id"], (entry.get("item") or {}).get("package")) for entry in result.json["findings"]}
    assert {
        ("extension-for-another-machine", "flash-attn"),
        ("extension-for-another-machine", "deepspeed"),
        ("extension-built-for-another-cuda", "flash-attn"),
        ("extension-needs-newer-libstdcxx", "deepspeed"),
    } <= shown


def test_a_facts_file_carries_what_was_read(run, site, tmp_path):
    install(site, "torchvision", "0.28.0", {"torchvision/_C.so": "cuda.so"}, "+cu130")
    written = run("facts", "--no-config", "--path", str(site), "--format", "json", "--public")
    assert str(site) not in json.dumps(written.json["facts"])
    (tmp_path / "here.json").write_text(json.dumps(written.json))
    result = run("check", "--no-config", "--facts", str(tmp_path / "here.json"), "--format", "json")
    shown = [entry["id"] for entry in result.json["findings"] if entry.get("superseded_by") is None]
    assert shown == ["torch-companion-of-another-build"]


def test_a_torch_that_was_given_is_not_compared_with_files_of_another(run, site):
    install(site, "flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"})
    result = run("check", "--no-config", "--path", str(site), "--set", "pkg.torch=2.6.0", "--format", "json")
    assert result.json["findings"] == []
    assert "extension-built-for-another-torch" in {entry["id"] for entry in result.json["not_checked"]}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real torch 2.13.0 for CPU with the torchvision 0.28.0 that PyPI gives, which is built for CUDA."""

    def make(folder: Path) -> Path:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        index = ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
        subprocess.run([*pip, *index, "torch==2.13.0+cpu"], check=True, capture_output=True)
        subprocess.run([*pip, "torchvision==0.28.0"], check=True, capture_output=True)
        return folder

    return once(tmp_path_factory, "real-torch", make)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="wheels of other systems hold no ELF files")
def test_the_real_torchvision_of_pypi_beside_the_real_cpu_torch(run, wheels):
    (entry,) = found(run, wheels).values()
    assert entry["id"] == "torch-companion-of-another-build"
    assert entry["message"] == "torchvision 0.28.0+cu130 is beside torch 2.13.0+cpu: 0.28.0+cpu belongs there"
    facts = run("facts", "--no-config", "--path", str(wheels), "--format", "json").json["facts"]
    (item,) = facts["extension"]
    assert item["unresolved"] >= 16  # those of libc10_cuda and libtorch_cuda
    assert item["example"].startswith("c10::cuda::")


@pytest.mark.slow
def test_real_wheels_of_one_release_fit_each_other_on_aarch64_too(run, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "packages")]
    platform = ["--only-binary", ":all:", "--platform", "manylinux2014_aarch64", "--python-version", "3.11"]
    wheels = ["torch==2.5.1", "torchvision==0.20.1", "torchaudio==2.5.1"]
    subprocess.run([*pip, *platform, *wheels], check=True, capture_output=True)
    # The folder is for another machine than this one: that is said, as its user would.
    assert found(run, tmp_path / "packages", "--set", "os.arch=aarch64") == {}
    facts = run("facts", "--no-config", "--path", str(tmp_path / "packages"), "--format", "json").json["facts"]
    read = {item["package"]: (item["arch"], item["unresolved"]) for item in facts["extension"]}
    assert read == {"torchvision": ("aarch64", 0), "torchaudio": ("aarch64", 0)}
