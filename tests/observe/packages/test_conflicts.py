"""Unmet requirements by cause: what is grouped, what stays open, and hostile metadata."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from email.parser import BytesHeaderParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import choose, observe
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Packaging

from envdoctor.facts import ABSENT, Records
from envdoctor.observe import read_header
from envdoctor.text import Files
from envdoctor.versions import NotARequirement, read_requirement

Put = Callable[..., Path]


@pytest.fixture
def put(site: Path) -> Put:
    """Install metadata: ``put("a", "1.0", "Requires-Dist: b")``."""

    def write(name: str, version: str, *lines: str, folder: Path = site) -> Path:
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        (info / "METADATA").write_text(text + "\n\n")
        return info

    return write


@pytest.fixture
def found(read, venv: Path) -> Callable[[], Records]:
    return lambda: read(python=venv)[2]["conflict"]


def test_a_missing_package_is_one_record_however_many_ask(put: Put, found) -> None:
    for number in range(40):
        put(f"p{number:02}", "1.0", "Requires-Dist: torch>=2.0")
    (item,) = found().items
    assert (item["package"], item["kind"], item["installed"]) == ("torch", "missing", ABSENT)
    assert item["asked_by"] == "p00 (>=2.0), p01 (>=2.0), p02 (>=2.0), … +37"
    assert len(item["required_by"]) == 40
    assert item["requires"] == ">=2.0"


def test_only_those_who_ask_for_another_version_are_named(put: Put, found) -> None:
    put("protobuf", "7.35.1")
    put("a", "1.0", "Requires-Dist: protobuf <7, >=3.20")
    put("b", "1.0", "Requires-Dist: protobuf>=5")
    (item,) = found().items
    assert (item["installed"], item["required_by"], item["requires"]) == ("7.35.1", ("a (<7,>=3.20)",), "<7,>=3.20")


def test_a_list_that_may_lack_packages_does_not_say_that_one_is_missing(put: Put, venv: Path) -> None:
    put("a", "1.0", "Requires-Dist: b", "Requires-Dist: c>=2")
    put("c", "1.0")
    layout = choose(str(venv), None, None, environ={}, cwd=os.sep)
    observed = observe(layout._replace(incomplete="a folder cannot be listed"))
    (fact,) = [fact for fact in observed.facts if fact.key == "conflict"]
    assert [item["package"] for item in fact.value] == ["c"]
    assert fact.value.incomplete == "a folder cannot be listed"


@pytest.mark.parametrize("asked", ["b[Fast_IO]", "b[other, fast.io]>=1", "b[all]"])
def test_what_an_extra_requires_counts_where_another_package_asks_for_it(asked: str, put: Put, found) -> None:
    put("a", "1.0", f"Requires-Dist: {asked}", "Requires-Dist: b[test]; extra == 'test'")
    extras = [f"Requires-Dist: {name}; extra == '{extra}'" for name, extra in [("d", "test"), ("b[fast-io]", "all")]]
    put("b", "1.0", *extras, "Requires-Dist: c>=2; extra == 'fast_io' and python_version > '3'", "Requires-Dist: e")
    put("c", "1.0")
    put("e", "1.0")
    (item,) = found().items
    assert (item["package"], item["required_by"]) == ("c", ("a -> b[fast-io] (>=2)",))


def test_extras_that_ask_for_each_other_end(put: Put, found) -> None:
    put("a", "1.0", "Requires-Dist: b[x]")
    put("b", "1.0", "Requires-Dist: b[y]; extra == 'x'", "Requires-Dist: b[x]; extra == 'y'")
    assert found() == Records(())


def test_extras_of_an_egg_are_followed(put: Put, found, site: Path) -> None:
    put("a", "1.0", "Requires-Dist: b[x]")
    (site / "b-1.0.egg-info").mkdir()
    (site / "b-1.0.egg-info" / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: b\nVersion: 1.0\n\n")
    (site / "b-1.0.egg-info" / "requires.txt").write_text("[x]\nc\n[x:python_version < '3']\nd\n[y]\ne\n")
    (item,) = found().items
    assert (item["package"], item["required_by"]) == ("c", ("a -> b[x]",))


def test_what_extras_require_is_looked_through_up_to_a_limit(put: Put, found) -> None:
    put("many", "1.0", *["Requires-Dist: p; extra == 'x'"] * 3000)
    for number in range(20):
        put(f"a{number}", "1.0", "Requires-Dist: many[x]")
    assert found().incomplete == "the extras of packages require more than is looked through"


def test_a_requirement_that_cannot_be_read_leaves_the_list_incomplete(put: Put, found) -> None:
    put("a", "1.0", "Requires-Dist: b >=1.*.*", "Requires-Dist: c")
    put("b", "1.0")
    records = found()
    assert [item["package"] for item in records] == ["c"]
    assert "a requirement of a cannot be read" in records.incomplete


def test_a_version_that_cannot_be_read_is_not_compared(put: Put, found) -> None:
    put("a", "1.0", "Requires-Dist: b>=1", "Requires-Dist: b")
    put("b", "not-a-version")
    records = found()
    assert records.items == ()
    assert "whether a has the b" in records.incomplete


def test_a_package_whose_metadata_is_gone_counts_as_there(put: Put, found, site: Path) -> None:
    put("a", "1.0", "Requires-Dist: torch")
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("__version__ = '2.5.1+cu124'\n")
    assert found().items == ()


def test_an_editable_install_counts(put: Put, found, site: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (site / "b.egg-link").write_text(f"{source}\n.\n")
    (site / "easy-install.pth").write_text(f"{source}\n")
    (source / "b.egg-info").mkdir()
    (source / "b.egg-info" / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: b\nVersion: 3.0\n")
    put("a", "1.0", "Requires-Dist: b>=2")
    put("c", "1.0", "Requires-Dist: b>=4")
    assert [item["required_by"] for item in found()] == [("c (>=4)",)]


def test_two_records_of_one_version_are_one_package(put: Put, found, site: Path) -> None:
    put("b", "1.0")
    (site / "B-1.0.dist-info").mkdir()
    (site / "B-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: B\nVersion: 1.0\n\n")
    put("a", "1.0", "Requires-Dist: b>=2")
    (item,) = found().items
    assert item["installed"] == "1.0"


def test_a_folder_of_packages_knows_its_python_by_its_name(put: Put, read, tmp_path: Path) -> None:
    packages = tmp_path / "root" / "usr" / "lib" / "python3.9" / "site-packages"
    packages.mkdir(parents=True)
    put(
        "a",
        "1.0",
        'Requires-Dist: b; python_version < "3.10"',
        'Requires-Dist: c; sys_platform == "win32"',
        folder=packages,
    )
    records = read(root=tmp_path / "root")[2]["conflict"]
    assert [item["package"] for item in records] == ["b"]
    assert records.incomplete is None


def test_a_marker_that_nothing_known_decides_leaves_the_list_incomplete(put: Put, read, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    put("a", "1.0", 'Requires-Dist: b; python_version < "3.10"', folder=packages)
    records = read(path=packages)[2]["conflict"]
    assert records.items == ()
    assert "whether a has the b" in records.incomplete


def header_of(content: bytes):
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return read_header(file.fileno(), Files())


lines = st.lists(
    st.one_of(
        st.builds(
            "{}: {}{}{}".format,
            st.sampled_from(["Requires-Dist", "requires-dist", "REQUIRES-DIST"]),
            st.sampled_from(["a", "b-extra", "extra", "c[x]", "extra ==1", "d (>=1)"]),
            st.sampled_from(["", " >=1,<2"]),
            st.sampled_from(
                [
                    "",
                    '; extra == "x"',
                    "; extra=='x'",
                    ' ; os_name == "y" and extra == "x"',
                    '; extra == "x" or os_name == "y"',
                    "; extra == ''",
                    '; "x" == extra',
                ],
            ),
        ),
        st.sampled_from(
            [
                "License: x",
                "        Requires-Dist: no",
                "Summary: Requires-Dist: z",
                "Requires-Python: >=3.8",
                "\tfolded",
                " ; os_name == 'q'",
            ]
        ),
    ),
    max_size=8,
)


@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_requirements_of_a_header_are_those_that_email_reads(some: list[str], end: str, long: bool) -> None:
    head = ["Metadata-Version: 2.1", "Name: n", "Version: 1", *(["License: " + "x" * 9000] if long else []), *some]
    content = (end.join(head) + end + end + "Requires-Dist: description" + end).encode()
    message = BytesHeaderParser().parsebytes(content)
    wanted = [" ".join(value.split()) for value in message.get_all("requires-dist", [])]
    kept = list(header_of(content).requires)
    dropped = list(wanted)
    for value in kept:
        assert value in dropped
        dropped.remove(value)
    for value in dropped:  # false in every environment, when no extra is asked for
        try:
            marker = Packaging(value).marker
        except InvalidRequirement:
            continue
        assert marker is not None
        assert not marker.evaluate({"extra": "", "os_name": "y"})


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_line_is_a_requirement_or_is_none(line: str) -> None:
    try:
        requirement = read_requirement(line)
    except NotARequirement:
        return
    assert requirement.name


@given(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["a", "A.b_c", "a-1"]),
        st.sampled_from(["", "[x]", " [x, y]", " "]),
        st.sampled_from(["", ">=1", " (>=1,<2)", " >= 1 , != 2.*", " @ https://example.org/a;b.zip"]),
        st.sampled_from(["", " ; os_name == 'x'", " ;python_version<'3'"]),
    )
)
def test_a_line_is_taken_apart_as_packaging_does(line: str) -> None:
    try:
        wanted = Packaging(line)
    except InvalidRequirement:
        return
    requirement = read_requirement(line)
    assert requirement.name == wanted.name.lower().replace(".", "-").replace("_", "-")
    assert sorted(requirement.specifiers.replace(" ", "").split(",")) == sorted(str(wanted.specifier).split(","))
    assert bool(requirement.marker) is (wanted.marker is not None)
    assert set(requirement.extras) == wanted.extras


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=120).map(lambda raw: b"Requires-Dist: " + raw), max_size=6), st.binary(max_size=40))
def test_hostile_metadata_never_stops_the_reading(requirements: list[bytes], python: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        info = Path(name) / "a-1.0.dist-info"
        info.mkdir()
        head = [b"Metadata-Version: 2.1", b"Name: a", b"Version: 1.0", b"Requires-Python: " + python, *requirements]
        (info / "METADATA").write_bytes(b"\n".join(head) + b"\n\n")
        layout = choose(None, name, None, environ={}, cwd=os.sep)
        (fact,) = [fact for fact in observe(layout).facts if fact.key == "conflict"]
        assert isinstance(fact.value, Records)


def test_a_header_longer_than_what_is_read_leaves_the_list_incomplete(put: Put, found) -> None:
    put("a", "1.0", "License: " + "x" * (1 << 20), "Requires-Dist: b")
    records = found()
    assert records.items == ()
    assert "too long" in records.incomplete


def test_no_file_is_opened_twice_for_its_requirements(
    put: Put, site: Path, monkeypatch: pytest.MonkeyPatch, found
) -> None:
    put("a", "1.0", "Requires-Dist: b")
    opened: list[str] = []
    real = Files.open
    monkeypatch.setattr(Files, "open", lambda self, path: opened.append(path) or real(self, path))
    assert len(found().items) == 1
    # The environment is read twice here: as it was observed, and with what follows.
    assert len([path for path in opened if path.endswith("METADATA")]) == 2


def test_an_egg_info_names_its_requirements_in_a_file_of_their_own(site: Path, put: Put, found) -> None:
    info = site / "old-1.0-py3.11.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: old\nVersion: 1.0\n\n")
    sections = (
        'gone>=2\nthere<2\n\n[:python_version < "3"]\nnever\n\n[:python_version >= "3"]\nalways\n\n[more]\nextra\n'
    )
    (info / "requires.txt").write_text(sections + '\n[more:python_version >= "3"]\nextra-too\n')
    put("there", "2.1")
    assert [(item["package"], item["kind"], item["asked_by"]) for item in found()] == [
        ("always", "missing", "old"),
        ("gone", "missing", "old (>=2)"),
        ("there", "conflict", "old (<2)"),
    ]


def test_of_thousands_of_unmet_requirements_some_hundreds_are_told_and_the_rest_counted(put: Put, found) -> None:
    put("greedy", "1.0", *(f"Requires-Dist: p{number:05} (>=1)" for number in range(8000)))
    records = found()
    assert [item["package"] for item in records][::299] == ["p00000", "p00299"]
    assert len(records) == 300
    assert records.incomplete == "7700 more packages are missing or do not fit; 300 are told"


def test_as_many_as_are_told_leave_the_list_complete(put: Put, found) -> None:
    put("greedy", "1.0", *(f"Requires-Dist: p{number:05} (>=1)" for number in range(300)))
    records = found()
    assert (len(records), records.incomplete) == (300, None)


@pytest.mark.parametrize("odd", ["\x1b\x07", "\x1b[1m", "\u200b", "\x7f", "\u202e>=1"])
def test_specifiers_that_nobody_could_print_are_not_named(put: Put, found, odd: str) -> None:
    put("a", "1.0", f"Requires-Dist: b ({odd})")
    (item,) = found().items
    assert (item["asked_by"], item["requires"]) == ("a", "*")


def test_blanks_in_specifiers_are_not_shown(put: Put, found) -> None:
    put("a", "1.0", "Requires-Dist: b (>=1,\t <2)")
    assert [item["asked_by"] for item in found()] == ["a (>=1,<2)"]
