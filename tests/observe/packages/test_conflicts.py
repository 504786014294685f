"""Unmet requirements by cause: what is grouped, what stays open, and hostile metadata."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import a_layout, observe, write
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Packaging

from envdoctor.facts import ABSENT, Records
from envdoctor.system import Files
from envdoctor.versions import read_requirement


@pytest.fixture
def conflicts(tmp_path: Path, put) -> Callable[..., Records]:
    """Install metadata, as ``put`` takes it, into ``packages`` and return the unmet requirements."""

    def found(dists, **changes) -> Records:
        (tmp_path / "packages").mkdir(exist_ok=True)
        put(tmp_path / "packages", dists)
        value = observe(a_layout(tmp_path, tmp_path / "packages", **changes)).known.value("conflict")
        assert isinstance(value, Records)
        return value

    return found


#: The extra is asked for by name, among others, or by an extra that asks for it.
EXTRAS = ["d; extra == 'test'", "b[fast-io]; extra == 'all'", "c>=2; extra == 'fast_io' and python_version > '3'", "e"]


@pytest.mark.parametrize(
    ("dists", "found", "incomplete"),
    [
        (
            {"protobuf 7.35.1": [], "a 1.0": ["protobuf <7, >=3.20"], "b 1.0": ["protobuf>=5"]},
            [{"installed": "7.35.1", "required_by": ("a (<7,>=3.20)",), "requires": "<7,>=3.20"}],
            None,
        ),
        *(
            (
                {"a 1.0": [asked, "b[test]; extra == 'test'"], "b 1.0": EXTRAS, "c 1.0": [], "e 1.0": []},
                [{"package": "c", "required_by": ("a -> b[fast-io] (>=2)",)}],
                None,
            )
            for asked in ("b[Fast_IO]", "b[other, fast.io]>=1", "b[all]")
        ),
        # extras that ask for each other end; what they require is looked through up to a limit
        ({"a 1.0": ["b[x]"], "b 1.0": ["b[y]; extra == 'x'", "b[x]; extra == 'y'"]}, [], None),
        (
            {"many 1.0": ["p; extra == 'x'"] * 3000, **{f"a{number} 1.0": ["many[x]"] for number in range(20)}},
            [{"package": "p"}],
            "the extras of packages require more than is looked through",
        ),
        # what cannot be read leaves the list open
        ({"a 1.0": ["b >=1.*.*", "c"], "b 1.0": []}, [{"package": "c"}], "a requirement of a cannot be read"),
        ({"a 1.0": ["b>=1", "b"], "b not-a-version": []}, [], "whether a has the b"),
        ({"a 1.0": ["License: " + "x" * (1 << 20), "b"]}, [], "too long"),
        # two records of one version are one package
        ({"b 1.0": [], "B 1.0": [], "a 1.0": ["b>=2"]}, [{"installed": "1.0"}], None),
        # specifiers that nobody could print are not named, and blanks not shown
        *(
            ({"a 1.0": [f"b ({odd})"]}, [{"asked_by": "a", "requires": "*"}], None)
            for odd in ("\x1b\x07", "\x1b[1m", "\u200b", "\x7f", "\u202e>=1")
        ),
        ({"a 1.0": ["b (>=1,\t <2)"]}, [{"asked_by": "a (>=1,<2)"}], None),
    ],
)
def test_unmet_requirements_are_told_with_who_asks(conflicts, dists, found, incomplete) -> None:
    records = conflicts(dists)
    assert len(records) == len(found)
    assert all(item.items() >= said.items() for item, said in zip(records, found, strict=True))
    assert records.incomplete is None if incomplete is None else incomplete in records.incomplete


def test_a_missing_package_is_one_record_however_many_ask(conflicts) -> None:
    (item,) = conflicts({f"p{number:02} 1.0": ["torch>=2.0"] for number in range(40)})
    assert (item["package"], item["kind"], item["installed"]) == ("torch", "missing", ABSENT)
    assert item["asked_by"] == "p00 (>=2.0), p01 (>=2.0), p02 (>=2.0), … +37"
    assert (len(item["required_by"]), item["requires"]) == (40, ">=2.0")


def test_of_thousands_of_unmet_requirements_some_hundreds_are_told_and_the_rest_counted(conflicts) -> None:
    records = conflicts({"greedy 1.0": [f"p{number:05} (>=1)" for number in range(8000)]})
    assert [item["package"] for item in records][::299] == ["p00000", "p00299"]
    assert len(records) == 300
    assert records.incomplete == "7700 more packages are missing or do not fit; 300 are told"


def test_as_many_as_are_told_leave_the_list_complete(conflicts) -> None:
    records = conflicts({"greedy 1.0": [f"p{number:05} (>=1)" for number in range(300)]})
    assert (len(records), records.incomplete) == (300, None)


def test_a_list_that_may_lack_packages_does_not_say_that_one_is_missing(conflicts) -> None:
    records = conflicts({"a 1.0": ["b", "c>=2"], "c 1.0": []}, incomplete="a folder cannot be listed")
    assert [item["package"] for item in records] == ["c"]
    assert records.incomplete == "a folder cannot be listed"


def test_a_package_whose_metadata_is_gone_counts_as_there(conflicts, tmp_path: Path) -> None:
    write(tmp_path / "packages", {"torch/version.py": "__version__ = '2.5.1+cu124'\n"})
    assert conflicts({"a 1.0": ["torch"]}).items == ()


def test_a_folder_of_packages_knows_its_python_by_its_name(put, read, tmp_path: Path) -> None:
    packages = tmp_path / "root" / "usr" / "lib" / "python3.9" / "site-packages"
    put(packages, {"a 1.0": ['b; python_version < "3.10"', 'c; sys_platform == "win32"']})
    records = read(root=tmp_path / "root")[2]["conflict"]
    assert ([item["package"] for item in records], records.incomplete) == (["b"], None)


def test_a_marker_that_nothing_known_decides_leaves_the_list_incomplete(put, read, bare: Path) -> None:
    put(bare, {"a 1.0": ['b; python_version < "3.10"']})
    records = read(path=bare)[2]["conflict"]
    assert records.items == () and "whether a has the b" in records.incomplete


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
        assert isinstance(observe(a_layout(Path(name))).known.value("conflict"), Records)


def test_no_file_is_opened_twice_for_its_requirements(conflicts, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Files.open
    monkeypatch.setattr(Files, "open", lambda self, path: opened.append(path) or real(self, path))
    assert len(conflicts({"a 1.0": ["b"]})) == 1
    assert len([path for path in opened if path.endswith("METADATA")]) == 1


@pytest.mark.parametrize(
    ("egg", "sections", "dists", "found"),
    [
        (
            "old-1.0-py3.11",
            'gone>=2\nthere<2\n\n[:python_version < "3"]\nnever\n\n[:python_version >= "3"]\nalways\n\n[more]\nextra\n'
            '\n[more:python_version >= "3"]\nextra-too\n',
            {"there 2.1": []},
            [("always", "missing", "old"), ("gone", "missing", "old (>=2)"), ("there", "conflict", "old (<2)")],
        ),
        # extras of an egg are followed
        (
            "b-1.0",
            "[x]\nc\n[x:python_version < '3']\nd\n[y]\ne\n",
            {"a 1.0": ["b[x]"]},
            [("c", "missing", "a -> b[x]")],
        ),
    ],
)
def test_an_egg_info_names_its_requirements_in_a_file_of_their_own(
    conflicts, tmp_path: Path, egg: str, sections: str, dists, found
) -> None:
    head = f"Metadata-Version: 1.2\nName: {egg.partition('-')[0]}\nVersion: 1.0\n\n"
    write(tmp_path / "packages" / f"{egg}.egg-info", {"PKG-INFO": head, "requires.txt": sections})
    assert [(item["package"], item["kind"], item["asked_by"]) for item in conflicts(dists)] == found
