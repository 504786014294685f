"""Envdoctor's cache: only its owner's entries count, and only its owner's files are removed."""

import os
from pathlib import Path

import pytest

from envdoctor.system import CacheFolder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="owners and links are those of POSIX")
root_only = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache with one entry."""
    CacheFolder(str(tmp_path / "envdoctor"), "kind").write("ab/entry", b"data")
    return tmp_path / "envdoctor"


def entry(home: Path) -> bytes | None:
    return CacheFolder(str(home), "kind").read("ab/entry", 100)


def test_an_entry_comes_back_and_is_nobody_elses_business(home):
    assert entry(home) == b"data"
    assert {place.stat().st_mode & 0o777 for place in (home, home / "kind", home / "kind" / "ab")} == {0o700}
    assert (home / "kind" / "ab" / "entry").stat().st_mode & 0o777 == 0o600
    assert CacheFolder(str(home), "kind").read("ab/entry", 3) is None
    assert CacheFolder(None, "kind").read("ab/entry", 3) is None


def test_an_entry_that_others_could_have_written_is_none(home):
    (home / "kind" / "ab" / "entry").chmod(0o602)
    assert entry(home) is None


@root_only
@pytest.mark.parametrize("place", ["", "kind", "kind/ab/entry"])
def test_what_belongs_to_another_user_is_not_believed(home, place):
    os.chown(home / place, 4242, 4242)
    assert entry(home) is None


@pytest.mark.parametrize("place", ["", "kind"])
def test_a_folder_that_is_a_link_is_neither_read_nor_cleared(home, tmp_path, place):
    elsewhere = (home / place).rename(tmp_path / "elsewhere")
    (home / place).symlink_to(elsewhere)
    assert entry(home) is None
    foreign = tmp_path / "elsewhere" / "foreign.json"
    foreign.write_text("mine")
    CacheFolder(str(home), "kind" if place else "").trim(0, ".json")
    assert foreign.exists()
    CacheFolder(str(home), "kind").write("new", b"data")
    assert not list(tmp_path.rglob("new"))


@pytest.mark.parametrize("place", ["", "kind", "kind/deep", "kind/deep/ab"])
def test_nothing_is_made_or_read_behind_a_link(tmp_path, place):
    home, elsewhere = tmp_path / "envdoctor", tmp_path / "elsewhere"
    below = os.path.relpath("kind/deep/ab", place) if place else "kind/deep/ab"
    elsewhere.mkdir()
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    (home / place).symlink_to(elsewhere)
    CacheFolder(str(home), "kind/deep").write("ab/entry", b"data")
    assert list(elsewhere.iterdir()) == []
    (elsewhere / below).mkdir(parents=True, exist_ok=True)
    (elsewhere / below / "entry").write_bytes(b"theirs")
    assert CacheFolder(str(home), "kind/deep").read("ab/entry", 100) is None


@root_only
def test_files_of_others_stay(home):
    for name in ("theirs.json", "ours.json"):
        (home / "kind" / name).write_text("")
    os.chown(home / "kind" / "theirs.json", 4242, 4242)
    (home / "kind" / "folder.json").mkdir()
    CacheFolder(str(home), "kind").trim(0, ".json")
    assert {path.name for path in (home / "kind").glob("*.json")} == {"theirs.json", "folder.json"}


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_an_entry_of_another_kind_is_none(home, kind):
    place = home / "kind" / "ab" / "entry"
    place.rename(home / "moved")
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(home / "moved")
    else:
        place.mkdir()
    assert entry(home) is None
