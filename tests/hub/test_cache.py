"""The local cache of huggingface_hub as snapshots."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cached_models import put
from loopback import Hub, text, virtual
from small_models import SHARD, header

from envdoctor.hub import Access, Unread
from envdoctor.hub.cache import open_cached
from envdoctor.models import CachedCommit

OLD, NEW = "a" * 40, "b" * 40
ALIASES = {"THUDM": "zai-org"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def environ(root: Path) -> dict[str, str]:
    return {"HF_HUB_CACHE": str(root)}


def cached_snapshots(repo: str, environ: dict[str, str], aliases: dict[str, str], **more: str) -> list[CachedCommit]:
    return Access("", environ, aliases).cached(repo, **more)


def test_the_oid_is_the_name_of_the_blob(root, environ):
    weights = virtual(header() + bytes(10))
    files = {"config.json": text("{}"), "sub/m.safetensors": weights}
    put(root, "zai-org/tiny", OLD, files, refs=("main", "refs/pr/1"))
    (cached,) = cached_snapshots("zai-org/tiny", environ, {})
    assert (cached.repo, cached.commit, cached.refs) == ("zai-org/tiny", OLD, ("main", "refs/pr/1"))
    snapshot = open_cached(cached)
    assert snapshot.files["config.json"].oid == "sha1:" + text("{}").git_oid
    assert snapshot.files["sub/m.safetensors"].oid == "sha256:" + weights.sha256
    assert snapshot.read("config.json", 10) == b"{}"
    assert snapshot.headers(["sub/m.safetensors"])["sub/m.safetensors"] == header()
    assert snapshot.label == f"zai-org/tiny @ {OLD[:7]} (cache)"
    assert not snapshot.complete


def test_blobs_in_the_store_of_all_repositories_are_read_and_not_taken_for_the_oid(root, environ):
    place = put(root, "zai-org/tiny", OLD, {"m.safetensors": virtual(header())})
    blob = place / "blobs" / virtual(header()).sha256
    shared = root / "blobs" / "ff" / ("f" * 64)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    snapshot = open_cached(cached_snapshots("zai-org/tiny", environ, {})[0])
    assert snapshot.files["m.safetensors"].oid == "sha256:" + virtual(header()).sha256
    assert snapshot.headers(["m.safetensors"])["m.safetensors"] == header()


def test_copies_in_the_place_of_links_are_hashed(root, environ):
    put(root, "zai-org/tiny", OLD, {"config.json": text("{}"), "m.safetensors": virtual(b"12345678")}, copies=True)
    snapshot = open_cached(cached_snapshots("zai-org/tiny", environ, {})[0])
    assert snapshot.files["config.json"].oid == "sha1:" + text("{}").git_oid
    assert snapshot.files["m.safetensors"].oid == "sha256:" + hashlib.sha256(b"12345678").hexdigest()


def test_the_list_that_the_client_keeps_names_files_that_were_never_downloaded(root, environ):
    place = put(root, "zai-org/tiny", OLD, {"config.json": text("{}")})
    (place / "trees").mkdir()
    files = {
        "config.json": {"size": 2, "blob_id": text("{}").git_oid},
        "m.safetensors": {"size": SHARD, "blob_id": "c" * 40, "lfs_sha256": "d" * 64, "lfs_size": SHARD},
    }
    (place / "trees" / f"{OLD}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    snapshot = open_cached(cached_snapshots("zai-org/tiny", environ, {})[0])
    assert snapshot.complete
    assert snapshot.files["m.safetensors"] == ("m.safetensors", SHARD, "sha256:" + "d" * 64)
    unread = snapshot.headers(["m.safetensors"])["m.safetensors"]
    assert isinstance(unread, Unread) and "never downloaded" in unread.reason
    assert snapshot.read("config.json", 10) == b"{}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 10**5,
        b'{"format_version": 2, "files": {}}',
        b'{"format_version": 1, "files": []}',
        b'{"format_version": 1, "files": {"../x": {"size": 1, "blob_id": "' + b"a" * 40 + b'"}}}',
        b'{"format_version": 1, "files": {"x": {"size": -1, "blob_id": "' + b"a" * 40 + b'"}}}',
        b'{"format_version": 1, "files": {"x": {"size": 1, "blob_id": "/etc"}}}',
        b'{"format_version": 1, "files": {"x": {"size": 1, "blob_id": 3}}}',
        b'{"format_version": 1, "files": {"x": 3}}',
    ],
)
def test_a_list_that_is_broken_or_of_another_format_is_ignored(root, environ, content):
    place = put(root, "zai-org/tiny", OLD, {"config.json": text("{}")})
    (place / "trees").mkdir()
    (place / "trees" / f"{OLD}.json").write_bytes(content)
    snapshot = open_cached(cached_snapshots("zai-org/tiny", environ, {})[0])
    assert not snapshot.complete
    assert list(snapshot.files) == ["config.json"]


def test_both_names_of_a_moved_repository_are_looked_up_and_main_comes_first(root, environ):
    put(root, "THUDM/tiny", OLD, {"config.json": text("{}")}, refs=("v1",))
    put(root, "zai-org/tiny", NEW, {"config.json": text("{}")}, refs=("main",))
    for name in ("THUDM/tiny", "zai-org/tiny"):
        found = cached_snapshots(name, environ, ALIASES)
        assert [(item.repo, item.commit, item.refs) for item in found] == [
            ("zai-org/tiny", NEW, ("main",)),
            ("THUDM/tiny", OLD, ("v1",)),
        ]
    assert len(cached_snapshots("old/tiny", environ, {}, moved="zai-org/tiny")) == 1
    assert cached_snapshots("nobody/tiny", environ, ALIASES) == []


def test_links_out_of_the_cache_and_lost_blobs_are_refused(root, environ, tmp_path):
    (tmp_path / "secret").write_text("secret")
    place = put(root, "zai-org/tiny", OLD, {"config.json": text("{}"), "lost.json": text("[]")})
    (place / "blobs" / text("[]").git_oid).unlink()
    (place / "snapshots" / OLD / "out.json").symlink_to(tmp_path / "secret")
    snapshot = open_cached(cached_snapshots("zai-org/tiny", environ, {})[0])
    assert list(snapshot.files) == ["config.json"]
    assert sorted(unread.path for unread in snapshot.refused) == ["lost.json", "out.json"]


def test_notes_of_missing_files_and_strange_folders_are_no_snapshots(root, environ):
    place = put(root, "zai-org/tiny", OLD, {"config.json": text("{}")})
    (place / ".no_exist" / OLD).mkdir(parents=True)
    (place / ".no_exist" / OLD / "generation_config.json").touch()
    (place / "snapshots" / "main").mkdir()
    (place / "refs").mkdir()
    (place / "refs" / "main").write_bytes(b"\xff\xfe")
    (cached,) = cached_snapshots("zai-org/tiny", environ, {})
    assert list(open_cached(cached).files) == ["config.json"]
    assert cached.refs == ()


OTHER_CLIENTS = [pytest.param(version, marks=pytest.mark.slow) for version in ("0.23.5", "0.36.2", "1.33.0")]


@pytest.mark.parametrize("version", [None, *OTHER_CLIENTS])
def test_what_the_real_client_wrote_is_read(hub: Hub, tmp_path, packages_of, version):
    repo = hub.repo("zai-org/tiny")
    weights = virtual(header() + bytes(10))
    commit = repo.commit({"config.json": "{}", "sub/m.safetensors": weights, "README.md": "x"})
    variables = {key: value for key, value in os.environ.items() if not key.startswith("HF_")} | hub.environ(tmp_path)
    if version:
        variables["PYTHONPATH"] = str(packages_of(version))
    code = (
        "import huggingface_hub as h; h.snapshot_download('zai-org/tiny', allow_patterns=['*.json', 'sub/*'])"
        if version is None
        else "import huggingface_hub as h; h.hf_hub_download('zai-org/tiny', 'config.json');"
        " h.hf_hub_download('zai-org/tiny', 'sub/m.safetensors')"
    )
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=60, capture_output=True)
    (cached,) = cached_snapshots("zai-org/tiny", {"HF_HOME": variables["HF_HOME"]}, {})
    assert (cached.commit, cached.refs) == (commit, ("main",))
    snapshot = open_cached(cached)
    assert snapshot.files["config.json"].oid == "sha1:" + text("{}").git_oid
    assert snapshot.files["sub/m.safetensors"].oid == "sha256:" + weights.sha256
    assert snapshot.headers(["sub/m.safetensors"])["sub/m.safetensors"] == header()
    if version is None:
        assert snapshot.complete, "recent clients keep the list of all files"
        assert snapshot.files["README.md"].oid == "sha1:" + text("x").git_oid
