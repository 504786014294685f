"""What one folder of packages holds, and what is wrong with it."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe.packages.reading.distributions import FolderScan, scan_folder
from envdoctor.text import Files


def scan(folder: Path) -> FolderScan:
    return scan_folder(str(folder), Files())


def only(folder: Path):
    found = scan(folder)
    assert len(found.distributions) == 1
    return found.distributions[0]


def problems(folder: Path) -> list[tuple[str, str, object]]:
    return [(problem.name, problem.kind, problem.versions) for problem in scan(folder).problems]


def test_a_wheel_is_a_distribution(bare: Path, make_dist) -> None:
    path = make_dist(bare, "numpy", "2.4.6", INSTALLER="uv\n")
    found = only(bare)
    assert found[:7] == ("numpy", "2.4.6", "dist-info", "uv", False, str(path), "numpy-2.4.6.dist-info/METADATA")
    assert problems(bare) == []


@pytest.mark.parametrize(
    ("written", "normal"),
    [("Flash_Attn", "flash-attn"), ("ruamel.yaml", "ruamel-yaml"), ("A--B__c", "a-b-c"), ("x", "x")],
)
def test_names_are_normalised(bare: Path, make_dist, written: str, normal: str) -> None:
    make_dist(bare, written, "1")
    assert only(bare).name == normal


@pytest.mark.parametrize("version", ["2.6.0a0+df5bbc09d1.nv24.12", "2.4.0.post1", "1!2.0", "2.5.0+cu118", "2004d"])
def test_versions_of_pep_440_are_kept_as_written(bare: Path, make_dist, version: str) -> None:
    make_dist(bare, "torch", version)
    expected = version if version != "2004d" else None
    found = only(bare).version
    assert found == expected or (expected is None and isinstance(found, Unknown))


def test_a_version_that_is_none_is_unknown_and_says_what_was_found(bare: Path, make_dist) -> None:
    make_dist(bare, "apex", "custom_build-7")
    version = only(bare).version
    assert isinstance(version, Unknown)
    assert "'custom_build-7'" in version.reason


def test_no_installer_is_known(bare: Path, make_dist) -> None:
    make_dist(bare, "numpy", "1.0")
    assert only(bare).installer is ABSENT


def test_an_egg_info_folder_is_a_distribution(bare: Path, make_dist) -> None:
    make_dist(bare, "PyYAML", "6.0", kind="egg-info")
    found = only(bare)
    assert (found.name, found.version, found.kind) == ("pyyaml", "6.0", "egg-info")


def test_an_egg_info_file_is_a_distribution(bare: Path) -> None:
    (bare / "six-1.16.0-py3.8.egg-info").write_text("Metadata-Version: 1.2\nName: six\nVersion: 1.16.0\n")
    found = only(bare)
    assert (found.name, found.version, found.installer, found.editable) == ("six", "1.16.0", ABSENT, False)
    assert found.origin == "six-1.16.0-py3.8.egg-info"


def test_an_egg_on_the_path_is_a_distribution(tmp_path: Path) -> None:
    egg = tmp_path / "docutils-0.20-py3.8.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: docutils\nVersion: 0.20\n")
    assert (only(egg).name, only(egg).version) == ("docutils", "0.20")


def test_a_zipped_egg_is_known_by_its_name(tmp_path: Path) -> None:
    egg = tmp_path / "docutils-0.20-py3.8.egg"
    egg.write_bytes(b"PK")
    assert (only(egg).name, only(egg).version) == ("docutils", "0.20")


def test_an_editable_install_is_known_by_its_direct_url(bare: Path, make_dist) -> None:
    make_dist(bare, "mine", "0.1", direct_url__json=json.dumps({"url": "file:///src", "dir_info": {"editable": True}}))
    assert only(bare).editable is True


def test_a_direct_url_of_an_archive_is_not_editable(bare: Path, make_dist) -> None:
    make_dist(bare, "mine", "0.1", direct_url__json=json.dumps({"url": "https://x/y.whl", "archive_info": {}}))
    assert only(bare).editable is False


def test_an_editable_install_is_known_by_its_pth_file(bare: Path, make_dist) -> None:
    make_dist(bare, "my_pkg", "0.1")
    (bare / "__editable__.my_pkg-0.1.pth").write_text("/src\n")
    assert only(bare).editable is True


def test_an_egg_link_leads_to_its_source_folder(bare: Path) -> None:
    (bare / "mine.egg-link").write_text("/home/me/mine\n.\n")
    assert scan(bare).linked == ["/home/me/mine"]


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"dir_info": []}', "[" * 30_000, '{"dir_info": null}', "\x00"])
def test_a_broken_direct_url_leaves_editable_unknown(bare: Path, make_dist, text: str) -> None:
    make_dist(bare, "mine", "0.1", direct_url__json=text)
    found = only(bare)
    assert isinstance(found.editable, Unknown)
    assert found.version == "0.1"


def test_two_versions_in_one_folder_are_a_duplicate(bare: Path, make_dist) -> None:
    make_dist(bare, "numpy", "2.4.6")
    make_dist(bare, "numpy", "1.26.4")
    assert problems(bare) == [("numpy", "duplicate", "1.26.4, 2.4.6")]


def test_names_spelled_differently_are_the_same_name(bare: Path, make_dist) -> None:
    make_dist(bare, "Flash_Attn", "2.0")
    make_dist(bare, "flash.attn", "2.1", kind="egg-info")
    assert problems(bare) == [("flash-attn", "duplicate", "2.0, 2.1")]


@pytest.mark.parametrize(("count", "versions"), [(3, "1.0, 1.1, 1.2"), (300, "1.0, 1.1, 1.10, … +297")])
def test_of_many_versions_in_one_folder_three_are_named(bare: Path, make_dist, count: int, versions: str) -> None:
    for number in range(count):
        make_dist(bare, "numpy", f"1.{number}")
    ((name, kind, found),) = problems(bare)
    assert (name, kind, found) == ("numpy", "duplicate", versions)


def test_a_folder_that_pip_left_behind_is_a_problem_and_no_distribution(bare: Path, make_dist) -> None:
    make_dist(bare, "~umpy", "1.26.4")
    (bare / "~umpy").mkdir()
    found = scan(bare)
    assert [(problem.name, problem.kind) for problem in found.problems if problem.kind == "leftover"] == [
        ("~umpy", "leftover"),
        ("~umpy-1.26.4.dist-info", "leftover"),
    ]
    assert found.distributions == []


def test_a_directory_without_metadata_gives_a_name_and_no_version(bare: Path) -> None:
    (bare / "tokenizers-0.21.0.dist-info").mkdir()
    found = only(bare)
    assert found.name == "tokenizers"
    assert found.version == Unknown("tokenizers-0.21.0.dist-info has no METADATA")
    assert problems(bare) == [("tokenizers", "no-metadata", ABSENT)]


def test_metadata_without_a_version_takes_that_of_the_folder_and_says_so(bare: Path, make_dist) -> None:
    make_dist(bare, "numpy", "2.4.6", header="Metadata-Version: 2.1\nName: numpy\n\n")
    found = only(bare)
    assert (found.version, found.origin) == ("2.4.6", "numpy-2.4.6.dist-info (folder name)")
    assert problems(bare) == [("numpy", "no-version", "2.4.6")]


def test_metadata_without_a_name_takes_that_of_the_folder(bare: Path, make_dist) -> None:
    make_dist(bare, "numpy", "2.4.6", header="Metadata-Version: 2.1\nVersion: 2.4.6\n\n")
    assert (only(bare).name, only(bare).version) == ("numpy", "2.4.6")
    assert problems(bare) == [("numpy", "no-version", "2.4.6")]


@pytest.mark.parametrize("keep", range(60))
def test_metadata_cut_anywhere_never_gives_a_wrong_version(bare: Path, make_dist, keep: int) -> None:
    make_dist(bare, "torch", "2.13.0", header="Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n\nText"[:keep])
    found = only(bare)
    assert (found.name, found.version) == ("torch", "2.13.0")


def test_a_name_that_is_none_is_a_problem(bare: Path, make_dist) -> None:
    make_dist(bare, "x", "1", header="Metadata-Version: 2.1\nName: \x1b[31mred; rm -rf\nVersion: 1\n\n")
    assert [kind for _, kind, _ in problems(bare)] == ["invalid-name"]
    assert scan(bare).distributions == []


def test_metadata_that_is_a_folder_is_unreadable(bare: Path) -> None:
    (bare / "numpy-2.4.6.dist-info" / "METADATA").mkdir(parents=True)
    assert problems(bare) == [("numpy", "unreadable", "2.4.6")]
    assert only(bare).version == "2.4.6"


def test_metadata_that_is_a_pipe_does_not_hang(bare: Path) -> None:
    (bare / "numpy-2.4.6.dist-info").mkdir()
    os.mkfifo(bare / "numpy-2.4.6.dist-info" / "METADATA")
    assert problems(bare) == [("numpy", "unreadable", "2.4.6")]


def test_metadata_that_is_an_endless_device_does_not_hang(bare: Path) -> None:
    (bare / "numpy-2.4.6.dist-info").mkdir()
    (bare / "numpy-2.4.6.dist-info" / "METADATA").symlink_to("/dev/zero")
    assert problems(bare) == [("numpy", "unreadable", "2.4.6")]


def test_a_link_in_a_circle_is_unreadable(bare: Path) -> None:
    (bare / "numpy-2.4.6.dist-info").mkdir()
    (bare / "numpy-2.4.6.dist-info" / "METADATA").symlink_to("METADATA")
    assert problems(bare) == [("numpy", "unreadable", "2.4.6")]


def test_metadata_without_permission_is_unreadable(forbidden: Path, make_dist) -> None:
    (make_dist(forbidden, "numpy", "2.4.6") / "METADATA").chmod(0)
    found = scan(forbidden)
    assert [(problem.kind, problem.detail) for problem in found.problems] == [
        ("unreadable", f"numpy-2.4.6.dist-info/METADATA cannot be read: {os.strerror(errno.EACCES)}")
    ]


def test_a_folder_without_permission_raises(forbidden: Path, make_dist) -> None:
    inner = forbidden / "packages"
    make_dist(inner, "numpy", "2.4.6")
    inner.chmod(0)
    with pytest.raises(PermissionError):
        scan(inner)


def test_a_folder_whose_name_is_not_utf8_can_be_written_down(bare: Path) -> None:
    path = os.fsencode(bare) + b"/caf\xe9-1.0.dist-info"
    os.mkdir(path)
    with open(path + b"/METADATA", "w") as file:
        file.write("Name: caf\nVersion: 1.0\n\n")
    (bare / os.fsdecode(b"~\xff")).mkdir()
    found = scan(bare)
    texts = [found.distributions[0].origin, *(problem.detail + problem.name for problem in found.problems)]
    assert [text.encode() for text in texts]


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
        found = scan(Path(name))
        assert found.distributions or found.problems
        for item in found.distributions:
            assert item.name == item.name.lower()
            assert isinstance(item.version, (str, Unknown))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_metadata_in_another_encoding_is_named(bare: Path, make_dist, read, encoding: str) -> None:
    folder = make_dist(bare, "tqdm", "4.70.1")
    text = "Metadata-Version: 2.1\nName: tqdm\nVersion: 4.70.1\nAuthor: Jérôme\n\n"
    (folder / "METADATA").write_bytes(text.encode(encoding))
    _, _, values = read(path=bare)
    (problem,) = values["metadata_problem"]
    assert (problem["name"], problem["kind"], problem["alone"]) == ("tqdm", "encoding", True)
    assert values["pkg.tqdm"] == "4.70.1"


def test_a_leftover_beside_sound_metadata_is_not_the_only_record(bare: Path, make_dist, read) -> None:
    make_dist(bare, "tqdm", "4.70.1")
    (make_dist(bare, "tqdm", "4.60.0") / "METADATA").unlink()
    _, _, values = read(path=bare)
    assert [item["alone"] for item in values["metadata_problem"] if item["kind"] == "no-metadata"] == [False]
