"""Revisions and repositories as people type them: what they get, or which sentence."""

import pytest
from cached_models import put
from loopback import text
from small_models import transport

from envdoctor.revision import HubSnapshot, SnapshotError, open_pair, open_snapshot

REPO = "zai-org/tiny"


@pytest.mark.parametrize(
    ("model", "old", "titles"),
    [
        (REPO, "2024-01-01", ("first", "readme")),
        (REPO, "@2024-01-01", ("first", "readme")),
        (f"{REPO}@2024-01-02", "2024-01-01T13:00", ("first", "code")),
        (f"{REPO}/", "2024-01-01", ("first", "readme")),
        ("hf://zai-org/tiny@{code}", "{first}", ("first", "code")),
        ("https://huggingface.co/zai-org/tiny?library=transformers", "{first}", ("first", "readme")),
        ("https://hf-mirror.com/zai-org/tiny/commit/{code}", "{first}", ("first", "code")),
        ("huggingface.co/zai-org/tiny/blob/{code}/config.json", "{first}", ("first", "code")),
        (REPO, "https://huggingface.co/zai-org/tiny/commit/{first}#d2h-1", ("first", "readme")),
        (REPO, "{first}..{code}", ("first", "code")),
        (REPO, "{first}...", ("first", "readme")),
        ("THUDM/Tiny", "{first}", ("first", "readme")),
        ("Zai-Org/TINY", "{first}", ("first", "readme")),
    ],
)
def test_what_is_typed_names_the_two_commits(repo, access, model, old, titles):
    ids = {commit.title: commit.id for commit in repo.commits}
    pair = open_pair(model.format(**ids), old.format(**ids), None, access())
    assert (pair.old.revision, pair.new.revision) == tuple(ids[title] for title in titles)
    assert pair.new.repo == REPO


def test_the_address_of_a_commit_is_compared_with_what_was_before_it(repo, access, tmp_path):
    put(tmp_path / "hub", REPO, repo.commits[0].id, {"modeling.py": text("a = 2")}, refs=("main",))
    pair = open_pair(f"https://huggingface.co/{REPO}/commit/{repo.commits[1].id}", None, None, access())
    assert (pair.old.revision, pair.new.revision) == (repo.commits[2].id, repo.commits[1].id)


def test_another_case_of_the_name_is_no_move(repo, access):
    assert open_pair("Zai-Org/TINY", repo.commits[2].id, None, access()).moved is None
    assert open_pair("thudm/TINY", repo.commits[2].id, None, access()).moved == REPO


def test_a_branch_or_a_tag_that_is_called_like_a_date_wins(repo, access):
    repo.tags["2024-01-31"] = repo.commits[2].id
    assert open_snapshot(REPO, "2024-01-31", access()).revision == repo.commits[2].id


@pytest.mark.parametrize(
    ("revision", "words"),
    [
        ("2023-12-31", "has no commit on main at or before 2023-12-31; its first is of 2024-01-01"),
        ("31.01.2024", "write 2024-01-31"),
        ("2024/1/31", "write 2024-01-31"),
        ("20240131", "write 2024-01-31"),
        ("01/02/2024", "write 2024-02-01 or 2024-01-02"),
        ("32.01.2024", "no revision 32.01.2024"),
    ],
)
def test_a_date_that_means_no_commit_is_said(repo, access, revision, words):
    with pytest.raises(SnapshotError, match=words):
        open_snapshot(REPO, revision, access())


def test_a_date_in_another_form_is_said_without_a_network_too(hub, access):
    nowhere = transport(hub, endpoint="http://no-such-host.invalid", pause=30.0)
    with pytest.raises(SnapshotError, match="for a date write 2024-01-31") as caught:
        open_pair(REPO, "31.01.2024", None, access(transport=nowhere))
    assert caught.value.usage


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("https://www.modelscope.cn/models/ZhipuAI/chatglm3-6b/summary", "ModelScope is not read"),
        ("modelscope:ZhipuAI/chatglm3-6b", "ModelScope is not read"),
        ("https://github.com/THUDM/ChatGLM3", "GitHub is not read"),
        ("https://huggingface.co/datasets/a/b", "of a dataset or a space"),
        ("hf://spaces/a/b", "of a dataset or a space"),
        ("./january/", "no such folder"),
        ("https://huggingface.co/", "neither a folder nor a repository name"),
    ],
)
def test_an_address_of_something_else_is_said(hub, access, model, words):
    with pytest.raises(SnapshotError, match=words) as caught:
        open_pair(model, "main", None, access())
    assert caught.value.usage and not hub.log


def test_the_cache_is_found_in_any_case_of_the_name(access, tmp_path):
    put(tmp_path / "hub", "thudm/Tiny", "a" * 40, {"config.json": text("{}")}, refs=("main",))
    assert open_snapshot("zai-org/tiny", None, access(offline=True)).repo == "thudm/Tiny"


def test_offline_a_date_cannot_be_looked_up(access, tmp_path):
    put(tmp_path / "hub", REPO, "a" * 40, {"config.json": text("{}")}, refs=("main",))
    with pytest.raises(SnapshotError, match="does not hold the dates of commits: name one of aaaaaaaaaa"):
        open_snapshot(REPO, "2024-01-31", access(offline=True))


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
    with pytest.raises(SnapshotError, match="give local folders") as caught:
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
