"""Which symbols are torch's, and how a person reads them."""

from __future__ import annotations

import pytest

from envdoctor.observe import gnu_hash, is_torch_symbol
from envdoctor.observe.binaries.reading.extension_files import python_tag
from envdoctor.observe.binaries.reading.torch_libraries import is_of_torch
from envdoctor.observe.binaries.reading.torch_symbols import spelled


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        (b"_ZN3c104cuda9SetDeviceEa", True),
        (b"_ZNK3c105Error4whatEv", True),
        (b"_ZTVN3c105ErrorE", True),
        (b"_ZN2at4_ops5zeros4callEN3c108ArrayRefIlEE", True),
        (b"_ZN5torch8autograd13_wrap_outputsE", True),
        (b"_Z17THPVariable_WrapN2at10TensorBaseE", True),
        (b"aoti_torch_get_current_cuda_stream", True),
        (b"torch_call_dispatcher", True),
        (b"_ZN10torchaudio12cuda_versionEv", False),
        (b"_ZN6vision3nmsERKN2at6TensorES3_d", False),
        (b"_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev", False),
        (b"_ZN3atX", False),
        (b"PyInit_module", False),
        (b"cudaLaunchKernel", False),
    ],
)
def test_symbols_of_the_namespaces_of_torch_are_its_own(name: bytes, ours: bool) -> None:
    assert is_torch_symbol(name) is ours


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"_ZN3c104cuda9SetDeviceEa", "c10::cuda::SetDevice"),
        (b"_ZN3c105ErrorC2ENS_14SourceLocationESs", "c10::Error::Error"),
        (b"_ZTVN3c105ErrorE", "c10::Error"),
        (b"torch_call_dispatcher", "torch_call_dispatcher"),
        (b"_ZN999cEv", "_ZN999cEv"),
        (b"_ZN3c10\x1b[2J", "a symbol with odd characters"),
    ],
)
def test_a_mangled_name_is_shown_without_its_arguments(name: bytes, shown: str) -> None:
    assert spelled(name) == shown


@pytest.mark.parametrize(
    ("library", "ours"),
    [
        ("libc10.so", True),
        ("libtorch.so", True),
        ("libtorch_cuda_cu.so", True),
        ("libtorchaudio.so", False),
        ("libtorch_cpu.so.2", False),
        ("libtorch_CPU.so", False),
        ("libgomp.so", False),
        ("libc10_" + "a" * 50 + ".so", False),
    ],
)
def test_libraries_of_torch_are_known_by_name(library: str, ours: bool) -> None:
    assert is_of_torch(library) is ours


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "cp311"),
        ("a/b/_C.cpython-313t-x86_64-linux-gnu.so", "cp313"),
        ("_C.cp311-win_amd64.pyd", "cp311"),
        ("_C.abi3.so", None),
        ("lib.cpp.so", None),
        ("folder.cpython-311/_C.so", None),
    ],
)
def test_the_python_of_a_module_is_in_its_name(name: str, tag: str | None) -> None:
    assert python_tag(name) == tag


def test_the_hash_is_that_of_the_gnu_table() -> None:
    # values of the description of the format: https://flapenguin.me/elf-dt-gnu-hash
    assert (gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"exit")) == (0x1505, 0x156B2BB8, 0x7C967E3F)
