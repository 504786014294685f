"""ELF files read without being loaded; whatever bytes a file holds, the answer is a value or an ElfError."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envdoctor.observe.binaries.elf_file import ElfError, ElfFile
from envdoctor.observe.binaries.torch_symbols import gnu_hash

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "elf"
ERROR = b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
ZEROS = b"_ZN2at4_ops5zeros4callEv"
GOOD = (FIXTURES / "good.so").read_bytes()
LIBRARY = (FIXTURES / "libtorch_cpu.so").read_bytes()


def opened(path: Path) -> ElfFile:
    return ElfFile(os.open(path, os.O_RDONLY))


def everything(path: Path) -> None:
    """Ask for all that is asked of extensions and libraries."""
    with opened(path) as file:
        assert len(file.needed) < 5000
        file.undefined()
        file.versions()
        for name in (ERROR, ZEROS, b"torch_call_dispatcher", b"x"):
            file.exports(name, gnu_hash(name))


@pytest.mark.parametrize("name", ["good.so", "good-sysv.so"])
def test_needed_libraries_and_undefined_symbols_are_read_with_either_hash_table(elf: Path, name: str) -> None:
    with opened(elf / name) as file:
        assert file.machine == "x86_64"
        assert file.needed == ("libc10.so", "libtorch_cpu.so")
        assert file.undefined() == [ERROR, ZEROS, b"torch_call_dispatcher"]


def test_weak_symbols_may_stay_undefined(elf: Path) -> None:
    with opened(elf / "weak.so") as file:
        assert file.undefined() == [ERROR]


def test_a_defined_symbol_is_found_and_an_undefined_or_foreign_one_is_not(elf: Path) -> None:
    with opened(elf / "libtorch_cpu.so") as file:
        assert file.exports(ZEROS, gnu_hash(ZEROS))
        assert not file.exports(ERROR, gnu_hash(ERROR))
        assert not file.exports(ZEROS + b"x", gnu_hash(ZEROS))
    with opened(elf / "good.so") as file:
        assert not file.exports(ZEROS, gnu_hash(ZEROS))


def test_versions_asked_of_the_c_library_are_read(elf: Path) -> None:
    with opened(elf / "new-glibc.so") as file:
        assert sorted(file.versions()) == ["GLIBC_2.2.5", "GLIBC_2.99"]


def test_aarch64_differs_in_nothing_but_the_machine(tmp_path: Path) -> None:
    (tmp_path / "arm.so").write_bytes(GOOD[:18] + struct.pack("<H", 183) + GOOD[20:])
    with opened(tmp_path / "arm.so") as file:
        assert (file.machine, len(file.undefined())) == ("aarch64", 3)


@pytest.mark.parametrize(
    ("content", "damaged"),
    [
        (b"", True),
        (b"version https://git-lfs.github.com/spec/v1\n", True),
        (GOOD[:40], True),
        (GOOD[:600], True),
        (GOOD[:-1300], True),
        (b"\xcf\xfa\xed\xfe" + bytes(100), False),
        (GOOD[:4] + b"\x01" + GOOD[5:], False),
        (GOOD[:18] + b"\x16\x00" + GOOD[20:], False),
    ],
    ids=["empty", "lfs-pointer", "cut-header", "cut-early", "cut-late", "mach-o", "32-bit", "s390x"],
)
def test_what_is_damaged_is_told_from_what_is_only_not_covered(tmp_path: Path, content: bytes, damaged: bool) -> None:
    (tmp_path / "file.so").write_bytes(content)
    with pytest.raises(ElfError) as caught:
        everything(tmp_path / "file.so")
    assert caught.value.damaged is damaged


def test_every_cut_of_a_file_is_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "cut.so"
    for length in range(0, len(GOOD), 7):
        path.write_bytes(GOOD[:length])
        try:
            everything(path)
        except ElfError as error:
            assert str(error)


def test_a_chain_of_the_hash_table_that_has_no_end_is_given_up(tmp_path: Path) -> None:
    with opened(FIXTURES / "libtorch_cpu.so") as file:
        address, buckets, first, words, _ = file._hash_table()
        start, offset, _ = next(part for part in file._segments if part[0] <= address < part[0] + part[2])
    place = offset + address - start + 16 + 8 * words
    content = bytearray(LIBRARY)
    content[place - 8 * words : place] = b"\xff" * 8 * words
    content[place : place + 4 * buckets] = struct.pack("<I", first) * buckets
    path = tmp_path / "chain.so"
    path.write_bytes(content[: place + 4 * buckets] + bytes(len(content) - place - 4 * buckets))
    with pytest.raises(ElfError):
        everything(path)


_EDITS = st.lists(
    st.tuples(st.integers(0, len(GOOD) - 9), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2**64 - 1)), max_size=6
)


def fuzz(folder: Path, content: bytes, edits: list[tuple[int, int, int]]) -> None:
    data = bytearray(content)
    for place, size, value in edits:
        if place + size <= len(data):
            data[place : place + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
    path = folder / "fuzzed.so"
    path.write_bytes(data)
    try:
        everything(path)
    except ElfError:
        pass


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([GOOD, LIBRARY]), _EDITS)
@example(GOOD, [(54, 2, 0xFFFF)])
@example(GOOD, [(56, 2, 0xFFFF)])
def test_edited_files_give_a_value_or_a_reason(
    tmp_path: Path, content: bytes, edits: list[tuple[int, int, int]]
) -> None:
    fuzz(tmp_path, content, edits)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([GOOD, LIBRARY]), _EDITS)
def test_twenty_thousand_edited_files_give_a_value_or_a_reason(
    tmp_path: Path, content: bytes, edits: list[tuple[int, int, int]]
) -> None:
    fuzz(tmp_path, content, edits)
