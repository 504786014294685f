"""Name and Version of a METADATA header."""

from __future__ import annotations

import os
import tempfile
from email.parser import BytesHeaderParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.observe import read_header
from envdoctor.observe.packages.reading.metadata_header import Header
from envdoctor.text import Files


def header(content: bytes) -> Header:
    """The header of a file with this content."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return read_header(file.fileno(), Files())


def test_name_and_version_are_read() -> None:
    assert header(b"Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1\n\nText\n") == Header("torch", "2.5.1")


def test_windows_line_ends_are_dropped() -> None:
    assert header(b"Metadata-Version: 2.1\r\nName: torch\r\nVersion: 2.5.1\r\n\r\nText\r\n") == Header("torch", "2.5.1")


def test_field_names_may_have_any_case_and_order() -> None:
    assert header(b"VERSION:2.5.1\nname :  torch \nSummary: x\n") == Header("torch", "2.5.1")


def test_the_description_is_not_read_for_fields() -> None:
    assert header(b"Metadata-Version: 2.1\nName: torch\n\nName: other\nVersion: 9\n") == Header("torch", None)


def test_the_description_after_windows_line_ends_is_not_read_either() -> None:
    assert header(b"Metadata-Version: 2.1\r\nName: torch\r\n\r\nVersion: 9\r\n") == Header("torch", None)


def test_the_first_of_two_versions_counts() -> None:
    assert header(b"Metadata-Version: 2.1\nName: a\nVersion: 1\nVersion: 2\n\n") == Header("a", "1")


def test_a_version_behind_a_long_field_is_found() -> None:
    licence = b"License: " + b"x" * 100_000 + b"\n        more\n"
    assert header(b"Metadata-Version: 2.1\nName: a\n" + licence + b"Version: 1.2\n\n") == Header("a", "1.2")


def test_a_version_across_the_first_read_is_whole() -> None:
    for padding in range(8150, 8200):
        start = b"Metadata-Version: 2.1\nName: a\nSummary: "
        content = start + b"x" * (padding - len(start)) + b"\nVersion: 12.34.56\nPlatform: any\n\n"
        assert header(content) == Header("a", "12.34.56")


def test_a_header_that_never_ends_is_read_up_to_a_mebibyte() -> None:
    assert header(b"Name: a\n" + b"Classifier: x\n" * 100_000 + b"Version: 1\n\n") == Header("a", None, partial=True)


def test_a_file_cut_within_its_version_says_so() -> None:
    assert header(b"Metadata-Version: 2.1\nName: torch\nVersion: 2.1") == Header("torch", "2.1", cut=True)


def test_requirements_are_read_in_any_spelling_and_over_several_lines() -> None:
    lines = b"requires-dist : a>=1\nREQUIRES-PYTHON:>=3.9\nRequires-Dist: b\n\t>=2\nName: x\nVersion: 1\n\n"
    assert header(lines) == Header("x", "1", requires=("a>=1", "b >=2"), requires_python=">=3.9")


def test_requirements_of_extras_alone_are_left_out() -> None:
    extras = [b"a ; extra == 'x'", b"b; python_version > '3' and extra == 'x'", b"c; extra == 'x' or os_name == 'nt'"]
    content = b"\n".join([b"Name: x", b"Version: 1", *(b"Requires-Dist: " + line for line in extras), b"", b""])
    assert header(content).requires == ("c; extra == 'x' or os_name == 'nt'",)


def test_an_empty_file_has_neither() -> None:
    assert header(b"") == Header(None, None)


def test_bytes_that_are_not_utf8_are_replaced_and_it_is_said() -> None:
    found = header(b"Metadata-Version: 2.1\nName: caf\xe9\nVersion: 1\n\n")
    assert found == Header("caf\ufffd", "1", utf8=False)


def test_a_character_that_is_cut_by_the_limit_of_the_first_read_is_no_fault() -> None:
    text = "Metadata-Version: 2.1\nName: x\nVersion: 1\n\n".ljust(8191, "a") + "é"
    assert header(text.encode()).utf8


def test_a_folder_is_an_error_of_the_operating_system(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            read_header(descriptor, Files())
    finally:
        os.close(descriptor)


FIELDS = st.sampled_from([b"Name: x", b"Version: 1.0", b"name:y", b"\xff\xfe", b"", b" folded", b"Summary: s"])


@given(content=st.one_of(st.binary(max_size=3000), st.lists(FIELDS, max_size=40).map(b"\n".join)))
def test_any_bytes_give_a_header(content: bytes) -> None:
    found = header(content)
    for value in (found.name, found.version):
        assert value is None or (value.strip() and "\n" not in value)


TOKEN = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)


@given(name=TOKEN, version=TOKEN, before=st.lists(TOKEN, max_size=30), between=st.lists(TOKEN, max_size=30))
def test_well_formed_headers_read_as_the_standard_library_reads_them(
    name: str, version: str, before: list[str], between: list[str]
) -> None:
    lines = [f"X-{n}: {text}" for n, text in enumerate(before)] + [f"Name: {name}"]
    lines += [f"Y-{n}: {text}" for n, text in enumerate(between)] + [f"Version: {version}", "", "Version: of the text"]
    content = "\n".join(lines).encode()
    found = header(content)
    expected = BytesHeaderParser().parsebytes(content)
    assert found == Header(expected["Name"], expected["Version"])
