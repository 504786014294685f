"""Which symbols are torch's, and how a person reads them."""

from __future__ import annotations

import pytest

from envdoctor.observe.binaries.torch_symbols import gnu_hash, is_torch_symbol, spelled


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


def test_the_hash_is_that_of_the_gnu_table() -> None:
    # values of the description of the format: https://flapenguin.me/elf-dt-gnu-hash
    assert (gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"exit")) == (0x1505, 0x156B2BB8, 0x7C967E3F)
