"""Compiled extensions and the torch beside them, through the command line: one cause, one finding, nothing loaded."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from dists import install
from pinned import installing
from sharing import once

ELF = Path(__file__).resolve().parents[2] / "fixtures" / "elf"
TORCH = {"torch/lib/libc10.so": "libc10.so", "torch/lib/libtorch_cpu.so": "libtorch_cpu.so"}


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Path]:
    """Add a package of small ELF files to a folder that has a CPU torch 2.13.0; with a tag it gets a version file, as
    torch and torchvision have, and with a wheel it says that it was installed from that."""

    def add(
        name: str, version: str, files: Mapping[str, str], *lines: str, tag: str = "", wheel: str | None = None
    ) -> Path:
        contents: dict[str, str | bytes] = {file: (ELF / source).read_bytes() for file, source in files.items()}
        if "-" in name:  # its Python, which lies beside the compiled module
            contents[f"{name.replace('-', '_')}/__init__.py"] = ""
        if tag:
            contents[f"{name}/version.py"] = f"__version__ = '{version}{tag}'\ncuda = None\nhip = None\n"
        info = install(tmp_path / "packages", name, version, *lines, files=contents)
        if wheel is not None:
            told = {"url": f"https://host/{name.replace('-', '_')}-{version}{wheel}.whl", "archive_info": {}}
            (info / "direct_url.json").write_text(json.dumps(told))
        return info.parent

    add("torch", "2.13.0", TORCH, tag="+cpu")
    return add


@pytest.fixture
def checked(run: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Judge the folder with these facts given: what is found, by rule; with ``whole`` the answer.

    The specimens are installed without their dependencies: that torch cannot be imported without them is true, and told
    elsewhere."""

    def check(*facts: str, site: Path = tmp_path / "packages", whole: bool = False) -> Any:
        words = ("--path", str(site), "--format", "json", *(f"--set={text}" for text in facts))
        result = run("check", "--no-config", *words)
        assert "Traceback" not in result.err, result.err
        told = [one for one in result.json["findings"] if not one["message"].startswith("torch takes ")]
        ids = [one["id"] for one in told if is_error(one)]
        assert whole or len(ids) == len(set(ids))
        return result if whole else {one["id"]: one for one in told}

    return check


def is_error(finding: dict[str, Any]) -> bool:
    """Whether it is an error that is shown."""
    return finding["severity"] == "error" and finding.get("superseded_by") is None


def errors(found: dict[str, Any]) -> dict[str, Any]:
    return {rule: one for rule, one in found.items() if is_error(one)}


COMPANION = "torch-companion-of-another-build"
RELEASE = "torchvision-of-another-torch-release"


def test_a_cuda_torchvision_on_a_cpu_torch_is_one_finding_that_names_both_from_its_facts_file_too(
    run, installed, checked, tmp_path
):
    files = {"torchvision/_C.so": "cuda.so", "torchvision/image.so": "cuda.so"}
    site = installed("torchvision", "0.28.0", files, tag="+cu130")
    (entry,) = errors(checked()).values()
    assert (entry["id"], entry["item"]) == (COMPANION, {"package": "torchvision"})
    assert entry["message"] == "torchvision 0.28.0+cu130 is beside torch 2.13.0+cpu: 0.28.0+cpu belongs there"
    written = run("facts", "--no-config", "--path", str(site), "--format", "json", "--public")
    assert str(site) not in json.dumps(written.json["facts"])
    (tmp_path / "here.json").write_text(written.out)
    result = run("check", "--no-config", "--facts", str(tmp_path / "here.json"), "--format", "json")
    assert [one["id"] for one in result.json["findings"] if one.get("superseded_by") is None] == [COMPANION]


def test_a_torchvision_of_another_release_is_one_finding_even_where_it_loads(installed, checked):
    lines = ("Requires-Dist: torch==2.5.1",)
    site = installed("torchvision", "0.20.1", {"torchvision/_C.so": "old-abi.so"}, *lines, tag="+cpu")
    found = checked()
    assert list(errors(found)) == [RELEASE] == [found["requirement-conflict"]["superseded_by"]]
    shutil.rmtree(site / "torchvision-0.20.1.dist-info")
    installed("torchvision", "0.20.1", {"torchvision/_C.so": "good.so"}, tag="+cpu")
    assert list(errors(checked())) == [RELEASE]


def test_each_package_that_does_not_fit_has_its_own_cause(installed, checked):
    installed("torchvision", "0.28.0", {"torchvision/_C.so": "cuda.so"}, tag="+cu130")
    installed("flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"})
    installed("xformers", "0.0.35", {"xformers/_C.so": "good.so"})
    named = {entry["item"]["package"]: rule for rule, entry in errors(checked()).items()}
    assert named == {"torchvision": COMPANION, "flash-attn": "extension-built-for-another-torch"}


def test_a_torch_without_its_libraries_is_the_only_finding(installed, checked):
    site = installed("torchvision", "0.28.0", {"torchvision/_C.so": "cuda.so"}, tag="+cpu")
    (site / "torch" / "lib" / "libtorch_cpu.so").unlink()
    assert list(errors(checked())) == ["torch-files-missing"]


