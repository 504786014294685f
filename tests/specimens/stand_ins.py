"""Small ELF files that stand for libraries of released wheels, with the symbols that tell one torch from another."""

import re
from collections.abc import Iterator
from typing import Any

from elf_writer import shared_object

#: Symbol, the library of torch that has it, and the first and the last minor release that has it (None: open). Read in
#: the undefined symbols of torchvision/_C.so of 0.17.2 to 0.28.0, each built for the torch released with it.
_SYMBOLS: tuple[tuple[str, str, int | None, int | None], ...] = (
    ("_ZN3c105ErrorC2ENS_14SourceLocationESs", "libc10.so", None, 6),
    ("_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "libc10.so", 7, None),
    ("_ZN3c1015SmallVectorBaseIjE8grow_podEPvmm", "libc10.so", None, 3),
    ("_ZN3c1015SmallVectorBaseIjE8grow_podEPKvmm", "libc10.so", 4, None),
    ("_ZN2at7Context21alertNotDeterministicERKN3c1017basic_string_viewIcEE", "libtorch_cpu.so", None, 5),
    ("_ZN2at7Context21alertNotDeterministicERKSt17basic_string_viewIcSt11char_traitsIcEE", "libtorch_cpu.so", 6, None),
    (
        "_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEESt8optionalINS2_10ScalarTypeEES6_INS2_6LayoutEES6_INS2_6DeviceEES6_IbE",
        "libtorch_cpu.so",
        None,
        None,
    ),
    ("_ZN3c104cuda9SetDeviceEi", "libc10_cuda.so", None, 2),
    ("_ZN3c104cuda9SetDeviceEa", "libc10_cuda.so", 3, 7),
    ("_ZN3c104cuda9SetDeviceEab", "libc10_cuda.so", 8, None),
)
_CPU, _CUDA = ("libc10.so", "libtorch.so", "libtorch_cpu.so"), ("libc10_cuda.so", "libtorch_cuda.so")
#: How libcusparse, and in the wheels for CUDA 12 libnvJitLink, come into a process: what asks for them, and where that
#: looks. libcusparse is called .so.12 in CUDA 13 as well.
_LOADS: dict[str, dict[str, Any]] = {
    "libtorch_cuda.so": {
        "needs": ["libcusparse.so.12"],
        "rpath": "$ORIGIN/../../nvidia/cusparse/lib:$ORIGIN/../../nvidia/cu13/lib",
    },
    "libcusparse.so.12": {"needs": ["libnvJitLink.so.12"], "runpath": "$ORIGIN/../../nvjitlink/lib"},
}


def library(name: str, torch: str, machine: str = "x86_64") -> bytes:
    """A library of the torch release (``2.5.1``), or one that has nothing to do with torch: then it gives nothing."""
    return shared_object(name=name, gives=_names(torch, (name,)), machine=machine, **_LOADS.get(name, {}))


def extension(
    torch: str,
    *,
    cuda: bool = False,
    cxx11_abi: bool | None = None,
    glibc: str = "2.17",
    glibcxx: str = "3.4.21",
    machine: str = "x86_64",
) -> bytes:
    """A module compiled for a torch release. ``cxx11_abi`` is that release's own unless another one is given."""
    needs = _CPU + _CUDA if cuda else _CPU
    asks = list(_names(torch, needs))
    if cxx11_abi is not None:
        other = {"ErrorC2ENS_14SourceLocationE" + ("Ss" if not cxx11_abi else "NSt7__cxx11")}
        asks = [name for name in asks if "ErrorC2" not in name]
        asks += [name for name, *_ in _SYMBOLS if any(part in name for part in other)]
    versions = {"libc.so.6": [f"GLIBC_{glibc}"], "libstdc++.so.6": [f"GLIBCXX_{glibcxx}"]}
    return shared_object(asks=asks, needs=(*needs, *versions), versions=versions, machine=machine)


def _names(torch: str, libraries: tuple[str, ...]) -> Iterator[str]:
    match = re.match(r"(\d+)\.(\d+)", torch)
    assert match is not None, torch
    minor = int(match[2]) if match[1] == "2" else 0
    for symbol, library, first, last in _SYMBOLS:
        if library in libraries and (first or 0) <= minor <= (last if last is not None else minor):
            yield symbol
