"""How torch was built, and whether its libraries are there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooms import observer

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe.packages.reading.version_files import _assignments

KEYS = observer("torch_build").KEYS
_listed_libraries = observer("torch_build")._listed_libraries

VERSION = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.5.1+cu124'
debug = False
cuda: Optional[str] = '12.4'
git_version = 'a8d6afb511a69687bbb2b7e88a3cf67917e1697e'
hip: Optional[str] = None
xpu: Optional[str] = None
"""
NEW = b"\0_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0"
OLD = b"\0_ZN3c105ErrorC2ENS_14SourceLocationESs\0"


@pytest.fixture
def torch(bare: Path, make_dist) -> Path:
    """A torch of three libraries that its RECORD lists."""
    record = "\n".join(
        ["torch/__init__.py,sha256=x,1"]
        + [f"torch/lib/{name},sha256=x,1" for name in ("libc10.so", "libgomp.so.1", "libtorch_cpu.so")]
        + ["torch/lib/libtorchbind_test.so,sha256=x,1", "torch/lib/libshm/core.h,sha256=x,1", "torch/version.py,,"]
    )
    make_dist(bare, "torch", "2.5.1", RECORD=record + "\n")
    (bare / "torch" / "lib").mkdir(parents=True)
    (bare / "torch" / "version.py").write_text(VERSION)
    for name in ("libgomp.so.1", "libtorch_cpu.so"):
        (bare / "torch" / "lib" / name).write_bytes(b"x")
    (bare / "torch" / "lib" / "libc10.so").write_bytes(b"\x7fELF" + b"y" * 300_000 + NEW)
    return bare


def test_a_cuda_build_is_read(torch: Path, read) -> None:
    facts = read(path=torch)[2]
    assert facts["torch.cuda"] == "12.4"
    assert facts["torch.hip"] is ABSENT
    assert facts["torch.git"] == "a8d6afb511a69687bbb2b7e88a3cf67917e1697e"
    assert facts["torch.cxx11_abi"] is True
    assert facts["torch.missing_files"] == ()


def test_a_cpu_build_has_no_cuda_and_no_architectures(torch: Path, read) -> None:
    (torch / "torch" / "version.py").write_text(VERSION.replace("'12.4'", "None"))
    facts = read(path=torch)[2]
    assert facts["torch.cuda"] is ABSENT


def test_a_rocm_build_has_a_hip_version_of_integers(torch: Path, read) -> None:
    text = VERSION.replace("'12.4'", "None").replace(
        "hip: Optional[str] = None", "hip: Optional[str] = '6.2.41133-dd7f95766'"
    )
    (torch / "torch" / "version.py").write_text(text)
    facts = read(path=torch)[2]
    assert facts["torch.hip"] == "6.2.41133"
    assert facts["torch.cuda"] is ABSENT


def test_the_old_string_is_the_old_abi(torch: Path, read) -> None:
    (torch / "torch" / "lib" / "libc10.so").write_bytes(OLD)
    assert read(path=torch)[2]["torch.cxx11_abi"] is False


@pytest.mark.parametrize("before", range((1 << 18) - 80, (1 << 18) + 2, 9))
def test_a_symbol_between_two_reads_is_found(torch: Path, read, before: int) -> None:
    (torch / "torch" / "lib" / "libc10.so").write_bytes(b"y" * before + NEW + b"z" * 1000)
    assert read(path=torch)[2]["torch.cxx11_abi"] is True


def test_a_library_without_either_symbol_leaves_the_abi_unknown(torch: Path, read) -> None:
    (torch / "torch" / "lib" / "libc10.so").write_bytes(b"nothing")
    assert isinstance(read(path=torch)[2]["torch.cxx11_abi"], Unknown)


def test_macos_has_no_libstdcxx(torch: Path, read) -> None:
    (torch / "torch" / "lib" / "libc10.so").rename(torch / "torch" / "lib" / "libc10.dylib")
    assert read(path=torch)[2]["torch.cxx11_abi"] is ABSENT


def test_a_library_that_is_gone_is_named(torch: Path, read) -> None:
    (torch / "torch" / "lib" / "libtorch_cpu.so").unlink()
    assert read(path=torch)[2]["torch.missing_files"] == ("torch/lib/libtorch_cpu.so",)


def test_a_link_to_a_library_that_is_gone_counts_as_gone(torch: Path, read) -> None:
    (torch / "torch" / "lib" / "libtorch_cpu.so").unlink()
    (torch / "torch" / "lib" / "libtorch_cpu.so").symlink_to("gone.so")
    assert read(path=torch)[2]["torch.missing_files"] == ("torch/lib/libtorch_cpu.so",)


