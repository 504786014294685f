"""Headers on disk: found by the sha256 of the file, and never believed when they do not agree with themselves."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import header

from envdoctor.hub.header_cache import HeaderCache
from envdoctor.text import sealed

OID = "sha256:" + "ab" * 32


def in_folder(folder, endpoint: str = "x") -> HeaderCache:
    return HeaderCache({"XDG_CACHE_HOME": str(folder)}, endpoint)


@pytest.fixture
def cache(tmp_path) -> HeaderCache:
    return in_folder(tmp_path, "https://huggingface.co")


def entry(tmp_path):
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    return path


def test_what_was_kept_is_found(cache, tmp_path):
    assert cache.get(OID) is None
    cache.put(OID, header())
    assert cache.get(OID) == header()
    assert entry(tmp_path).stat().st_size < len(header()), "it is compressed"
    assert entry(tmp_path).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("oid", [None, "", "sha1:" + "a" * 40, "sha256:../../x", "sha256:" + "A" * 64, OID + "\n"])
def test_other_oids_are_no_names(cache, tmp_path, oid):
    cache.put(oid, header())
    assert cache.get(oid) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"x", (9).to_bytes(8, "little") + b"{}", b"\xff" * 8])
def test_what_is_no_header_is_not_kept(cache, tmp_path, content):
    cache.put(OID, content)
    assert not list(tmp_path.iterdir())


def test_another_hub_is_believed_for_itself_only(cache, tmp_path):
    cache.put(OID, header())
    assert in_folder(tmp_path, "https://mirror.example").get(OID) is None


@given(noise=st.binary(max_size=200), at=st.integers(0, 400))
def test_changed_entries_are_ignored(tmp_path_factory, noise, at):
    folder = tmp_path_factory.mktemp("cache")
    cache = in_folder(folder)
    cache.put(OID, header())
    path = entry(folder)
    raw = path.read_bytes()
    path.write_bytes(raw[:at] + noise + raw[at + len(noise) :])
    assert cache.get(OID) in (None, header())


def test_an_entry_that_grows_without_end_is_ignored(cache, tmp_path):
    cache.put(OID, header())
    bomb = zlib.compress(bytes(110 << 20), 1)
    entry(tmp_path).write_bytes(sealed(bomb))
    assert cache.get(OID) is None


def test_a_pipe_or_a_link_in_the_place_of_an_entry_holds_nobody_up(cache, tmp_path):
    cache.put(OID, header())
    path = entry(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert cache.get(OID) is None
    path.unlink()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.symlink_to(victim)
    cache.put(OID, header())
    assert victim.read_text() == "mine"
    assert cache.get(OID) == header()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = in_folder(tmp_path / "file")
    cache.put(OID, header())
    assert cache.get(OID) is None
    HeaderCache({}, "x").put(OID, header())


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "{}/c", "HOME": "{}/h"}, "c/envdoctor/headers"),
        ({"HOME": "{}/h"}, "h/.cache/envdoctor/headers"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "{}/h"}, "h/.cache/envdoctor/headers"),
    ],
)
def test_where_the_cache_is(tmp_path, variables, folder):
    HeaderCache({name: value.format(tmp_path) for name, value in variables.items()}, "x").put(OID, header())
    assert (tmp_path / folder) in entry(tmp_path).parents
