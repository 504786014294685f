"""Whether torch's libraries can be loaded: their own state, and the CUDA libraries that they ask for."""

import os
import struct
import sys
from pathlib import Path

import pytest
from elf_writer import write_shared_object
from observing import a_layout, ask
from rooms import observer

from envdoctor.facts import ABSENT, Fact, FactSet, Unknown

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loader is that of Linux")

CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"
RPATH = "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """torch with its wheels: cuDNN in a folder of its own, cuBLAS in the one of CUDA 13."""
    folder = tmp_path / "env" / "packages"
    lib = folder / "torch" / "lib"
    write_shared_object(lib / "libc10.so", needed=["libc.so.6"])
    write_shared_object(lib / "libtorch_cpu.so", needed=["libc10.so"], rpath=RPATH)
    needed = ["libcudnn.so.9", "libcublas.so.13", "libcusparseLt-294d6944.so.0", "libcuda.so.1", "libtorch_cpu.so"]
    write_shared_object(lib / "libtorch_cuda.so", needed=needed, rpath=RPATH)
    write_shared_object(folder / CUDNN)
    write_shared_object(folder / "nvidia" / "cu13" / "lib" / "libcublas.so.13")
    return folder


@pytest.fixture
def read(site: Path, tmp_path: Path):
    """Both facts, the damaged files first."""

    def run(cuda="13.0", here: bool = True, more: tuple[Path, ...] = (), incomplete: str | None = None, **environ: str):
        layout = a_layout(tmp_path / "env", site, *more, live=here, incomplete=incomplete)
        facts = FactSet([Fact("torch.cuda", cuda, "", ""), Fact("pkg.torch", "2.9.1", "", "")])
        request = ask(layout, environ=environ, root=str(tmp_path / "system"), facts=facts)
        return tuple(fact.value for fact in observer("torch_loading").observe(request))

    return run


@pytest.mark.parametrize(
    ("size", "why"), [(0, "empty"), (3, "no ELF file"), (40, "cut off"), (200, "shorter than its own tables say")]
)
def test_a_library_that_is_cut_off_is_damaged(site, read, size, why):
    path = site / "torch" / "lib" / "libtorch_cpu.so"
    path.write_bytes(path.read_bytes()[:size])
    assert read()[0] == (f"torch/lib/libtorch_cpu.so (it is {why})",)
    assert read(cuda=ABSENT, here=False)[0] == (f"torch/lib/libtorch_cpu.so (it is {why})",)


def test_a_fifo_in_place_of_a_library_is_damage_and_does_not_hang(site, read):
    (site / "torch" / "lib" / "libc10.so").unlink()
    os.mkfifo(site / "torch" / "lib" / "libc10.so")
    assert read()[0] == ("torch/lib/libc10.so (it is not a regular file)",)


def test_what_is_gone_or_for_another_machine_is_not_damaged(site, read):
    (site / "torch" / "lib" / "libc10.so").unlink()
    (site / "torch" / "lib" / "libc10.so").symlink_to("gone.so")
    path = site / "torch" / "lib" / "libtorch_cpu.so"
    content = bytearray(path.read_bytes())
    content[18:20] = struct.pack("<H", 21)
    path.write_bytes(content)
    assert read()[0] == ()


def test_a_torch_without_such_files_is_not_known(site, read):
    for path in (site / "torch" / "lib").iterdir():
        path.unlink()
    assert all(isinstance(value, Unknown) for value in read())


def test_libraries_that_are_nowhere_are_missing(site, read):
    (site / CUDNN).unlink()
    assert read()[1] == ("libcudnn.so.9",)
    (site / "nvidia" / "cu13" / "lib" / "libcublas.so.13").unlink()
    (site / "nvidia" / "cu13" / "lib" / "libcublas.so.13").symlink_to("/gone/libcublas.so.13")
    assert read()[1] == ("libcudnn.so.9", "libcublas.so.13")


@pytest.mark.parametrize(
    "place", ["env/lib", "other/nvidia/cudnn/lib", "other/nvidia/elsewhere/lib", "system/usr/lib64"]
)
def test_a_library_in_another_place_is_not_missing(site, read, tmp_path, place):
    (tmp_path / place).mkdir(parents=True)
    (site / CUDNN).rename(tmp_path / place / "libcudnn.so.9")
    assert read(more=(tmp_path / "other",))[1] == ()


def test_a_library_that_variables_bring_is_not_missing(site, read, tmp_path):
    path = (site / CUDNN).rename(tmp_path / "libcudnn.so.9")
    assert read()[1] == ("libcudnn.so.9",)
    assert read(LD_LIBRARY_PATH=f"/nowhere:{tmp_path}")[1] == ()
    assert read(LD_PRELOAD=str(path))[1] == ()


def test_a_library_of_the_loaders_cache_is_not_missing(site, read, tmp_path, loader_cache):
    (site / CUDNN).unlink()
    write_shared_object(tmp_path / "system" / "opt" / "cudnn" / "libcudnn.so.9")
    loader_cache(tmp_path / "system", [("libcudnn.so.9", "/opt/cudnn/libcudnn.so.9")])
    assert read()[1] == ()


def test_a_whole_torch_has_all_it_asks_for_and_links_to_wheels_in_a_cache_are_as_good_as_files(site, read, tmp_path):
    assert read() == ((), ())
    for number, path in enumerate([*site.rglob("*.so"), *site.rglob("*.so.*")]):
        path.rename(tmp_path / f"archive-{number}")
        path.symlink_to(tmp_path / f"archive-{number}")
    assert read() == ((), ())


def test_a_torch_that_does_not_look_for_wheels_is_not_judged(site, read):
    """One that was built with the system's CUDA finds it by what its own shell or module sets."""
    for name in ("libtorch_cpu.so", "libtorch_cuda.so"):
        rpath = "$ORIGIN:/usr/local/cuda/lib64"
        write_shared_object(site / "torch" / "lib" / name, needed=["libcudnn.so.9"], rpath=rpath)
    (site / CUDNN).unlink()
    assert isinstance(read()[1], Unknown)


@pytest.mark.parametrize("cuda", [ABSENT, Unknown("no version file")])
def test_only_a_cuda_build_of_this_machine_is_judged(site, read, cuda):
    (site / CUDNN).unlink()
    assert isinstance(read(cuda=cuda)[1], Unknown)
    assert isinstance(read(here=False)[1], Unknown)
    assert read(incomplete="a folder cannot be read")[1] == Unknown("a folder cannot be read")