def test_without_its_folder_every_library_is_gone(torch: Path, read) -> None:
    (torch / "torch" / "lib").rename(torch / "elsewhere")
    facts = read(path=torch)[2]
    assert len(facts["torch.missing_files"]) == 3
    assert isinstance(facts["torch.cxx11_abi"], Unknown)


def test_without_record_nothing_is_said_of_missing_files(torch: Path, read) -> None:
    (torch / "torch-2.5.1.dist-info" / "RECORD").unlink()
    assert isinstance(read(path=torch)[2]["torch.missing_files"], Unknown)


def test_a_record_without_libraries_says_nothing_of_missing_files(torch: Path, read) -> None:
    (torch / "torch-2.5.1.dist-info" / "RECORD").write_text("torch/version.py,,\n")
    assert isinstance(read(path=torch)[2]["torch.missing_files"], Unknown)


def test_of_two_records_the_one_of_the_version_file_is_read(torch: Path, make_dist, read) -> None:
    make_dist(torch, "torch", "2.6.0", RECORD="x,,\ntorch/lib/libgone.so,,\n")
    assert read(path=torch)[2]["torch.missing_files"] == ()


def test_without_torch_everything_is_unknown_and_says_why(bare: Path, make_dist, read) -> None:
    make_dist(bare, "numpy", "1.0")
    facts = read(path=bare)[2]
    assert {facts[key] for key in KEYS} == {Unknown("torch is not installed")}
    assert "pkg.torch" not in facts


def test_a_torch_without_its_version_file_says_so(bare: Path, make_dist, read) -> None:
    make_dist(bare, "torch", "2.5.1")
    facts = read(path=bare)[2]
    assert facts["pkg.torch"] == "2.5.1"
    others = [key for key in KEYS if key != "torch.missing_files"]
    assert {facts[key] for key in others} == {Unknown("there is no torch/version.py")}
    assert isinstance(facts["torch.missing_files"], Unknown)


def test_metadata_that_stayed_tells_that_the_folder_is_gone(torch: Path, read) -> None:
    shutil.rmtree(torch / "torch")
    assert len(read(path=torch)[2]["torch.missing_files"]) == 3


def test_of_two_metadata_directories_that_stayed_none_is_believed(torch: Path, make_dist, read) -> None:
    shutil.rmtree(torch / "torch")
    make_dist(torch, "torch", "2.6.0")
    assert read(path=torch)[2]["torch.missing_files"] == Unknown("there is no torch/version.py")


@pytest.mark.parametrize("gone", ["libc10.so", "libtorch_cpu.so"])
def test_without_record_one_library_of_the_pair_tells_that_the_other_is_gone(torch: Path, read, gone: str) -> None:
    (torch / "torch-2.5.1.dist-info" / "RECORD").unlink()
    (torch / "torch" / "lib" / gone).unlink()
    assert read(path=torch)[2]["torch.missing_files"] == (f"torch/lib/{gone}",)


def test_without_record_a_torch_whose_libraries_are_elsewhere_is_not_incomplete(torch: Path, read) -> None:
    (torch / "torch-2.5.1.dist-info" / "RECORD").unlink()
    for name in ("libc10.so", "libtorch_cpu.so"):
        (torch / "torch" / "lib" / name).unlink()
    assert isinstance(read(path=torch)[2]["torch.missing_files"], Unknown)


@pytest.mark.parametrize("value", ["'twelve'", "''", "True", "'12.4' or None", "['12.4']"])
def test_a_cuda_that_is_no_version_is_unknown(torch: Path, read, value: str) -> None:
    (torch / "torch" / "version.py").write_text(VERSION.replace("'12.4'", value))
    assert isinstance(read(path=torch)[2]["torch.cuda"], Unknown)


@given(st.text(max_size=400))
def test_any_text_of_a_version_file_gives_plain_values(text: str) -> None:
    for value in _assignments(text, "torch/version.py").values():
        assert value is ABSENT or isinstance(value, (str, bool, Unknown))


@given(
    st.lists(
        st.sampled_from([b"torch/lib/libc10.so", b",", b"\n", b'"', b"\xff", b"torch/lib/", b"/../x.so"]), max_size=30
    )
)
def test_any_record_lists_names_of_libraries_only(parts: list[bytes]) -> None:
    for name in _listed_libraries([b"".join(parts)]):
        assert "/" not in name
        assert ".so" in name