def test_glibc_and_python_are_those_of_the_target(installed, checked):
    installed("flash-attn", "2.8.3", {"flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so": "new-glibc.so"})
    target = ("os.libc=glibc", "os.libc_version=2.31", "python.version=3.11.9", "python.implementation=cpython")
    found = errors(checked(*target))
    assert set(found) == {"extension-needs-newer-glibc", "extension-for-another-python"}
    assert found["extension-needs-newer-glibc"]["message"].endswith("needs glibc 2.99, this system has 2.31")


def test_a_file_that_was_cut_off_is_a_finding(installed, checked):
    path = installed("xformers", "0.0.35", {"xformers/_C.so": "good.so"}) / "xformers" / "_C.so"
    path.write_bytes(path.read_bytes()[:700])
    (entry,) = errors(checked()).values()
    assert entry["message"] == "xformers/_C.so of xformers 0.0.35 is damaged: it is shorter than its own tables say"


def test_a_wheel_that_names_another_torch_and_does_not_fit_is_one_finding_that_names_it(installed, checked):
    wheel = "%2Bcu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64"
    installed("flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"}, wheel=wheel)
    (entry,) = errors(checked()).values()
    assert entry["id"] == "extension-made-for-another-torch-release"
    assert entry["message"] == "flash-attn 2.7.4.post1 was built for torch 2.6 and does not load with 2.13.0+cpu"


def test_a_wheel_that_names_another_torch_and_fits_all_the_same_is_no_finding(installed, checked):
    wheel = "%2Bcu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64"
    installed("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "good.so"}, wheel=wheel)
    assert [rule for rule in checked("torch.cuda=13.0") if rule.startswith("extension")] == []


def test_where_symbols_cannot_be_compared_what_the_wheel_names_is_an_error(installed, checked):
    wheel = "+cu128torch2.8.0cxx11abiFALSE-cp311-cp311-win_amd64"
    installed("flash-attn", "2.8.3", {"flash_attn_2_cuda.cp311-win_amd64.pyd": "good.so"}, wheel=wheel)
    entry = checked()["extension-named-for-another-torch-release"]
    assert entry["severity"] == "error"
    assert entry["message"] == "flash-attn 2.8.3 says it was built for torch 2.8.0; this is 2.13.0+cpu"


def test_a_package_for_another_machine_c_library_or_cuda_says_which(installed, checked):
    installed("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "cudart.so"})
    installed("deepspeed", "0.19.8", {"deepspeed/ops/op.so": "new-glibcxx.so"})
    found = checked("os.platform=linux", "os.arch=aarch64", "os.libstdcxx=3.4.25", "torch.cuda=13.0", whole=True)
    assert {
        ("extension-for-another-machine", "flash-attn"),
        ("extension-for-another-machine", "deepspeed"),
        ("extension-built-for-another-cuda", "flash-attn"),
        ("extension-needs-newer-libstdcxx", "deepspeed"),
    } <= {(entry["id"], entry["item"].get("package")) for entry in found.json["findings"]}


def test_a_torch_that_was_given_is_not_compared_with_files_of_another(installed, checked):
    installed("flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"})
    result = checked("pkg.torch=2.6.0", whole=True)
    assert result.json["findings"] == []
    assert "extension-built-for-another-torch" in {entry["id"] for entry in result.json["not_checked"]}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real torch 2.13.0 for CPU with the torchvision 0.28.0 that PyPI gives, which is built for CUDA."""

    def make(folder: Path) -> Path:
        into = installing(sys.executable, "--no-deps", "--target", folder)
        here = "PIP_FIND_LINKS" in os.environ  # then a way to pytorch.org may be missing
        index = [] if here else ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
        subprocess.run([*into, *index, "torch==2.13.0+cpu"], check=True, capture_output=True)
        subprocess.run([*into, "torchvision==0.28.0"], check=True, capture_output=True)
        return folder

    return once(tmp_path_factory, "real-torch", make)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="wheels of other systems hold no ELF files")
def test_the_real_torchvision_of_pypi_beside_the_real_cpu_torch(run, checked, wheels):
    (entry,) = errors(checked(site=wheels)).values()
    assert entry["id"] == COMPANION
    assert entry["message"] == "torchvision 0.28.0+cu130 is beside torch 2.13.0+cpu: 0.28.0+cpu belongs there"
    facts = run("facts", "--no-config", "--path", str(wheels), "--format", "json").json["facts"]
    (item,) = facts["extension"]
    assert item["unresolved"] >= 16  # those of libc10_cuda and libtorch_cuda
    assert item["example"].startswith("c10::cuda::")


@pytest.mark.slow
def test_real_wheels_of_one_release_fit_each_other_on_aarch64_too(run, checked, tmp_path):
    into = installing(sys.executable, "--no-deps", "--target", tmp_path / "packages", "--only-binary", ":all:")
    platform = ["--python-platform", "aarch64-manylinux2014", "--python-version", "3.11"]
    wheels = ["torch==2.5.1", "torchvision==0.20.1", "torchaudio==2.5.1"]
    subprocess.run([*into, *platform, *wheels], check=True, capture_output=True)
    # The folder is for another machine than this one: that is said, as its user would.
    assert errors(checked("os.arch=aarch64")) == {}
    facts = run("facts", "--no-config", "--path", str(tmp_path / "packages"), "--format", "json").json["facts"]
    read = {item["package"]: (item["arch"], item["unresolved"]) for item in facts["extension"]}
    assert read == {"torchvision": ("aarch64", 0), "torchaudio": ("aarch64", 0)}
