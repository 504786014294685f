"""ELF files read without being loaded; whatever bytes a file holds, the answer is a value or an ElfError."""

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rewriting import rewrite

from envdoctor.observe import ElfError, ElfFile, gnu_hash
from envdoctor.system import Files

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "elf"
ERROR = b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
ZEROS = b"_ZN2at4_ops5zeros4callEv"
GOOD = (FIXTURES / "good.so").read_bytes()
LIBRARY = (FIXTURES / "libtorch_cpu.so").read_bytes()
GNU_HASH = 0x6FFFFEF5


def opened(path: Path) -> ElfFile:
    return ElfFile(str(path), Files())


def everything(path: Path) -> None:
    """Ask for all that is asked of extensions and libraries."""
    with opened(path) as file:
        assert len(file.needed) < 5000
        file.undefined()
        file.versions()
        file.defined_versions()
        for name in (ERROR, ZEROS, b"torch_call_dispatcher", b"x"):
            file.exports(name)


@pytest.mark.parametrize(
    ("name", "symbols"),
    [
        ("good.so", [ERROR, ZEROS, b"torch_call_dispatcher"]),
        ("good-sysv.so", [ERROR, ZEROS, b"torch_call_dispatcher"]),
        ("weak.so", [ERROR]),  # weak symbols may stay undefined
    ],
)
def test_needed_libraries_and_undefined_symbols_are_read_with_either_hash_table(
    elf: Path, name: str, symbols: list[bytes]
) -> None:
    with opened(elf / name) as file:
        assert (file.machine, file.needed) == ("x86_64", ("libc10.so", "libtorch_cpu.so"))
        assert file.undefined() == symbols


def test_a_defined_symbol_is_found_and_an_undefined_or_foreign_one_is_not(elf: Path) -> None:
    with opened(elf / "libtorch_cpu.so") as file:
        found = [file.exports(name) for name in (ZEROS, ERROR)]
        assert [*found, file.exports(ZEROS + b"x")] == [True, False, False]
    with opened(elf / "good.so") as file:
        assert not file.exports(ZEROS)


def test_the_hash_is_that_of_the_gnu_table() -> None:
    # values of the description of the format: https://flapenguin.me/elf-dt-gnu-hash
    assert (gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"exit")) == (0x1505, 0x156B2BB8, 0x7C967E3F)


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


def dynamic(content: bytes) -> dict[int, int]:
    """Where each entry of the dynamic section has its value, by its tag. In these files an address is a place."""
    for index in range(struct.unpack_from("<H", content, 56)[0]):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", content, 64 + 56 * index)
        if kind == 2:
            return {struct.unpack_from("<Q", content, at)[0]: at + 8 for at in range(offset, offset + length, 16)}
    return {}


def value(content: bytes, tag: int) -> int:
    """The value of an entry of the dynamic section."""
    return int(struct.unpack_from("<Q", content, dynamic(content)[tag])[0])


def test_a_chain_of_the_hash_table_that_has_no_end_is_given_up(tmp_path: Path) -> None:
    table = value(LIBRARY, GNU_HASH)
    buckets, first, words, _ = struct.unpack_from("<IIII", LIBRARY, table)
    place = table + 16 + 8 * words
    content = bytearray(LIBRARY)
    content[place - 8 * words : place] = b"\xff" * 8 * words
    content[place : place + 4 * buckets] = struct.pack("<I", first) * buckets
    path = tmp_path / "chain.so"
    path.write_bytes(content[: place + 4 * buckets] + bytes(len(content) - place - 4 * buckets))
    with pytest.raises(ElfError):
        everything(path)


def edited(content: bytes, edits: list[tuple[int, int, int]], cut: int) -> bytes:
    """Overwrite numbers (place, bytes, value; a place counts within the file) and cut the end off."""
    data = bytearray(content)
    for place, size, value in edits:
        place %= len(data) - 8
        data[place : place + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(data[: len(data) - cut])


#: Every kept file, as it is, for aarch64 and other machines, of 32 bits, and big-endian.
FILES = [path.read_bytes() for path in sorted(FIXTURES.iterdir()) if path.suffix in (".so", ".6")]
OTHERS = [(18, 2, 183), (18, 2, 21), (4, 1, 1), (5, 1, 2), (16, 2, 2)]
#: Numbers that tables are made of: nothing, one too many, all bits, the sizes of things, places in the file.
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 0xFF, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 64, 56, 0x6FFFFEF5, 0x6FFFFFFE]),
    st.integers(0, 2400),
    st.integers(0, 2**64 - 1),
)
#: The ELF header and the program headers decide where everything is: half of the edits go there.
PLACES = st.one_of(st.integers(0, 400), st.integers(0, 2400))
HOSTILE = st.builds(
    edited,
    st.sampled_from(FILES)
    | st.builds(edited, st.sampled_from(FILES), st.sampled_from(OTHERS).map(lambda one: [one]), st.just(0)),
    st.lists(st.tuples(PLACES, st.sampled_from([1, 2, 4, 8]), NUMBERS), max_size=8),
    st.one_of(st.just(0), st.integers(0, 1300)),
)


