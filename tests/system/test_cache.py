"""Envdoctor's cache: only its owner's entries count, and only its owner's files are removed."""

import os
from pathlib import Path

import pytest

from envdoctor.system import CacheFolder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="owners and links are those of POSIX")
root_only = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


def kept(home: Path | str | None, most: int = 2) -> CacheFolder:
    return CacheFolder(home and str(home), "kind", most)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache with one entry."""
    kept(tmp_path / "envdoctor").write("entry", b"data")
    return tmp_path / "envdoctor"


def test_an_entry_comes_back_and_is_nobody_elses_business(home):
    assert kept(home).read("entry", 100) == b"data"
    assert {place.stat().st_mode & 0o777 for place in (home, home / "kind")} == {0o700}
    assert (home / "kind" / "entry").stat().st_mode & 0o777 == 0o600
    assert kept(home).read("entry", 3) is None
    assert kept(None).read("entry", 3) is None


def test_an_entry_that_others_could_have_written_is_none(home):
    (home / "kind" / "entry").chmod(0o602)
    assert kept(home).read("entry", 100) is None


@root_only
@pytest.mark.parametrize("place", ["", "kind", "kind/entry"])
def test_what_belongs_to_another_user_is_not_believed(home, place):
    os.chown(home / place, 4242, 4242)
    assert kept(home).read("entry", 100) is None


@pytest.mark.parametrize("place", ["", "kind"])
def test_a_folder_that_is_a_link_is_neither_read_nor_written_nor_cleared(home, tmp_path, place):
    elsewhere = (home / place).rename(tmp_path / "elsewhere")
    (home / place).symlink_to(elsewhere)
    assert kept(home).read("entry", 100) is None
    before = sorted(tmp_path.rglob("*"))
    kept(home, 0).write("new", b"data")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_newest_entries_stay_and_all_else_goes(home):
    old = ("entry", "of-an-older-envdoctor.jsonl", "1-2.new")
    for at, name in enumerate(old):
        (home / "kind" / name).write_text("")
        os.utime(home / "kind" / name, (at, at))
    for name in ("first", "second"):
        kept(home).write(name, b"data")
    assert {path.name for path in (home / "kind").iterdir()} == {"first", "second"}


@root_only
def test_files_of_others_stay(home):
    (home / "kind" / "theirs").write_text("")
    os.chown(home / "kind" / "theirs", 4242, 4242)
    (home / "kind" / "folder").mkdir()
    kept(home, 0).write("new", b"data")
    assert {path.name for path in (home / "kind").iterdir()} == {"theirs", "folder"}


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_an_entry_of_another_kind_is_none(home, kind):
    place = home / "kind" / "entry"
    place.rename(home / "moved")
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(home / "moved")
    else:
        place.mkdir()
    assert kept(home).read("entry", 100) is None
