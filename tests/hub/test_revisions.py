"""Naming revisions: dates, beginnings of commits, and the state before the last change that matters."""

from __future__ import annotations

import pytest
from loopback import Hub, Repo
from small_models import access, transport

from envdoctor.hub import SnapshotError, commits_between
from envdoctor.hub.commits import commits
from envdoctor.hub.revisions import open_revision, parent_that_matters


@pytest.fixture
def repo(hub: Hub) -> Repo:
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}", "README.md": "1"}, title="first", date="2023-10-27T03:00:00.000Z")
    repo.commit({"modeling.py": "a = 1"}, title="code", date="2024-01-31T23:30:00.000Z")
    repo.commit({"README.md": "2"}, title="readme", date="2024-02-06T08:00:00.000Z")
    repo.commit({"LICENSE": "x", "assets/wechat.png": b"png"}, title="licence", date="2024-03-01T08:00:00.000Z")
    return repo


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("@2024-01-31", "code"),
        ("@2024-01-30", "first"),
        ("@2024-02-06T07:59", "code"),
        ("@2024-02-06T08:00:00Z", "readme"),
        ("@2024-02-06T16:00:00+08:00", "readme"),
        ("@2030-01-01", "licence"),
        (None, "licence"),
        ("", "licence"),
        ("main", "licence"),
    ],
)
def test_a_date_is_the_last_commit_of_main_at_or_before_it(hub, repo, asked, title):
    snapshot = open_revision("zai-org/tiny", asked, access(hub))
    assert next(c.title for c in repo.commits if c.id == snapshot.revision) == title


def test_a_date_before_the_first_commit_says_when_that_was(hub, repo):
    with pytest.raises(SnapshotError) as caught:
        open_revision("zai-org/tiny", "@2020-01-01", access(hub))
    assert caught.value.kind == "revision-not-found"
    assert "its first is of 2023-10-27" in str(caught.value)


@pytest.mark.parametrize("asked", ["@2024-13-45", "@9999-12-31T99:99", "@x"])
def test_what_looks_like_a_date_and_is_none_is_a_revision_that_is_not_there(hub, repo, asked):
    with pytest.raises(SnapshotError) as caught:
        open_revision("zai-org/tiny", asked, access(hub))
    assert caught.value.kind in ("revision-not-found", "usage")


def test_the_last_day_there_is(hub, repo):
    assert open_revision("zai-org/tiny", "@9999-12-30", access(hub)).revision == repo.commits[0].id


def test_a_short_beginning_of_a_commit_is_looked_for_in_the_history(hub, repo):
    wanted = repo.commits[1].id
    assert open_revision("zai-org/tiny", wanted[:5], access(hub)).revision == wanted


def test_a_beginning_that_two_commits_share_is_said(hub):
    repo = hub.repo("zai-org/tiny")
    repo.commit({"a": "1"}, id="abcde1")
    repo.commit({"a": "2"}, id="abcde2")
    with pytest.raises(SnapshotError, match="2 commits of zai-org/tiny begin with abcde"):
        open_revision("zai-org/tiny", "abcde", access(hub))


def test_the_parent_that_matters_is_the_state_before_code_config_or_weights_changed(hub, repo):
    parent = parent_that_matters(open_revision("zai-org/tiny", None, access(hub)))
    assert parent.snapshot.revision == repo.commits[3].id
    assert parent.changed_by.title == "code"
    assert parent.skipped == 2
    assert len(hub.log) == 1 + 1 + 3


def test_the_parent_of_a_commit_that_changed_code_is_the_one_before_it(hub, repo):
    parent = parent_that_matters(open_revision("zai-org/tiny", "@2024-01-31", access(hub)))
    assert parent.snapshot.revision == repo.commits[3].id
    assert parent.skipped == 0


def test_a_deleted_file_matters(hub, repo):
    repo.commit({"modeling.py": None}, title="no code")
    parent = parent_that_matters(open_revision("zai-org/tiny", None, access(hub)))
    assert parent.changed_by.title == "no code"


def test_without_a_commit_that_matters_an_older_revision_is_asked_for(hub):
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}"})
    first = open_revision("zai-org/tiny", None, access(hub))
    with pytest.raises(SnapshotError, match="first commit"):
        parent_that_matters(first)
    repo.commit({"README.md": "2"})
    with pytest.raises(SnapshotError, match="no more than text about the model"):
        parent_that_matters(open_revision("zai-org/tiny", None, access(hub)))


def test_histories_are_paged(hub):
    repo = hub.repo("zai-org/tiny")
    for number in range(120):
        repo.commit({"a": str(number)}, title=str(number))
    way = transport(hub)
    assert [c.title for c in commits(way, "zai-org/tiny", "main")] == [str(n) for n in range(119, -1, -1)]
    assert len(hub.log) == 3
    hub.forget()
    assert next(commits(way, "zai-org/tiny", "main")).title == "119"
    assert len(hub.log) == 1, "a page is asked for when it is needed"


def test_commits_between_two_revisions_and_whether_one_is_an_ancestor(hub, repo):
    way = transport(hub)
    new, old = repo.commits[0].id, repo.commits[3].id
    found, ancestor = commits_between(way, "zai-org/tiny", old, new)
    assert ([c.title for c in found], ancestor) == (["licence", "readme", "code"], True)
    aside = repo.pull_request(1, {"x": "y"})
    assert commits_between(way, "zai-org/tiny", aside, new)[1] is False


@pytest.mark.parametrize("data", [b"{}", b"[3]", b'[{"id": "x"}]', b'[{"id": 3, "title": 4}]'])
def test_a_history_of_another_shape_is_one_sentence(hub, repo, data):
    hub.fault("body", match="/commits/", data=data, times=9)
    with pytest.raises(SnapshotError) as caught:
        list(commits(transport(hub), "zai-org/tiny", "main"))
    assert caught.value.kind == "protocol"


def test_a_next_page_on_another_server_is_not_asked_for(hub, repo):
    hub.page_size = 1
    with Hub() as other:
        way = transport(hub)
        way.endpoint = hub.endpoint
        hub.endpoint = other.endpoint  # the links are written with it
        with pytest.raises(SnapshotError, match="next page"):
            list(commits(way, "zai-org/tiny", "main"))
        assert not other.log