def bounded(folder: Path, content: bytes) -> None:
    """A value or a reason, in bounded memory."""
    path = folder / "fuzzed.so"
    rewrite(path, content)
    tracemalloc.start()
    try:
        everything(path)
    except ElfError as error:
        assert str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1 << 20  # the files have 2 kB: whatever they claim, no more is made of them


#: ``benchmarks/hostile.py`` edits 5,000.
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HOSTILE)
@example(edited(GOOD, [(54, 2, 0xFFFF)], 0))
@example(edited(GOOD, [(56, 2, 0xFFFF)], 0))
def test_edited_files_give_a_value_or_a_reason_in_bounded_memory(tmp_path: Path, content: bytes) -> None:
    bounded(tmp_path, content)


def with_all_in_one_segment(content: bytes, tables: dict[int, int], size: int) -> bytearray:
    """The file with other values of some entries of its dynamic section, and a first segment of ``size`` bytes."""
    data = bytearray(content)
    for tag, place in dynamic(content).items():
        struct.pack_into("<Q", data, place, tables.get(tag, value(content, tag)))
    for index in range(struct.unpack_from("<H", data, 56)[0]):
        kind, _, offset = struct.unpack_from("<IIQ", data, 64 + 56 * index)
        if kind == 1 and offset == 0:
            struct.pack_into("<QQ", data, 64 + 56 * index + 32, size, size)
    return data


@pytest.mark.parametrize("table", ["undefined", "versions", "defined_versions", "exports"])
@pytest.mark.parametrize("name", ["new-glibc.so", "libstdc++.so.6", "good-sysv.so"])
def test_a_file_of_many_gigabytes_that_claims_huge_tables_is_read_in_bounded_pieces(
    tmp_path: Path, table: str, name: str
) -> None:
    """A sparse file of 64 GiB, all of it loaded, whose counts and sizes are as large as they can be."""
    huge = 64 << 30
    content = (FIXTURES / name).read_bytes()
    data = with_all_in_one_segment(content, {10: huge - 4096, 0x6FFFFFFF: huge, 0x6FFFFFFD: huge}, huge)
    for tag, numbers in ((4, (1, 0xFFFFFF)), (GNU_HASH, (1 << 16, 0xFFFFFF, 0xFFFFFFF))):
        if tag in dynamic(content):
            struct.pack_into(f"<{len(numbers)}I", data, value(content, tag), *numbers)
    path = tmp_path / "huge.so"
    path.write_bytes(data)
    os.truncate(path, huge)
    tracemalloc.start()
    try:
        with opened(path) as file:
            getattr(file, table)(*((ERROR,) if table == "exports" else ()))
    except ElfError as error:
        assert str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 80 << 20


def test_names_that_overlap_without_end_are_given_up(tmp_path: Path) -> None:
    """Every symbol of a long table names the same long text."""
    content = (FIXTURES / "good-sysv.so").read_bytes()
    hashes, strings, size = (value(content, tag) for tag in (4, 5, 10))
    names = content[strings : strings + size] + b"_ZN3c10" + b"x" * (1 << 16) + b"\0"
    symbols = struct.pack("<IBBHQQ", size, 0x10, 0, 0, 0, 0) * (1 << 12)
    start = len(content)
    tables = {6: start, 5: start + len(symbols), 10: len(names)}
    data = with_all_in_one_segment(content, tables, start + len(symbols) + len(names))
    struct.pack_into("<II", data, hashes, 1, 1 << 12)
    path = tmp_path / "overlap.so"
    path.write_bytes(bytes(data) + symbols + names)
    with pytest.raises(ElfError, match=r"^its names overlap without end$"), opened(path) as file:
        file.undefined()
