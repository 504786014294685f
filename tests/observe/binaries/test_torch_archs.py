"""The architectures that libtorch_python.so names, read from its constants."""

import pytest
from elf_writer import section_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import a_layout, ask
from rooms import observer

from envdoctor.facts import Fact, FactSet, Records, Unknown
from envdoctor.observe import Layout

torch_archs = observer("torch_archs")

GPU = Records(({"cc": "9.0"},))
LIST = b"sm_75 sm_80 sm_90a compute_90"


@pytest.fixture
def environment(tmp_path):
    def with_library(data: bytes) -> Layout:
        place = tmp_path / "torch" / "lib" / "libtorch_python.so"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return a_layout(tmp_path)

    return with_library


def read(where: Layout, gpus=GPU, cuda="13.0"):
    facts = FactSet([Fact("torch.cuda", cuda, "", ""), Fact("gpu", gpus, "", "")])
    return next(iter(torch_archs.observe(ask(where, facts=facts))), None)


def test_the_list_is_found_among_other_constants_and_one_alone_is_taken(environment):
    fact = read(environment(section_file(b"\0sm_\0no sm_75 list\0" + LIST + b"\0sm_90\0")))
    assert (fact.value, fact.origin) == (("sm_75", "sm_80", "sm_90a", "compute_90"), "torch/lib/libtorch_python.so")
    assert read(environment(section_file(b"\0sm_90\0"))).value == ("sm_90",)


def test_two_different_lists_are_none(environment):
    assert isinstance(read(environment(section_file(b"\0sm_75 sm_80\0sm_80 sm_90\0"))).value, Unknown)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF\x01\x01".ljust(64, b"\0"),
        section_file(b"\0" + LIST + b"\0")[:-40],
        section_file(b"\0" + LIST + b"\0", length=1 << 40),
        section_file(b"\0" + LIST + b"\0", name=b".text"),
        section_file(b"\0" + b"sm_" * 1000 + b"\0"),
    ],
)
def test_a_file_that_does_not_tell_is_a_reason(environment, data):
    assert "libtorch_python.so" in read(environment(data)).value.reason


def test_nothing_is_opened_when_nobody_asks(tmp_path):
    somewhere = a_layout(tmp_path / "nowhere")
    assert read(somewhere, gpus=Records(())) is None
    assert torch_archs.observe(ask(somewhere, facts=FactSet([Fact("gpu", GPU, "", "")]))) == []
    assert read(somewhere, cuda=Unknown("?")) is None
    assert read(a_layout(tmp_path)) is None


def test_gpus_that_may_be_described_later_are_a_question(environment):
    assert read(environment(section_file(b"\0" + LIST + b"\0")), gpus=Unknown("another machine")).value[0] == "sm_75"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_no_crash(environment, data):
    good = bytearray(section_file(b"\0" + LIST + b"\0"))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    value = read(environment(bytes(good))).value
    assert isinstance(value, (tuple, Unknown))
