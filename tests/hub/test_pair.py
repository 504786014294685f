"""Which two snapshots are compared when the user names two, one or none, and what that costs."""

import os

import pytest
from cached_models import put
from loopback import text

from envdoctor.revision import Access, HubSnapshot, SnapshotError, open_pair, open_snapshot


def test_with_a_cache_old_is_its_main_listed_by_the_hub_and_read_here(hub, repo, access, tmp_path):
    put(tmp_path / "hub", "THUDM/tiny", repo.commits[2].id, {"modeling.py": text("a = 1")}, refs=("main",))
    pair = open_pair("THUDM/tiny", None, None, access())
    assert pair.old.revision == repo.commits[2].id
    assert set(pair.old.files) == {"config.json", "modeling.py", "m.safetensors"}
    assert any("main of the local cache" in note for note in pair.notes)
    assert any("under the name THUDM/tiny" in note for note in pair.notes)
    hub.forget()
    assert pair.old.read("modeling.py", 100) == b"a = 1"
    assert not hub.log
    assert pair.old.read("config.json", 100) == b"{}"
    assert len(hub.log) == 1


def test_several_commits_in_the_cache_are_listed(repo, access, tmp_path):
    for commit, refs in ((repo.commits[1], ()), (repo.commits[2], ("main",))):
        put(tmp_path / "hub", "zai-org/tiny", commit.id, {"modeling.py": text("a = 1")}, refs=refs)
    pair = open_pair("zai-org/tiny", None, None, access())
    assert pair.old.revision == repo.commits[2].id
    assert any(f"also holds {repo.commits[1].id[:7]}; name one as OLD" in note for note in pair.notes)


def test_a_cache_that_holds_new_itself_is_said(repo, access, tmp_path):
    put(tmp_path / "hub", "zai-org/tiny", repo.commits[0].id, {"modeling.py": text("a = 2")}, refs=("main",))
    pair = open_pair("zai-org/tiny", None, None, access())
    assert pair.old.revision == pair.new.revision
    assert any("nothing changed since" in note for note in pair.notes)


def test_a_commit_of_the_cache_that_the_hub_no_longer_knows_is_compared_as_it_is(repo, access, tmp_path):
    files = {"modeling.py": text("a = 0"), "config.json": text("{}"), "gone.py": text("x")}
    put(tmp_path / "hub", "zai-org/tiny", "f" * 40, files, refs=("main",))
    pair = open_pair("zai-org/tiny", None, None, access())
    assert pair.old.label == f"zai-org/tiny @ {'f' * 7} (cache)"
    assert any("has no revision" in note for note in pair.notes)
    assert set(pair.new.files) == {"modeling.py", "config.json"}
    assert [unread.path for unread in pair.new.refused] == ["m.safetensors"], "the README is not missed"


def test_offline_the_two_commits_of_the_cache_are_compared(hub, access, tmp_path):
    put(tmp_path / "hub", "zai-org/tiny", "a" * 40, {"config.json": text("{}"), "a.py": text("1")})
    put(tmp_path / "hub", "zai-org/tiny", "b" * 40, {"config.json": text("[]"), "README.md": text("x")}, refs=("main",))
    pair = open_pair("zai-org/tiny", None, None, access(offline=True))
    assert (pair.old.revision, pair.new.revision) == ("a" * 40, "b" * 40)
    assert set(pair.old.files) == set(pair.new.files) == {"config.json"}
    assert [unread.path for unread in pair.old.refused] == ["weights", "a.py"]
    assert not hub.log


def test_offline_it_is_said_which_commit_is_new_and_that_it_may_be_the_older_one(access, tmp_path):
    place = put(tmp_path / "hub", "zai-org/tiny", "a" * 40, {"config.json": text("{}")}, refs=("main",))
    put(tmp_path / "hub", "zai-org/tiny", "b" * 40, {"config.json": text("[]")})
    os.utime(place / "snapshots" / ("a" * 40), (1, 1))
    pair = open_pair("zai-org/tiny", None, None, access(offline=True))
    assert (pair.old.revision, pair.new.revision) == ("b" * 40, "a" * 40)
    assert any("NEW is aaaaaaa" in note and "downloaded after NEW" in note for note in pair.notes)
    os.utime(place / "snapshots" / ("b" * 40), (0, 0))
    notes = open_pair("zai-org/tiny", None, None, access(offline=True)).notes
    assert any("NEW is aaaaaaa" in note and "downloaded after" not in note for note in notes)


def test_offline_with_one_commit_there_is_nothing_to_compare(access, tmp_path):
    put(tmp_path / "hub", "zai-org/tiny", "a" * 40, {"config.json": text("{}")}, refs=("main",))
    with pytest.raises(SnapshotError, match="no second commit") as caught:
        open_pair("zai-org/tiny", None, None, access(offline=True))
    assert caught.value.kind == "offline"


def test_two_folders_and_a_folder_beside_a_repository(hub, repo, access, tmp_path):
    for name in ("january", "today"):
        (tmp_path / name).mkdir()
    pair = open_pair("./january", "./today", None, access())
    assert (pair.old.label, pair.new.label) == ("./january", "./today")
    assert not hub.log
    assert isinstance(open_pair("./january", "THUDM/tiny@main", None, access()).new, HubSnapshot)
    assert open_pair("THUDM/tiny", "./january", None, access()).old.label == "./january"
    for old, new in ((None, None), ("./today", "x")):
        with pytest.raises(SnapshotError):
            open_pair("./january", old, new, access())


def test_access_counts_requests_and_leaves_the_host_process_as_it_is(hub, repo, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    before = dict(os.environ)
    environ = {"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    asked = Access(str(tmp_path), environ, {"THUDM": "zai-org"})
    pair = open_pair("THUDM/tiny", repo.commits[2].id, "main", asked)
    assert (pair.moved, asked.cost[0]) == ("zai-org/tiny", 3)
    assert asked.cost[1] > 0
    pair.new.headers(["m.safetensors"])
    assert asked.cost[0] == 5
    assert dict(os.environ) == before
    assert not [entry for entry in hub.log if "agent-harnesses" in entry.path]
    assert {entry.agent.split("/")[0] for entry in hub.log} == {"envdoctor"}
    assert not list(tmp_path.iterdir()), "nothing is written"
    again = open_snapshot("THUDM/tiny", None, Access(str(tmp_path), environ))
    assert again.revision == repo.commits[0].id
