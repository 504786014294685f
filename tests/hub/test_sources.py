"""From what a user types to two snapshots: folders, the cache, the Hub, and the choice when less than two are named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cached_models import put
from loopback import Hub, Repo, text, virtual
from small_models import SHARD, header, transport

from envdoctor.hub.cache import CachedSnapshot
from envdoctor.hub.folder import FolderSnapshot
from envdoctor.hub.named import Named, parse_name
from envdoctor.hub.online import HubSnapshot
from envdoctor.hub.pair import choose_pair
from envdoctor.hub.reach import Reach, open_snapshot
from envdoctor.hub.snapshot import SnapshotError
from envdoctor.hub.sources import Pair, open_one, open_pair, open_reach

ALIASES = {"THUDM": "zai-org"}


@pytest.fixture
def repo(hub: Hub) -> Repo:
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}", "modeling.py": "a = 1", "m.safetensors": virtual(header(), SHARD)}, title="first")
    repo.commit({"modeling.py": "a = 2"}, title="code")
    repo.commit({"README.md": "2"}, title="readme")
    hub.move("THUDM/tiny", "zai-org/tiny")
    return repo


@pytest.fixture
def reach(hub: Hub, tmp_path: Path) -> Callable[..., Reach]:
    def make(**options: object) -> Reach:
        environ = {"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
        given = {"cwd": str(tmp_path), "environ": environ, "aliases": ALIASES, "transport": lambda: transport(hub)}
        return Reach(**{**given, **options})  # type: ignore[arg-type]

    return make


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("THUDM/tiny", Named(None, "THUDM/tiny", None)),
        ("gpt2", Named(None, "gpt2", None)),
        ("THUDM/tiny@b098244", Named(None, "THUDM/tiny", "b098244")),
        ("THUDM/tiny@refs/pr/3", Named(None, "THUDM/tiny", "refs/pr/3")),
        ("https://huggingface.co/THUDM/tiny", Named(None, "THUDM/tiny", None)),
        ("https://hf-mirror.com/THUDM/tiny/tree/b098244", Named(None, "THUDM/tiny", "b098244")),
        ("https://huggingface.co/THUDM/tiny/commit/b098244/", Named(None, "THUDM/tiny", "b098244")),
    ],
)
def test_names(given, named, tmp_path):
    assert parse_name(given, str(tmp_path), {}) == named


def test_an_existing_folder_wins_over_a_repository(tmp_path):
    (tmp_path / "THUDM" / "tiny").mkdir(parents=True)
    (tmp_path / "THUDM" / "tiny" / "config.json").write_text("{}")
    for given in ("THUDM/tiny", "./THUDM/tiny/", "~/THUDM/tiny", "THUDM/tiny/config.json"):
        assert parse_name(given, str(tmp_path), {"HOME": str(tmp_path)}).folder == str(tmp_path / "THUDM" / "tiny")


@pytest.mark.parametrize("given", ["", " ", "\0", "./nothing", "/nothing", "a/b/c", "x" * 5000, "\x1b[31m", "ms:a/b"])
def test_what_names_nothing_is_a_mistake_of_use(given, tmp_path):
    with pytest.raises(SnapshotError) as caught:
        parse_name(given, str(tmp_path), {})
    assert caught.value.kind == "usage"
    assert str(caught.value).isprintable()


# --- one snapshot ----------------------------------------------------------------------------------------------------


def test_one_snapshot_of_each_source(hub, repo, reach, tmp_path):
    (tmp_path / "model").mkdir()
    put(tmp_path / "hub", "THUDM/tiny", repo.commits[1].id, {"config.json": text("{}")}, refs=("main",))
    assert isinstance(open_snapshot("./model", None, reach()), FolderSnapshot)
    assert isinstance(open_snapshot("THUDM/tiny", "main", reach()), HubSnapshot)
    hub.forget()
    assert isinstance(open_snapshot("THUDM/tiny", None, reach(offline=True)), CachedSnapshot)
    assert isinstance(open_snapshot("zai-org/tiny", repo.commits[1].id[:8], reach(offline=True)), CachedSnapshot)
    inside = tmp_path / "hub" / "models--THUDM--tiny" / "snapshots" / repo.commits[1].id
    cached = open_snapshot(str(inside), None, reach())
    assert isinstance(cached, CachedSnapshot)
    assert cached.files["config.json"].oid == "sha1:" + text("{}").git_oid
    assert not hub.log


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_by_a_variable_asks_nobody(hub, repo, reach, tmp_path, name):
    where = reach(environ={"HF_HUB_CACHE": str(tmp_path / "hub"), name: "1"})
    with pytest.raises(SnapshotError) as caught:
        open_snapshot("THUDM/tiny", None, where)
    assert caught.value.kind == "offline"
    assert "give two folders" in str(caught.value)
    assert where.used_transport is None and not hub.log


def test_offline_an_unknown_revision_says_what_the_cache_holds(repo, reach, tmp_path):
    put(tmp_path / "hub", "THUDM/tiny", "a" * 40, {"config.json": text("{}")}, refs=("main",))
    with pytest.raises(SnapshotError) as caught:
        open_snapshot("THUDM/tiny", "v9", reach(offline=True))
    assert "holds aaaaaaaaaa (main)" in str(caught.value)


@pytest.mark.parametrize(("given", "revision"), [("./model", "main"), ("a/b@x", "y")])
def test_a_revision_where_none_can_be(reach, tmp_path, given, revision):
    (tmp_path / "model").mkdir()
    with pytest.raises(SnapshotError) as caught:
        open_snapshot(given, revision, reach())
    assert caught.value.kind == "usage"


# --- two snapshots ---------------------------------------------------------------------------------------------------


def test_without_a_cache_old_is_the_state_before_the_last_change_that_matters(repo, reach):
    choice = choose_pair("THUDM/tiny", None, None, reach())
    assert (choice.old.revision, choice.new.revision) == (repo.commits[2].id, repo.commits[0].id)
    assert any("THUDM/tiny is now zai-org/tiny" in note for note in choice.notes)
    assert any('before "code"' in note and "1 later commit changed only text" in note for note in choice.notes)


def test_with_a_cache_old_is_its_main_listed_by_the_hub_and_read_here(hub, repo, reach, tmp_path):
    put(tmp_path / "hub", "THUDM/tiny", repo.commits[2].id, {"modeling.py": text("a = 1")}, refs=("main",))
    choice = choose_pair("THUDM/tiny", None, None, reach())
    assert choice.old.revision == repo.commits[2].id
    assert set(choice.old.files) == {"config.json", "modeling.py", "m.safetensors"}
    assert any("main of the local cache" in note for note in choice.notes)
    assert any("under the name THUDM/tiny" in note for note in choice.notes)
    hub.forget()
    assert choice.old.read("modeling.py", 100) == b"a = 1"
    assert not hub.log
    assert choice.old.read("config.json", 100) == b"{}"
    assert len(hub.log) == 1


def test_several_commits_in_the_cache_are_listed(repo, reach, tmp_path):
    for commit in repo.commits[1:]:
        put(tmp_path / "hub", "zai-org/tiny", commit.id, {"modeling.py": text("a = 1")})
    (tmp_path / "hub" / "models--zai-org--tiny" / "refs").mkdir()
    (tmp_path / "hub" / "models--zai-org--tiny" / "refs" / "main").write_text(repo.commits[2].id)
    choice = choose_pair("zai-org/tiny", None, None, reach())
    assert choice.old.revision == repo.commits[2].id
    assert any(f"also holds {repo.commits[1].id[:7]}; name one as OLD" in note for note in choice.notes)


def test_a_cache_that_holds_new_itself_is_said(repo, reach, tmp_path):
    put(tmp_path / "hub", "zai-org/tiny", repo.commits[0].id, {"modeling.py": text("a = 2")}, refs=("main",))
    choice = choose_pair("zai-org/tiny", None, None, reach())
    assert choice.old.revision == choice.new.revision
    assert any("nothing changed since" in note for note in choice.notes)


def test_a_commit_of_the_cache_that_the_hub_no_longer_knows_is_compared_as_it_is(repo, reach, tmp_path):
    files = {"modeling.py": text("a = 0"), "config.json": text("{}"), "gone.py": text("x")}
    put(tmp_path / "hub", "zai-org/tiny", "f" * 40, files, refs=("main",))
    choice = choose_pair("zai-org/tiny", None, None, reach())
    assert isinstance(choice.old, CachedSnapshot)
    assert any("has no revision" in note for note in choice.notes)
    assert set(choice.new.files) == {"modeling.py", "config.json"}
    assert [unread.path for unread in choice.new.refused] == ["m.safetensors"], "the README is not missed"


def test_offline_the_two_commits_of_the_cache_are_compared(hub, reach, tmp_path):
    put(tmp_path / "hub", "zai-org/tiny", "a" * 40, {"config.json": text("{}"), "a.py": text("1")})
    put(tmp_path / "hub", "zai-org/tiny", "b" * 40, {"config.json": text("[]"), "README.md": text("x")}, refs=("main",))
    choice = choose_pair("zai-org/tiny", None, None, reach(offline=True))
    assert (choice.old.revision, choice.new.revision) == ("a" * 40, "b" * 40)
    assert set(choice.old.files) == set(choice.new.files) == {"config.json"}
    assert [unread.path for unread in choice.old.refused] == ["a.py"]
    assert not hub.log


def test_offline_with_one_commit_there_is_nothing_to_compare(reach, tmp_path):
    put(tmp_path / "hub", "zai-org/tiny", "a" * 40, {"config.json": text("{}")}, refs=("main",))
    with pytest.raises(SnapshotError) as caught:
        choose_pair("zai-org/tiny", None, None, reach(offline=True))
    assert caught.value.kind == "offline"
    assert "no second commit" in str(caught.value)


def test_two_folders_and_a_folder_beside_a_repository(hub, repo, reach, tmp_path):
    for name in ("january", "today"):
        (tmp_path / name).mkdir()
    choice = choose_pair("./january", "./today", None, reach())
    assert (choice.old.label, choice.new.label) == ("./january", "./today")
    assert not hub.log
    assert isinstance(choose_pair("./january", "THUDM/tiny@main", None, reach()).new, HubSnapshot)
    assert isinstance(choose_pair("THUDM/tiny", "./january", None, reach()).old, FolderSnapshot)
    for old, new in ((None, None), ("./today", "x")):
        with pytest.raises(SnapshotError):
            choose_pair("./january", old, new, reach())


# --- the seam --------------------------------------------------------------------------------------------------------


def test_the_seam_counts_requests_and_leaves_the_host_process_as_it_is(hub, repo, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    before = dict(os.environ)
    environ = {"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    reach = open_reach(environ=environ, cwd=tmp_path, aliases=ALIASES)
    pair = open_pair("THUDM/tiny", repo.commits[2].id, "main", reach)
    assert isinstance(pair, Pair)
    assert (pair.moved, pair.requests) == ("zai-org/tiny", 3)
    assert pair.received > 0
    pair.new.headers(["m.safetensors"])
    assert pair.requests == 5
    assert dict(os.environ) == before
    assert not [entry for entry in hub.log if "agent-harnesses" in entry.path]
    assert {entry.agent.split("/")[0] for entry in hub.log} == {"envdoctor"}
    assert [path.name for path in tmp_path.iterdir()] == [".cache"], "nothing but our own cache"
    again = open_one("THUDM/tiny", None, open_reach(environ=environ, cwd=tmp_path, cache=False))
    assert again.revision == repo.commits[0].id
