"""The fact ``extension``: compiled files of packages built against torch, compared with the torch that is there."""

import os
import shutil
from pathlib import Path

import pytest
from elf_writer import shared_object
from observing import choose, observe, one, write
from rooms import observer
from tables import cases

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.matrix import load_toml
from envdoctor.observe.binaries.extension import read_package
from envdoctor.system import Files

CASES = cases("extensions.toml")

extension = observer("extension")

FLASH = "flash_attn_2_cuda.so"
TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "elf" / "symbols.toml")


def test_an_extension_of_this_torch_lacks_nothing(install, extensions, item) -> None:
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so": "good.so"})
    assert extensions().incomplete is None
    found = item()
    absent = "example missing_library glibc_needs glibcxx_needs problem built_torch built_cuda built_says built_abi"
    assert found == {
        "package": "flash-attn",
        "version": "2.8.3",
        "file": "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so",
        "path": found["path"],
        "unresolved": 0,
        "python_tag": "cp311",
        "arch": "x86_64",
        **dict.fromkeys(absent.split(), ABSENT),
    }


@pytest.mark.parametrize(("dist", "files", "found"), CASES["compiled_files_ask"])
def test_what_compiled_files_ask_for_is_told(install, item, dist, files, found) -> None:
    install(*dist.split(), files)
    assert item().items() >= found.items()


@pytest.mark.parametrize(("symbol", "shown"), TABLE["symbols"])
def test_symbols_of_torch_that_it_lacks_are_counted_and_shown(install, item, symbol: str, shown: str) -> None:
    install("flash-attn", "2.8.3", {FLASH: shared_object(asks=[symbol], needs=["libc10.so"])})
    found = item()
    assert (found["unresolved"], found["example"]) == ((0, ABSENT) if shown == "none" else (1, shown))


@pytest.mark.parametrize(("library", "ours"), TABLE["libraries"])
def test_libraries_of_torch_are_known_by_name(install, item, library: str, ours: bool) -> None:
    install("flash-attn", "2.8.3", {FLASH: shared_object(needs=["libc10.so", library])})
    assert item()["missing_library"] == (library if ours else ABSENT)


def test_what_a_sibling_gives_is_not_missed(install, extensions) -> None:
    install("torchaudio", "2.11.0", {"torchaudio/_a.so": "uses-shared.so", "torchaudio/lib/_b.so": "gives-shared.so"})
    assert [item["unresolved"] for item in extensions()] == [0]
    install("xformers", "0.0.35", {"xformers/_C.so": "uses-shared.so"})
    assert [item["unresolved"] for item in extensions()] == [0, 0]


def test_a_damaged_file_is_a_problem_and_hides_no_other(install, extensions, elf: Path) -> None:
    cut = (elf / "good.so").read_bytes()[:700]
    install("torchvision", "0.28.0", {"torchvision/_C.so": cut, "torchvision/image.so": "old-abi.so"})
    install("xformers", "0.0.35", {"xformers/_C.so": b""})
    vision, lone = sorted(extensions(), key=lambda item: item["package"])
    assert (vision["problem"], vision["file"]) == ("it is shorter than its own tables say", "torchvision/_C.so")
    assert (vision["unresolved"], lone["problem"]) == (1, "it is no ELF file")
    assert isinstance(lone["unresolved"], Unknown)


@pytest.mark.parametrize(
    ("dist", "file", "content", "reason", "found"),
    [
        (
            "torchvision 0.28.0+cu130",
            "torchvision/_C.so",
            b"\xcf\xfa\xed\xfe" + bytes(200),
            "torchvision/_C.so was not read: it is no ELF file",
            {"built_cuda": "13.0", "built_says": "its local version"},
        ),
        # compiled files of Windows tell their Python and what they were built for
        (
            "flash-attn 2.8.3+cu128torch2.8.0cxx11abifalse",
            "flash_attn_2_cuda.cp311-win_amd64.pyd",
            b"MZ",
            "compiled files for Windows are not read: flash_attn_2_cuda.cp311-win_amd64.pyd",
            {"python_tag": "cp311", "built_torch": "2.8.0", "built_cuda": "12.8", "missing_library": Unknown},
        ),
    ],
)
def test_what_is_not_covered_leaves_the_list_incomplete_and_its_package_unknown(
    install, extensions, item, dist, file, content, reason, found
) -> None:
    install(*dist.split(), {file: content})
    assert extensions().incomplete == reason
    said = {**dict.fromkeys(("unresolved", "problem"), Unknown), **found}
    assert item().items() >= {key: Unknown(reason) if cell is Unknown else cell for key, cell in said.items()}.items()


def test_a_torch_that_is_incomplete_or_damaged_is_nothing_to_compare_with(install, item, site: Path) -> None:
    install("flash-attn", "2.8.3", {FLASH: "cuda.so"})
    library = site / "torch" / "lib" / "libtorch_cpu.so"
    library.write_bytes(library.read_bytes()[:500])
    reason = "torch/lib/libtorch_cpu.so cannot be read: it is shorter than its own tables say"
    assert item()["unresolved"] == Unknown(reason)
    library.unlink()
    found = item()
    assert found["unresolved"] == found["missing_library"] == Unknown("libraries of torch itself are missing")
    shutil.rmtree(site / "torch")
    assert item()["unresolved"] == Unknown("there is no torch to compare with")


