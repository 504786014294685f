"""Headers on disk: found by the sha256 of the file, and never believed when they do not agree with themselves."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Blob, Hub, text, virtual
from small_models import SHARD, header, opened

from envdoctor.text.cache import sealed


def fetched(hub: Hub, environ: dict[str, str], content: Blob | None = None) -> tuple[bytes, bool]:
    """The header of a file, and whether it was asked of the Hub; it must be right wherever it comes from."""
    blob = content or virtual(header(), SHARD)
    hub.repo("zai-org/tiny").commit({"m.safetensors": blob})
    hub.forget()
    found = opened(hub, environ=environ).headers(["m.safetensors"])["m.safetensors"]
    assert found == (blob.prefix if len(blob.prefix) > 20 else blob.prefix[:8])
    return found, hub.bytes_of("m.safetensors") > 0


@pytest.fixture
def kept(hub: Hub, tmp_path: Path) -> Path:
    """A cache with one entry; its path."""
    assert fetched(hub, {"XDG_CACHE_HOME": str(tmp_path)}) == (header(), True)
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    return path


def asked(hub: Hub, kept: Path) -> bool:
    """Whether the header is asked for although there is the cache that the entry lies in."""
    return fetched(hub, {"XDG_CACHE_HOME": str(kept.parents[5])})[1]


def test_what_was_kept_is_found(hub, kept):
    assert kept.stat().st_size < len(header()), "it is compressed"
    assert kept.stat().st_mode & 0o077 == 0
    assert not asked(hub, kept)
    with Hub() as other:
        assert asked(other, kept), "another Hub is believed for itself only"


@pytest.mark.parametrize(
    "content",
    [text(header()), *(virtual(content) for content in (b"", b"x", (9).to_bytes(8, "little") + b"{}", b"\xff" * 8))],
    ids=["not by its sha256", *range(4)],
)
def test_what_is_no_header_or_has_no_sha256_is_not_kept(hub, tmp_path, content):
    fetched(hub, {"XDG_CACHE_HOME": str(tmp_path)}, content)
    assert not list(tmp_path.iterdir())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(noise=st.binary(max_size=200), at=st.integers(0, 400))
def test_changed_entries_are_ignored(hub, kept, noise, at):
    raw = kept.read_bytes()
    kept.write_bytes(raw[:at] + noise + raw[at + len(noise) :])
    asked(hub, kept)


def test_an_entry_that_grows_without_end_is_ignored(hub, kept):
    kept.write_bytes(sealed(zlib.compress(bytes(110 << 20), 1)))
    assert asked(hub, kept)


def test_a_pipe_or_a_link_in_the_place_of_an_entry_holds_nobody_up(hub, kept, tmp_path):
    kept.unlink()
    os.mkfifo(kept)
    assert asked(hub, kept)
    kept.unlink()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    kept.symlink_to(victim)
    assert asked(hub, kept)
    assert victim.read_text() == "mine"
    assert not asked(hub, kept), "it was written anew"


def test_a_folder_that_cannot_be_written_is_no_error(hub, tmp_path):
    (tmp_path / "file").write_text("")
    for environ in ({"XDG_CACHE_HOME": str(tmp_path / "file")}, {}):
        assert all(fetched(hub, environ)[1] for _ in range(2))


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "{}/c", "HOME": "{}/h"}, "c/envdoctor/headers"),
        ({"HOME": "{}/h"}, "h/.cache/envdoctor/headers"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "{}/h"}, "h/.cache/envdoctor/headers"),
    ],
)
def test_where_the_cache_is(hub, tmp_path, variables, folder):
    fetched(hub, {name: value.format(tmp_path) for name, value in variables.items()})
    assert [path.is_file() for path in (tmp_path / folder).glob("*/*/*/*")] == [True]
