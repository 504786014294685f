"""What a METADATA header says: name, version, requirements."""

import os
import tempfile
from email.parser import BytesHeaderParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Packaging

from envdoctor.observe.packages.metadata_directory import MetadataHeader, counts, read_header
from envdoctor.system import Files


def header(content: bytes) -> MetadataHeader:
    """The header of a file with this content."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return read_header(file.fileno(), Files())


LICENCE = b"License: " + b"x" * 100_000 + b"\n        more\n"
EXTRAS = [b"a ; extra == 'x'", b"b; python_version > '3' and extra == 'x'", b"c; extra == 'x' or os_name == 'nt'"]
#: The field of a header that says nothing else.
FIRST = b"Metadata-Version: 2.1\nName: torch\n"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (FIRST + b"Version: 2.5.1\n\nText\n", MetadataHeader("torch", "2.5.1")),
        (FIRST.replace(b"\n", b"\r\n") + b"Version: 2.5.1\r\n\r\nText\r\n", MetadataHeader("torch", "2.5.1")),
        (b"VERSION:2.5.1\nname :  torch \nSummary: x\n", MetadataHeader("torch", "2.5.1")),
        # the description is not read for fields
        (FIRST + b"\nName: other\nVersion: 9\n", MetadataHeader("torch", None)),
        (FIRST.replace(b"\n", b"\r\n") + b"\r\nVersion: 9\r\n", MetadataHeader("torch", None)),
        (FIRST + b"Version: 1\nVersion: 2\n\n", MetadataHeader("torch", "1")),
        (FIRST + LICENCE + b"Version: 1.2\n\n", MetadataHeader("torch", "1.2")),
        # a header that never ends is read up to a mebibyte
        (b"Name: a\n" + b"Classifier: x\n" * 100_000 + b"Version: 1\n\n", MetadataHeader("a", None, partial=True)),
        (FIRST + b"Version: 2.1", MetadataHeader("torch", "2.1", cut=True)),
        (
            b"requires-dist : a>=1\nREQUIRES-PYTHON:>=3.9\nRequires-Dist: b\n\t>=2\nName: x\nVersion: 1\n\n",
            MetadataHeader("x", "1", requires=("a>=1", "b >=2"), requires_python=">=3.9"),
        ),
        (
            b"Name: x\nVersion: 1\n" + b"".join(b"Requires-Dist: " + line + b"\n" for line in EXTRAS) + b"\n",
            MetadataHeader("x", "1", requires=tuple(map(bytes.decode, EXTRAS))),
        ),
        (b"", MetadataHeader(None, None)),
        (b"Metadata-Version: 2.1\nName: caf\xe9\nVersion: 1\n\n", MetadataHeader("caf\ufffd", "1", utf8=False)),
        # a character that is cut by the limit of the first read is no fault
        ((FIRST + b"Version: 1\n\n").ljust(8191, b"a") + "é".encode(), MetadataHeader("torch", "1")),
    ],
)
def test_a_header_says_name_version_and_requirements(content: bytes, found: MetadataHeader) -> None:
    assert header(content) == found


def test_a_version_across_the_first_read_is_whole() -> None:
    for padding in range(8150, 8200):
        start = b"Metadata-Version: 2.1\nName: a\nSummary: "
        content = start + b"x" * (padding - len(start)) + b"\nVersion: 12.34.56\nPlatform: any\n\n"
        assert header(content) == MetadataHeader("a", "12.34.56")


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
    expected = BytesHeaderParser().parsebytes(content)
    assert header(content) == MetadataHeader(expected["Name"], expected["Version"])


MARKERS = ["", '; extra == "x"', "; extra=='x'", ' ; os_name == "y" and extra == "x"', "; extra == ''"]
LINES = st.lists(
    st.builds(
        "{}: {}{}{}".format,
        st.sampled_from(["Requires-Dist", "requires-dist", "REQUIRES-DIST"]),
        st.sampled_from(["a", "b-extra", "extra", "c[x]", "extra ==1", "d (>=1)"]),
        st.sampled_from(["", " >=1,<2"]),
        st.sampled_from([*MARKERS, '; extra == "x" or os_name == "y"', '; "x" == extra']),
    )
    | st.sampled_from(["License: x", "        Requires-Dist: no", "Summary: Requires-Dist: z"])
    | st.sampled_from(["Requires-Python: >=3.8", "\tfolded", " ; os_name == 'q'"]),
    max_size=8,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_requirements_of_a_header_are_those_that_email_reads(some: list[str], end: str, long: bool) -> None:
    head = ["Metadata-Version: 2.1", "Name: n", "Version: 1", *(["License: " + "x" * 9000] if long else []), *some]
    content = (end.join(head) + end + end + "Requires-Dist: description" + end).encode()
    message = BytesHeaderParser().parsebytes(content)
    lines = header(content).requires
    assert [line.split() for line in lines] == [value.split() for value in message.get_all("requires-dist", [])]
    for value in (line for line in lines if not counts(line, ())):  # false in every environment without an extra
        try:
            marker = Packaging(value).marker
        except InvalidRequirement:
            continue
        assert marker is not None
        assert not marker.evaluate({"extra": "", "os_name": "y"})
