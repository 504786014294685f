"""The local cache of huggingface_hub as snapshots."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cached_models import put
from loopback import text, virtual
from small_models import SHARD, header, why

from envdoctor.revision import Access, open_snapshot

OLD, NEW = "a" * 40, "b" * 40
ALIASES = {"THUDM": "zai-org"}
CONFIG = {"config.json": text("{}")}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "hub"


@pytest.fixture
def place(root):
    """The folder of a repository in the cache, with one commit that has one file."""
    return put(root, "zai-org/tiny", OLD, CONFIG)


def opened(root):
    """The only commit of the repository in the cache."""
    return open_snapshot("zai-org/tiny", None, Access("", {"HF_HUB_CACHE": str(root)}, offline=True))


def cached(root, repo="zai-org/tiny", aliases=None, **more):
    """The commits of a repository in the cache: its name there, the commit, what refers to it."""
    found = Access("", {"HF_HUB_CACHE": str(root)}, aliases or {}).cached(repo, **more)
    return [(item.repo, item.commit, item.refs) for item in found]


def oid(blob):
    return "sha256:" + blob.sha256 if blob.lfs else "sha1:" + blob.git_oid


def test_the_oid_is_the_name_of_the_blob(root):
    weights = virtual(header() + bytes(10))
    files = {**CONFIG, "sub/m.safetensors": weights}
    put(root, "zai-org/tiny", OLD, files, refs=("main", "refs/pr/1"))
    assert cached(root) == [("zai-org/tiny", OLD, ("main", "refs/pr/1"))]
    snapshot = opened(root)
    assert {path: entry.oid for path, entry in snapshot.files.items()} == {path: oid(files[path]) for path in files}
    assert snapshot.read("config.json", 10) == b"{}"
    assert snapshot.headers(["sub/m.safetensors"])["sub/m.safetensors"] == header()
    assert snapshot.label == f"zai-org/tiny @ {OLD[:7]} (cache)"
    assert not snapshot.complete


def test_blobs_in_the_store_of_all_repositories_are_read_and_not_taken_for_the_oid(root):
    place = put(root, "zai-org/tiny", OLD, {"m.safetensors": virtual(header())})
    blob = place / "blobs" / virtual(header()).sha256
    shared = root / "blobs" / "ff" / ("f" * 64)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    snapshot = opened(root)
    assert snapshot.files["m.safetensors"].oid == oid(virtual(header()))
    assert snapshot.headers(["m.safetensors"])["m.safetensors"] == header()


def test_copies_in_the_place_of_links_are_hashed(root):
    put(root, "zai-org/tiny", OLD, {**CONFIG, "m.safetensors": virtual(b"12345678")}, copies=True)
    snapshot = opened(root)
    assert snapshot.files["config.json"].oid == oid(CONFIG["config.json"])
    assert snapshot.files["m.safetensors"].oid == "sha256:" + hashlib.sha256(b"12345678").hexdigest()


def test_the_list_that_the_client_keeps_names_files_that_were_never_downloaded(root, place):
    (place / "trees").mkdir()
    files = {
        "config.json": {"size": 2, "blob_id": text("{}").git_oid},
        "m.safetensors": {"size": SHARD, "blob_id": "c" * 40, "lfs_sha256": "d" * 64, "lfs_size": SHARD},
    }
    (place / "trees" / f"{OLD}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    snapshot = opened(root)
    assert snapshot.complete
    assert snapshot.files["m.safetensors"] == ("m.safetensors", SHARD, "sha256:" + "d" * 64)
    assert "never downloaded" in why(snapshot.headers(["m.safetensors"])["m.safetensors"])
    assert snapshot.read("config.json", 10) == b"{}"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"[]", b"\xff", b"[" * 10**5),
        b'{"format_version": 2, "files": {}}',
        b'{"format_version": 1, "files": []}',
        b'{"format_version": 1, "files": {"../x": {"size": 1, "blob_id": "' + b"a" * 40 + b'"}}}',
        b'{"format_version": 1, "files": {"x": {"size": -1, "blob_id": "' + b"a" * 40 + b'"}}}',
        *(b'{"format_version": 1, "files": {"x": {"size": 1, "blob_id": %s}}}' % odd for odd in (b'"/etc"', b"3")),
        b'{"format_version": 1, "files": {"x": 3}}',
    ],
)
def test_a_list_that_is_broken_or_of_another_format_is_ignored(root, place, content):
    (place / "trees").mkdir()
    (place / "trees" / f"{OLD}.json").write_bytes(content)
    snapshot = opened(root)
    assert not snapshot.complete
    assert list(snapshot.files) == ["config.json"]


def test_both_names_of_a_moved_repository_are_looked_up_and_main_comes_first(root):
    put(root, "THUDM/tiny", OLD, CONFIG, refs=("v1",))
    put(root, "zai-org/tiny", NEW, CONFIG, refs=("main",))
    both = [("zai-org/tiny", NEW, ("main",)), ("THUDM/tiny", OLD, ("v1",))]
    assert cached(root, "THUDM/tiny", ALIASES) == cached(root, "zai-org/tiny", ALIASES) == both
    assert len(cached(root, "old/tiny", moved="zai-org/tiny")) == 1
    assert cached(root, "nobody/tiny", ALIASES) == []


def test_links_out_of_the_cache_and_lost_blobs_are_refused(root, tmp_path):
    (tmp_path / "secret").write_text("secret")
    place = put(root, "zai-org/tiny", OLD, {**CONFIG, "lost.json": text("[]")})
    (place / "blobs" / text("[]").git_oid).unlink()
    (place / "snapshots" / OLD / "out.json").symlink_to(tmp_path / "secret")
    snapshot = opened(root)
    assert list(snapshot.files) == ["config.json"]
    assert sorted(unread.path for unread in snapshot.refused) == ["lost.json", "out.json", "weights"]


def test_notes_of_missing_files_and_strange_folders_are_no_snapshots(root, place):
    (place / ".no_exist" / OLD).mkdir(parents=True)
    (place / ".no_exist" / OLD / "generation_config.json").touch()
    (place / "snapshots" / "main").mkdir()
    (place / "refs").mkdir()
    (place / "refs" / "main").write_bytes(b"\xff\xfe")
    assert list(opened(root).files) == ["config.json"]
    assert cached(root) == [("zai-org/tiny", OLD, ())]


OTHER_CLIENTS = [pytest.param(version, marks=pytest.mark.slow) for version in ("0.23.5", "0.36.2", "1.33.0")]


@pytest.mark.parametrize("version", [None, *OTHER_CLIENTS])
def test_what_the_real_client_wrote_is_read(hub, tmp_path, packages_of, version):
    repo = hub.repo("zai-org/tiny")
    weights = virtual(header() + bytes(10))
    commit = repo.commit({"config.json": "{}", "sub/m.safetensors": weights, "README.md": "x"})
    variables = {key: value for key, value in os.environ.items() if not key.startswith("HF_")} | hub.environ(tmp_path)
    if version:
        variables["PYTHONPATH"] = str(packages_of(version))
    names = ("config.json", "sub/m.safetensors")
    calls = [f"hf_hub_download('zai-org/tiny', '{name}')" for name in names]
    if version is None:
        calls = ["snapshot_download('zai-org/tiny', allow_patterns=['*.json', 'sub/*'])"]
    code = "import huggingface_hub as h; " + "; ".join(f"h.{call}" for call in calls)
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=60, capture_output=True)
    root = Path(variables["HF_HOME"]) / "hub"
    assert cached(root) == [("zai-org/tiny", commit, ("main",))]
    snapshot = opened(root)
    assert [snapshot.files[name].oid for name in names] == [oid(text("{}")), oid(weights)]
    assert snapshot.headers(["sub/m.safetensors"])["sub/m.safetensors"] == header()
    if version is None:
        assert snapshot.complete, "recent clients keep the list of all files"
        assert snapshot.files["README.md"].oid == oid(text("x"))