def test_an_extension_for_another_machine_is_not_compared(install, item) -> None:
    install("flash-attn", "2.8.3", {FLASH: shared_object(needs=["libc10.so"], machine="aarch64")})
    found = item()
    assert found["arch"] == "aarch64"
    assert found["unresolved"] == Unknown("flash_attn_2_cuda.so is for aarch64, torch for x86_64")


def test_without_a_list_of_files_the_modules_are_looked_for(install, item) -> None:
    files = {FLASH: "old-abi.so", "flash_attn/ops/deep/x.so": "good.so", "numpy.so": "cuda.so"}
    install("flash-attn", "2.8.3", files, record=False)
    found = item()
    assert (found["file"], found["missing_library"]) == (FLASH, ABSENT)


def test_libraries_that_a_wheel_brings_along_and_paths_that_lead_away_are_left_alone(install, item, site: Path) -> None:
    info = install("torchvision", "0.28.0", {"torchvision/_C.so": "good.so", "torchvision.libs/libpng.so": b"no ELF"})
    (site.parent / "outside.so").write_bytes(b"no ELF")
    with (info / "RECORD").open("a") as record:
        record.write(f"../outside.so,,\n{site.parent}/outside.so,,\n")
    assert item()["problem"] is ABSENT


def test_files_for_several_cudas_are_built_for_none_of_them(install, item, elf: Path) -> None:
    other = (elf / "cudart.so").read_bytes().replace(b"libcudart.so.12", b"libcudart.so.13")
    install("vllm", "0.12.0", {"vllm/_C.so": "cudart.so", "vllm/_C13.so": other})
    assert item()["built_cuda"] == Unknown("its files are linked to CUDA 12 and 13")


def test_symbols_are_read_until_there_is_no_more_room_for_them(install, site: Path) -> None:
    install("vllm", "0.12.0", {"vllm/a.so": "good.so", "vllm/b.so": "good.so", "vllm/c.so": "good.so"})
    found = [(str(site / "vllm" / name), name) for name in ("a.so", "b.so", "c.so")]
    once = sum(map(len, read_package(found[:1], Files()).files[0].symbols))
    package = read_package(found, Files(), room=once + 1)
    assert [one.name for one in package.files] == ["a.so", "b.so"]
    assert package.unread == "c.so was not read: the files before it ask for too many symbols"


@pytest.mark.parametrize(
    "flood",
    [b".so," * 6_000_000, b"x" * 24_000_000 + b".so,", b'a,".so,,\n' * 3_000_000, b".so,\n" * 5_000_000],
    ids=["one line of endings", "one long name", "lines that name nothing", "one name again and again"],
)
def test_a_list_of_megabytes_of_endings_is_done_with(install, item, flood: bytes) -> None:
    # Looking back to the beginning of the list at each ending would take hours.
    info = install("vllm", "0.12.0", {"vllm/_C.so": "good.so"})
    (info / "RECORD").write_bytes(b"vllm/_C.so,sha256=x,1\n" + flood)
    assert item()["file"] == "vllm/_C.so"


def test_names_in_record_that_are_quoted_or_too_long_are_passed_over(install, item, site: Path) -> None:
    longest, longer = (f"vllm/{'n' * 200}/{'n' * (length - 209)}.so" for length in (400, 401))
    info = install("vllm", "0.28.0", {longest: "old-abi.so", longer: "cuda.so"})
    names = f'"a,b.so",,\n{"x" * 500}.so,,\nx,y.so,,\n{longest},,\n{longer},,\ntail.so,'
    for before in ("", "x.py,,\n"):
        (info / "RECORD").write_text(before + names)
        assert (len(longest), item()["file"], item()["missing_library"]) == (400, longest, ABSENT)


def test_libraries_of_a_conda_torch_may_lie_in_the_folder_of_all_libraries(tmp_path: Path, elf: Path) -> None:
    prefix = tmp_path / "conda"
    packages = prefix / "lib" / "python3.11" / "site-packages"
    write(packages, {"torch/version.py": "__version__ = '2.13.0'\n", "torch/lib/x": "", "torchvision/x": ""})
    write(prefix / "conda-meta", {"torchvision-0.28.0-py311_0.json": "{}", "python-3.11.9-h0_0.json": "{}"})
    for source, folder in (("libc10.so", "lib"), ("libtorch_cpu.so", "lib"), ("old-abi.so", packages / "torchvision")):
        shutil.copy(elf / source, prefix / folder / source)
    layout = choose(prefix)
    assert layout.kind == "conda"
    (item,) = one(extension, layout, observe(layout).seen).value
    assert (item["package"], item["unresolved"]) == ("torchvision", 1)


def test_more_files_than_any_package_has_leave_the_list_incomplete(install, extensions) -> None:
    install("vllm", "0.12.0", {f"vllm/_{number:03}.so": "good.so" for number in range(65)})
    assert extensions().incomplete == "only 64 of the compiled files of one package were read"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
def test_a_fifo_in_place_of_a_file_is_not_waited_for(install, extensions, site: Path) -> None:
    install("torchvision", "0.28.0", {"torchvision/_C.so": "good.so"}, record=False)
    (site / "torchvision" / "_C.so").unlink()
    os.mkfifo(site / "torchvision" / "_C.so")
    assert extensions().incomplete == "torchvision/_C.so cannot be read: it is not a regular file"


def test_packages_of_no_interest_cost_nothing(install, extensions) -> None:
    install("numpy", "2.4.6", {"numpy/core.so": b"no ELF"})
    assert extensions() == Records((), None)
