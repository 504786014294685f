"""What one folder of packages holds, and what is wrong with it."""

import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observing import installed, write
from tables import cases

from envdoctor.facts import ABSENT, Records, Unknown, Value

CASES = cases("distributions.toml")


def records(folder: Path, key: str) -> Records:
    found = installed(folder).value(key)
    assert isinstance(found, Records)
    return found


def only(folder: Path) -> Mapping[str, Value]:
    (found,) = records(folder, "dist")
    return found


def problems(folder: Path) -> list[tuple[Value, ...]]:
    return [
        tuple(item[column] for column in ("name", "kind", "versions")) for item in records(folder, "metadata_problem")
    ]


@pytest.mark.parametrize(("name", "version", "more", "found"), CASES["metadata_directory_distribution"])
def test_a_metadata_directory_is_a_distribution(bare: Path, make_dist, name, version, more, found) -> None:
    path = make_dist(bare, name, version, **more)
    assert only(bare).items() >= {**found, "path": str(path)}.items()
    assert problems(bare) == []


@pytest.mark.parametrize(("name", "version"), [("torch", "2004d"), ("apex", "custom_build-7")])
def test_a_version_that_pep_440_does_not_know_is_a_problem(bare: Path, make_dist, name, version) -> None:
    make_dist(bare, name, version)
    assert only(bare)["version"] == Unknown(f"a version by PEP 440 is expected, not {version!r}")
    assert problems(bare) == [(name, "invalid-version", ABSENT)]


def test_an_egg_info_file_an_egg_and_a_zipped_egg_are_distributions(bare: Path, tmp_path: Path) -> None:
    (bare / "six-1.16.0-py3.8.egg-info").write_text("Metadata-Version: 1.2\nName: six\nVersion: 1.16.0\n")
    found = only(bare)
    assert [found[column] for column in ("name", "version", "installer", "editable")] == [
        "six",
        "1.16.0",
        ABSENT,
        False,
    ]
    assert installed(bare).get("pkg.six").origin == "six-1.16.0-py3.8.egg-info"
    egg, zipped = "docutils-0.20-py3.8.egg", "zipped-0.21-py3.8.egg"
    info = "Metadata-Version: 1.2\nName: docutils\nVersion: 0.20\n"
    write(tmp_path, {f"{egg}/EGG-INFO/PKG-INFO": info, zipped: "PK"})
    for path, name, version in ((egg, "docutils", "0.20"), (zipped, "zipped", "0.21")):
        assert (only(tmp_path / path)["name"], only(tmp_path / path)["version"]) == (name, version)


def test_an_editable_install_is_known_by_its_pth_file(bare: Path, make_dist) -> None:
    make_dist(bare, "my_pkg", "0.1")
    (bare / "__editable__.my_pkg-0.1.pth").write_text("/src\n")
    assert only(bare)["editable"] is True


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"dir_info": []}', "[" * 30_000, '{"dir_info": null}', "\x00"])
def test_a_broken_direct_url_leaves_editable_unknown(bare: Path, make_dist, text: str) -> None:
    make_dist(bare, "mine", "0.1", direct_url__json=text)
    found = only(bare)
    assert isinstance(found["editable"], Unknown) and found["version"] == "0.1"


@pytest.mark.parametrize(
    ("names", "versions"),
    [
        (["numpy-2.4.6", "numpy-1.26.4"], "1.26.4, 2.4.6"),
        (["nUm_py-2.0", "num.py-2.1-egg-info"], "2.0, 2.1"),
        ([f"numpy-1.{number}" for number in range(3)], "1.0, 1.1, 1.2"),
        ([f"numpy-1.{number}" for number in range(300)], "1.0, 1.1, 1.10, … +297"),
    ],
)
def test_of_several_versions_in_one_folder_three_are_named(
    bare: Path, make_dist, names: list[str], versions: str
) -> None:
    for name in names:
        written, version, *kind = name.split("-", 2)
        make_dist(bare, written, version, kind=(kind or ["dist-info"])[0])
    ((_, kind, found),) = problems(bare)
    assert (kind, found) == ("duplicate", versions)


def test_a_folder_that_pip_left_behind_is_a_problem_and_no_distribution(bare: Path, make_dist) -> None:
    make_dist(bare, "~umpy", "1.26.4")
    (bare / "~umpy").mkdir()
    leftovers = [("~umpy", "leftover", ABSENT), ("~umpy-1.26.4.dist-info", "leftover", ABSENT)]
    assert (problems(bare), len(records(bare, "dist"))) == (leftovers, 0)


def test_a_directory_without_metadata_gives_a_name_and_no_version(bare: Path) -> None:
    (bare / "tokenizers-0.21.0.dist-info").mkdir()
    found = only(bare)
    assert (found["name"], found["version"]) == ("tokenizers", Unknown("tokenizers-0.21.0.dist-info has no METADATA"))
    assert problems(bare) == [("tokenizers", "no-metadata", ABSENT)]


@pytest.mark.parametrize(("line", "origin"), [("Name: numpy", " (folder name)"), ("Version: 2.4.6", "/METADATA")])
def test_metadata_without_name_or_version_takes_that_of_the_folder_and_says_so(
    bare: Path, make_dist, line: str, origin: str
) -> None:
    make_dist(bare, "numpy", "2.4.6", header=f"Metadata-Version: 2.1\n{line}\n\n")
    assert (only(bare)["name"], only(bare)["version"]) == ("numpy", "2.4.6")
    assert installed(bare).get("pkg.numpy").origin == f"numpy-2.4.6.dist-info{origin}"
    assert problems(bare) == [("numpy", "no-version", "2.4.6")]


