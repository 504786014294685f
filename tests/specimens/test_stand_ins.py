"""The small ELF files of the specimens are what a loader takes them for."""

import ctypes
import os
import sys

import pytest
import stand_ins
from elf_writer import shared_object

from envdoctor.observe import ElfFile
from envdoctor.system import Files

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is loaded by Linux")
machine = pytest.mark.skipif(
    getattr(os, "uname", lambda: None) and os.uname().machine != "x86_64", reason="x86-64 file"
)


def opened(path, content: bytes) -> ElfFile:
    path.write_bytes(content)
    return ElfFile(str(path), Files())


@on_linux
@machine
def test_the_systems_own_loader_takes_them(tmp_path):
    (tmp_path / "liba.so").write_bytes(shared_object(name="liba.so", gives=["fa", "fb", "fc"]))
    library = ctypes.CDLL(str(tmp_path / "liba.so"))
    assert all(hasattr(library, name) for name in ("fa", "fb", "fc")) and not hasattr(library, "fd")
    asks = shared_object(needs=["libc.so.6"], versions={"libc.so.6": ["GLIBC_2.99"]})
    (tmp_path / "libb.so").write_bytes(asks)
    with pytest.raises(OSError, match=r"GLIBC_2\.99"):
        ctypes.CDLL(str(tmp_path / "libb.so"))


def test_what_is_written_is_what_is_read(tmp_path):
    with opened(
        tmp_path / "x.so",
        shared_object(
            asks=["a", "b"], gives=["c"], needs=["libz.so"], versions={"libz.so": ["Z_1", "Z_2"]}, machine="aarch64"
        ),
    ) as file:
        assert (file.machine, file.undefined(), file.needed) == ("aarch64", [b"a", b"b"], ("libz.so",))
        assert file.versions() == ["Z_1", "Z_2"]


@pytest.mark.parametrize(
    ("built_for", "installed", "missing"),
    [("2.5.1", "2.5.1", 0), ("2.3.1", "2.5.1", 1), ("2.5.1", "2.7.1", 2), ("2.9.1", "2.7.0", 1)],
)
def test_an_extension_fits_the_torch_that_it_was_built_for(tmp_path, built_for, installed, missing):
    names = ("libc10.so", "libtorch_cpu.so", "libc10_cuda.so")
    libraries = [opened(tmp_path / name, stand_ins.library(name, installed)) for name in names]
    with opened(tmp_path / "_C.so", stand_ins.extension(built_for, cuda=True)) as module:
        wanted = [name for name in module.undefined() if name.startswith((b"_ZN3c10", b"_ZN2at"))]
        assert len(wanted) == 5
        given = [any(library.exports(name) for library in libraries) for name in wanted]
        assert given.count(False) == missing
    for library in libraries:
        library.close()
