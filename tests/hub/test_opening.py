"""From a name to a snapshot: a folder, the local cache, or the Hub."""

from __future__ import annotations

import pytest
from cached_models import put
from loopback import text

from envdoctor.revision import HubSnapshot, SnapshotError, open_snapshot


def test_one_snapshot_of_each_source(hub, repo, access, tmp_path):
    (tmp_path / "model").mkdir()
    put(tmp_path / "hub", "THUDM/tiny", repo.commits[1].id, {"config.json": text("{}")}, refs=("main",))
    assert open_snapshot("./model", None, access()).label == "./model"
    assert isinstance(open_snapshot("THUDM/tiny", "main", access()), HubSnapshot)
    hub.forget()
    assert open_snapshot("THUDM/tiny", None, access(offline=True)).label.endswith("(cache)")
    assert open_snapshot("zai-org/tiny", repo.commits[1].id[:8], access(offline=True)).label.endswith("(cache)")
    inside = tmp_path / "hub" / "models--THUDM--tiny" / "snapshots" / repo.commits[1].id
    cached = open_snapshot(str(inside), None, access())
    assert cached.label.endswith("(cache)")
    assert cached.files["config.json"].oid == "sha1:" + text("{}").git_oid
    assert not hub.log


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_by_a_variable_asks_nobody(hub, repo, access, tmp_path, name):
    where = access(environ={"HF_HUB_CACHE": str(tmp_path / "hub"), name: "1"}, transport=None)
    with pytest.raises(SnapshotError, match="give two folders") as caught:
        open_snapshot("THUDM/tiny", None, where)
    assert caught.value.kind == "offline"
    assert where.transport is None and not hub.log


@pytest.mark.parametrize(
    ("given", "revision", "kind", "words"),
    [
        ("./model", "main", "usage", "has no revisions"),
        ("a/b@x", "y", "usage", "names a revision"),
        ("THUDM/tiny", "v9", "revision-not-found", r"holds aaaaaaaaaa \(main\)"),
    ],
)
def test_a_revision_that_cannot_be(access, tmp_path, given, revision, kind, words):
    (tmp_path / "model").mkdir()
    put(tmp_path / "hub", "THUDM/tiny", "a" * 40, {"config.json": text("{}")}, refs=("main",))
    with pytest.raises(SnapshotError, match=words) as caught:
        open_snapshot(given, revision, access(offline=True))
    assert caught.value.kind == kind
