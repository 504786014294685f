"""The fact ``extension``: compiled files of packages built against torch, compared with the torch that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from observing import choose, observe, one
from rooms import observer

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe.binaries.reading.extension_reading import read_package
from envdoctor.text import Files

extension = observer("extension")

Install = Callable[..., None]
Read = Callable[[], Records]


def only(records: Records) -> Mapping[str, Any]:
    (item,) = records
    return item


def test_an_extension_of_this_torch_lacks_nothing(install: Install, extensions: Read) -> None:
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so": "good.so"})
    records = extensions()
    assert records.incomplete is None
    assert only(records) == {
        "package": "flash-attn",
        "version": "2.8.3",
        "file": "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so",
        "path": only(records)["path"],
        "unresolved": 0,
        "example": ABSENT,
        "missing_library": ABSENT,
        "glibc_needs": ABSENT,
        "glibcxx_needs": ABSENT,
        "python_tag": "cp311",
        "arch": "x86_64",
        "problem": ABSENT,
        "built_torch": ABSENT,
        "built_cuda": ABSENT,
        "built_says": ABSENT,
    }


def test_a_symbol_that_no_library_of_torch_exports_is_counted_and_named(install: Install, extensions: Read) -> None:
    install("flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": "old-abi.so"})
    item = only(extensions())
    assert (item["unresolved"], item["example"], item["missing_library"]) == (1, "c10::Error::Error", ABSENT)


def test_a_library_of_another_torch_is_named_with_the_file_that_needs_it(install: Install, extensions: Read) -> None:
    install("torchvision", "0.28.0", {"torchvision/a.so": "good.so", "torchvision/_C.so": "cuda.so"})
    item = only(extensions())
    assert (item["missing_library"], item["file"]) == ("libc10_cuda.so", "torchvision/_C.so")
    assert item["example"] == "c10::cuda::SetDevice"


def test_weak_symbols_are_not_missed(install: Install, extensions: Read) -> None:
    install("xformers", "0.0.35", {"xformers/_C.so": "weak.so"})
    assert only(extensions())["unresolved"] == 0


def test_what_a_sibling_gives_is_not_missed(install: Install, extensions: Read) -> None:
    install("torchaudio", "2.11.0", {"torchaudio/_a.so": "uses-shared.so", "torchaudio/lib/_b.so": "gives-shared.so"})
    assert only(extensions())["unresolved"] == 0
    install("xformers", "0.0.35", {"xformers/_C.so": "uses-shared.so"})
    assert [item["unresolved"] for item in extensions()] == [0, 0]


def test_the_highest_glibc_is_kept(install: Install, extensions: Read) -> None:
    install("deepspeed", "0.19.8", {"deepspeed/ops/a.so": "new-glibc.so", "deepspeed/ops/b.so": "good.so"})
    assert only(extensions())["glibc_needs"] == "2.99"


def test_a_damaged_file_is_a_problem_and_hides_no_other(install: Install, extensions: Read, elf: Path) -> None:
    cut = (elf / "good.so").read_bytes()[:700]
    install("torchvision", "0.28.0", {"torchvision/_C.so": cut, "torchvision/image.so": "old-abi.so"})
    item = only(extensions())
    assert (item["problem"], item["file"]) == ("it is shorter than its own tables say", "torchvision/_C.so")
    assert item["unresolved"] == 1
    install("xformers", "0.0.35", {"xformers/_C.so": b""})
    lone = next(item for item in extensions() if item["package"] == "xformers")
    assert lone["problem"] == "it is no ELF file"
    assert isinstance(lone["unresolved"], Unknown)


def test_what_is_not_covered_leaves_the_list_incomplete_and_its_package_unknown(
    install: Install, extensions: Read
) -> None:
    install("torchvision", "0.28.0+cu130", {"torchvision/_C.so": b"\xcf\xfa\xed\xfe" + bytes(200)})
    records = extensions()
    assert records.incomplete == "torchvision/_C.so was not read: it is no ELF file"
    item = only(records)
    assert item["unresolved"] == item["problem"] == Unknown(records.incomplete)
    assert (item["built_cuda"], item["built_says"]) == ("13.0", "its local version")


def test_a_torch_that_is_incomplete_or_damaged_is_nothing_to_compare_with(
    install: Install, extensions: Read, site: Path
) -> None:
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "cuda.so"})
    library = site / "torch" / "lib" / "libtorch_cpu.so"
    library.write_bytes(library.read_bytes()[:500])
    reason = only(extensions())["unresolved"]
    assert reason == Unknown("torch/lib/libtorch_cpu.so cannot be read: it is shorter than its own tables say")
    library.unlink()
    item = only(extensions())
    assert item["unresolved"] == item["missing_library"] == Unknown("libraries of torch itself are missing")
    shutil.rmtree(site / "torch")
    assert only(extensions())["unresolved"] == Unknown("there is no torch to compare with")


def test_an_extension_for_another_machine_is_not_compared(install: Install, extensions: Read, elf: Path) -> None:
    content = bytearray((elf / "old-abi.so").read_bytes())
    content[18] = 183
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": bytes(content)})
    item = only(extensions())
    assert item["arch"] == "aarch64"
    assert item["unresolved"] == Unknown("flash_attn_2_cuda.so is for aarch64, torch for x86_64")


def test_without_a_list_of_files_the_modules_are_looked_for(install: Install, extensions: Read) -> None:
    files = {"flash_attn_2_cuda.so": "old-abi.so", "flash_attn/ops/deep/x.so": "good.so", "numpy.so": "cuda.so"}
    install("flash-attn", "2.8.3", files, record=False)
    item = only(extensions())
    assert (item["file"], item["missing_library"]) == ("flash_attn_2_cuda.so", ABSENT)


def test_libraries_that_a_wheel_brings_along_and_paths_that_lead_away_are_left_alone(
    install: Install, extensions: Read, site: Path
) -> None:
    install("torchvision", "0.28.0", {"torchvision/_C.so": "good.so", "torchvision.libs/libpng.so": b"no ELF"})
    record = site / "torchvision-0.28.0.dist-info" / "RECORD"
    (site.parent / "outside.so").write_bytes(b"no ELF")
    record.write_text(record.read_text() + f"../outside.so,,\n{site.parent}/outside.so,,\n")
    assert only(extensions())["problem"] is ABSENT


def test_compiled_files_of_windows_tell_their_python_and_what_they_were_built_for(
    install: Install, extensions: Read
) -> None:
    install("flash-attn", "2.8.3+cu128torch2.8.0cxx11abifalse", {"flash_attn_2_cuda.cp311-win_amd64.pyd": b"MZ"})
    records = extensions()
    reason = "compiled files for Windows are not read: flash_attn_2_cuda.cp311-win_amd64.pyd"
    assert records.incomplete == reason
    item = only(records)
    assert (item["python_tag"], item["built_torch"], item["built_cuda"]) == ("cp311", "2.8.0", "12.8")
    assert item["unresolved"] == item["missing_library"] == item["problem"] == Unknown(reason)


def test_the_cuda_that_a_file_is_linked_to_is_what_it_was_built_for(install: Install, extensions: Read) -> None:
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "cudart.so"})
    item = only(extensions())
    assert (item["built_cuda"], item["built_says"]) == ("12", "libcudart.so.12 in its compiled files")


@pytest.mark.parametrize(("tag", "cuda"), [("cu128", "12.8"), ("cu130", "12")])
def test_a_tag_tells_the_minor_version_unless_the_file_contradicts_it(
    install: Install, extensions: Read, tag: str, cuda: str
) -> None:
    install("vllm", f"0.12.0+{tag}", {"vllm/_C.so": "cudart.so"})
    assert only(extensions())["built_cuda"] == cuda


def test_files_for_several_cudas_are_built_for_none_of_them(install: Install, extensions: Read, elf: Path) -> None:
    other = (elf / "cudart.so").read_bytes().replace(b"libcudart.so.12", b"libcudart.so.13")
    install("vllm", "0.12.0", {"vllm/_C.so": "cudart.so", "vllm/_C13.so": other})
    assert only(extensions())["built_cuda"] == Unknown("its files are linked to CUDA 12 and 13")


def test_the_highest_glibcxx_is_kept(install: Install, extensions: Read) -> None:
    install("deepspeed", "0.19.8", {"deepspeed/ops/a.so": "new-glibcxx.so", "deepspeed/ops/b.so": "good.so"})
    assert only(extensions())["glibcxx_needs"] == "3.4.28"


def test_symbols_are_read_until_there_is_no_more_room_for_them(install: Install, site: Path) -> None:
    install("vllm", "0.12.0", {"vllm/a.so": "good.so", "vllm/b.so": "good.so", "vllm/c.so": "good.so"})
    found = [(str(site / "vllm" / name), name) for name in ("a.so", "b.so", "c.so")]
    once = read_package(found[:1], Files()).files[0].size
    package = read_package(found, Files(), room=once + 1)
    assert [one.name for one in package.files] == ["a.so", "b.so"]
    assert package.unread == "c.so was not read: the files before it ask for too many symbols"


def test_names_in_record_that_are_quoted_or_too_long_are_passed_over(
    install: Install, extensions: Read, site: Path
) -> None:
    install("torchvision", "0.28.0", {"torchvision/_C.so": "good.so"})
    record = site / "torchvision-0.28.0.dist-info" / "RECORD"
    record.write_bytes(b'"a,b.so",,\n' + b"x" * 500 + b".so,,\nx,y.so,,\n" + record.read_bytes() + b"tail.so,")
    assert only(extensions())["file"] == "torchvision/_C.so"


def test_libraries_of_a_conda_torch_may_lie_in_the_folder_of_all_libraries(
    tmp_path: Path, elf: Path, table: Mapping[str, Any]
) -> None:
    prefix = tmp_path / "conda"
    packages = prefix / "lib" / "python3.11" / "site-packages"
    (packages / "torch" / "lib").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    (prefix / "bin").mkdir()
    (prefix / "conda-meta" / "torchvision-0.28.0-py311_0.json").write_text("{}")
    (prefix / "conda-meta" / "python-3.11.9-h0_0.json").write_text("{}")
    (packages / "torch" / "version.py").write_text("__version__ = '2.13.0'\n")
    (packages / "torchvision").mkdir()
    for source, place in (
        ("libc10.so", prefix / "lib"),
        ("libtorch_cpu.so", prefix / "lib"),
        ("old-abi.so", packages / "torchvision"),
    ):
        shutil.copy(elf / source, place / source)
    layout = choose(str(prefix), None, None, environ={}, cwd=str(tmp_path))
    assert layout.kind == "conda"
    value = one(extension, layout, observe(layout).seen, rows=lambda name, part: table[part]).value
    assert isinstance(value, Records)
    assert (only(value)["package"], only(value)["unresolved"]) == ("torchvision", 1)


def test_more_files_than_any_package_has_leave_the_list_incomplete(install: Install, extensions: Read) -> None:
    install("vllm", "0.12.0", {f"vllm/_{number:03}.so": "good.so" for number in range(70)})
    assert extensions().incomplete == "only 64 of the compiled files of one package were read"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
def test_a_fifo_in_place_of_a_file_is_not_waited_for(install: Install, extensions: Read, site: Path) -> None:
    install("torchvision", "0.28.0", {"torchvision/_C.so": "good.so"}, record=False)
    (site / "torchvision" / "_C.so").unlink()
    os.mkfifo(site / "torchvision" / "_C.so")
    assert extensions().incomplete == "torchvision/_C.so cannot be read: it is not a regular file"


def test_packages_of_no_interest_cost_nothing(install: Install, site: Path, table: Mapping[str, Any]) -> None:
    install("numpy", "2.4.6", {"numpy/core.so": b"no ELF"})
    layout = choose(None, str(site), None, environ={}, cwd=str(site.parent))
    facts = observe(layout).seen
    assert one(extension, layout, facts, rows=lambda name, part: table[part]).value == Records((), None)
