"""Naming revisions: dates, beginnings of commits, and the state before the last change that matters."""

import pytest
from loopback import Hub, Repo
from small_models import access, transport

from envdoctor.revision import SnapshotError, commits_between, open_pair, open_snapshot


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
        ("@9999-12-30", "licence"),  # the last day there is
        (None, "licence"),
        ("", "licence"),
        ("main", "licence"),
    ],
)
def test_a_date_is_the_last_commit_of_main_at_or_before_it(hub, repo, asked, title):
    snapshot = open_snapshot("zai-org/tiny", asked, access(hub))
    assert next(c.title for c in repo.commits if c.id == snapshot.revision) == title


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ("@2020-01-01", "revision-not-found", "its first is of 2023-10-27"),
        ("@2024-13-45", "revision-not-found", "2024-13-45"),
        ("@9999-12-31T99:99", "usage", "9999-12-31T99:99"),
        ("@x", "revision-not-found", "x"),
        ("abcde", "revision-not-found", "2 commits of zai-org/tiny begin with abcde"),
    ],
)
def test_what_names_no_commit_is_said(hub, repo, asked, kind, words):
    for number in (1, 2):
        repo.commit({"a": str(number)}, id=f"abcde{number}")
    with pytest.raises(SnapshotError, match=words) as caught:
        open_snapshot("zai-org/tiny", asked, access(hub))
    assert caught.value.kind == kind


def test_a_short_beginning_of_a_commit_is_looked_for_in_the_history(hub, repo):
    wanted = repo.commits[1].id
    assert open_snapshot("zai-org/tiny", wanted[:5], access(hub)).revision == wanted


def test_the_old_one_is_the_state_before_code_config_or_weights_changed(hub, repo):
    pair = open_pair("zai-org/tiny", None, None, access(hub))
    assert pair.old.revision == repo.commits[3].id
    assert 'before "code"' in pair.notes[0] and "2 later commits changed only text" in pair.notes[0]
    assert len(hub.log) == 1 + 1 + 3
    pair = open_pair("zai-org/tiny", None, "@2024-01-31", access(hub))
    assert pair.old.revision == repo.commits[3].id and "later" not in pair.notes[0]
    repo.commit({"modeling.py": None}, title="no code")
    assert 'before "no code"' in open_pair("zai-org/tiny", None, None, access(hub)).notes[0]


def test_without_a_commit_that_matters_an_older_revision_is_asked_for(hub):
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}"})
    with pytest.raises(SnapshotError, match="first commit"):
        open_pair("zai-org/tiny", None, None, access(hub))
    repo.commit({"README.md": "2"})
    with pytest.raises(SnapshotError, match="no more than text about the model"):
        open_pair("zai-org/tiny", None, None, access(hub))


ABOUT = "README.md README_en.md LICENSE MODEL_LICENSE LICENSE.txt .gitattributes NOTICE a/x.PNG"
OF_IT = "config.json merges.txt vocab.txt modeling.py model.safetensors requirements.txt chat.jinja"


@pytest.mark.parametrize(
    ("path", "matters"), [*((path, False) for path in ABOUT.split()), *((path, True) for path in OF_IT.split())]
)
def test_text_about_the_model_does_not_matter(hub, path, matters):
    repo = hub.repo("zai-org/tiny")
    for files, title in (({"a.py": "1"}, "first"), ({"a.py": "2"}, "code"), ({path: "x"}, "last")):
        repo.commit(files, title=title)
    assert f'before "{"last" if matters else "code"}"' in open_pair("zai-org/tiny", None, None, access(hub)).notes[0]


def test_histories_are_paged(hub):
    repo = hub.repo("zai-org/tiny")
    for number in range(120):
        repo.commit({"a": str(number)}, title=str(number))
    way = transport(hub)
    found, _ = commits_between(way, "zai-org/tiny", "nowhere", "main")
    assert [c.title for c in found] == [str(n) for n in range(119, -1, -1)]
    assert len(hub.log) == 3
    hub.forget()
    assert commits_between(way, "zai-org/tiny", repo.commits[1].id, "main")[0][0].title == "119"
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
        commits_between(transport(hub), "zai-org/tiny", "", "main")
    assert caught.value.kind == "protocol"


def test_a_next_page_on_another_server_is_not_asked_for(hub, repo):
    hub.page_size = 1
    with Hub() as other:
        way = transport(hub)
        way.endpoint = hub.endpoint
        hub.endpoint = other.endpoint  # the links are written with it
        with pytest.raises(SnapshotError, match="next page"):
            commits_between(way, "zai-org/tiny", "", "main")
        assert not other.log
