"""The architectures that libtorch_python.so names, read from its constants."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import ask

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records, Unknown
from envdoctor.observe.binaries import torch_archs
from envdoctor.observe.locate.layout import Layout

GPU = Records(({"cc": "9.0"},))
LIST = b"sm_75 sm_80 sm_90a compute_90"


def elf(constants: bytes, *, name: bytes = b".rodata", length: int | None = None) -> bytes:
    """A 64-bit ELF file of nothing but one section and the names of its sections."""
    names = b"\0" + name + b"\0.shstrtab\0"
    at = 64
    sections = [
        (0,) * 10,
        (1, 1, 0, 0, at, len(constants) if length is None else length, 0, 0, 1, 0),
        (2 + len(name), 3, 0, 0, at + len(constants), len(names), 0, 0, 1, 0),
    ]
    table = at + len(constants) + len(names)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2
    )
    return head + constants + names + b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)


@pytest.fixture
def environment(tmp_path):
    def with_library(data: bytes) -> Layout:
        place = tmp_path / "torch" / "lib" / "libtorch_python.so"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return layout(tmp_path)

    return with_library


def layout(folder: Path) -> Layout:
    return Layout(str(folder), None, (str(folder),), "3.11.9", "cpython", "venv", "", True)


def read(where: Layout, gpus=GPU, cuda="13.0"):
    found = torch_archs.observe(
        ask(where, facts=FactSet([Fact("torch.cuda", cuda, "", ""), Fact("gpu", gpus, "", "")]))
    )
    return found[0] if found else None


def test_the_list_is_found_among_other_constants(environment):
    fact = read(environment(elf(b"\0sm_\0no sm_75 list\0" + LIST + b"\0sm_90\0")))
    assert fact.value == ("sm_75", "sm_80", "sm_90a", "compute_90")
    assert fact.origin == "torch/lib/libtorch_python.so"


def test_a_list_of_one_is_taken_when_there_is_no_other(environment):
    assert read(environment(elf(b"\0sm_90\0"))).value == ("sm_90",)


def test_two_different_lists_are_none(environment):
    assert isinstance(read(environment(elf(b"\0sm_75 sm_80\0sm_80 sm_90\0"))).value, Unknown)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF\x01\x01".ljust(64, b"\0"),
        elf(b"\0" + LIST + b"\0")[:-40],
        elf(b"\0" + LIST + b"\0", length=1 << 40),
        elf(b"\0" + LIST + b"\0", name=b".text"),
        elf(b"\0" + b"sm_" * 1000 + b"\0"),
    ],
)
def test_a_file_that_does_not_tell_is_a_reason(environment, data):
    assert "libtorch_python.so" in read(environment(data)).value.reason


def test_nothing_is_opened_when_nobody_asks(tmp_path):
    somewhere = layout(tmp_path / "nowhere")
    assert read(somewhere, gpus=Records(())) is None
    assert torch_archs.observe(ask(somewhere, facts=FactSet([Fact("gpu", GPU, "", "")]))) == []
    assert read(somewhere, cuda=Unknown("?")) is None


def test_a_torch_without_that_library_gives_nothing(tmp_path):
    assert read(layout(tmp_path)) is None


def test_gpus_that_may_be_described_later_are_a_question(environment):
    assert read(environment(elf(b"\0" + LIST + b"\0")), gpus=Unknown("another machine")).value[0] == "sm_75"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_no_crash(environment, data):
    good = bytearray(elf(b"\0" + LIST + b"\0"))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    value = read(environment(bytes(good))).value
    assert isinstance(value, (tuple, Unknown))