def test_metadata_of_another_version_than_its_folder_tells_none(bare: Path, make_dist) -> None:
    make_dist(bare, "numpy", "2.4.6", header="Metadata-Version: 2.1\nName: numpy\nVersion: 1.26.4\n\n")
    assert isinstance(only(bare)["version"], Unknown)
    assert problems(bare) == [("numpy", "mismatch", "1.26.4, 2.4.6")]


def test_metadata_cut_anywhere_never_gives_a_wrong_version(bare: Path, make_dist) -> None:
    path = make_dist(bare, "torch", "2.13.0") / "METADATA"
    for keep in range(60):
        path.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n\nText"[:keep])
        assert (only(bare)["name"], only(bare)["version"]) == ("torch", "2.13.0")


def test_a_name_that_is_none_is_a_problem(bare: Path, make_dist) -> None:
    make_dist(bare, "x", "1", header="Metadata-Version: 2.1\nName: \x1b[31mred; rm -rf\nVersion: 1\n\n")
    assert [kind for _, kind, _ in problems(bare)] == ["invalid-name"]
    assert records(bare, "dist") == Records(())


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),  # endless
        lambda path: path.symlink_to("METADATA"),  # a circle
    ],
)
def test_metadata_that_is_no_file_is_unreadable_and_does_not_hang(bare: Path, make: Callable[[Path], None]) -> None:
    (bare / "numpy-2.4.6.dist-info").mkdir()
    make(bare / "numpy-2.4.6.dist-info" / "METADATA")
    assert problems(bare) == [("numpy", "unreadable", "2.4.6")]
    assert only(bare)["version"] == "2.4.6"


def test_metadata_without_permission_is_unreadable(forbidden: Path, make_dist) -> None:
    (make_dist(forbidden, "numpy", "2.4.6") / "METADATA").chmod(0)
    (problem,) = records(forbidden, "metadata_problem")
    assert problem["kind"] == "no-access"
    assert problem["detail"] == f"numpy-2.4.6.dist-info/METADATA cannot be read: {os.strerror(errno.EACCES)}"


def test_a_folder_whose_name_is_not_utf8_can_be_written_down(bare: Path) -> None:
    path = os.fsencode(bare) + b"/caf\xe9-1.0.dist-info"
    os.mkdir(path)
    with open(path + b"/METADATA", "w") as file:
        file.write("Name: caf\nVersion: 1.0\n\n")
    (bare / os.fsdecode(b"~\xff")).mkdir()
    facts = installed(bare)
    items = [*records(bare, "dist"), *records(bare, "metadata_problem")]
    cells = [str(cell) for item in items for column, cell in item.items() if column != "path"]
    assert len(items) == 2
    assert [text.encode() for text in (facts.get("pkg.caf").origin, *cells)]


@given(
    header=st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode)),
    entry=st.text(st.characters(blacklist_characters="/\0", codec="utf-8"), max_size=40),
    direct_url=st.one_of(st.none(), st.binary(max_size=60)),
)
def test_any_metadata_directory_is_a_distribution_or_a_problem(
    header: bytes, entry: str, direct_url: bytes | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / f"{entry}.dist-info"
        try:
            folder.mkdir()
        except OSError:  # too long for the file system
            return
        (folder / "METADATA").write_bytes(header)
        if direct_url is not None:
            (folder / "direct_url.json").write_bytes(direct_url)
        found = records(Path(name), "dist")
        assert len(found) or len(records(Path(name), "metadata_problem"))
        for item in found:
            assert str(item["name"]) == str(item["name"]).lower()
            assert isinstance(item["version"], (str, Unknown))


@pytest.mark.parametrize("length", [0, 1 << 13, 1 << 15])
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_metadata_in_another_encoding_is_named(bare: Path, make_dist, encoding: str, length: int) -> None:
    text = f"Metadata-Version: 2.1\nName: tqdm\nVersion: 4.70.1\n\n{'e' * length}é"
    (make_dist(bare, "tqdm", "4.70.1") / "METADATA").write_bytes(text.encode(encoding))
    (problem,) = records(bare, "metadata_problem")
    assert (problem["name"], problem["kind"], problem["alone"]) == ("tqdm", "encoding", True)
    assert installed(bare).value("pkg.tqdm") == "4.70.1"


@pytest.mark.parametrize("length", [0, 8100, 8101, 1 << 15])
def test_a_long_description_in_utf_8_is_sound(bare: Path, make_dist, length: int) -> None:
    text = f"Metadata-Version: 2.1\nName: tqdm\nVersion: 4.70.1\n\n{'e' * length}{'é' * 99}\n{'é' * length}"
    (make_dist(bare, "tqdm", "4.70.1") / "METADATA").write_text(text, encoding="utf-8")
    assert len(records(bare, "metadata_problem")) == 0


def test_a_leftover_beside_sound_metadata_is_not_the_only_record(bare: Path, make_dist) -> None:
    make_dist(bare, "tqdm", "4.70.1")
    (make_dist(bare, "tqdm", "4.60.0") / "METADATA").unlink()
    found = records(bare, "metadata_problem")
    assert [item["alone"] for item in found if item["kind"] == "no-metadata"] == [False]
