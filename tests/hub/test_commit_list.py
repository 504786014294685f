"""The commits to choose from: what each changed, in pages, and what of that is not known."""

import pytest
from cached_models import put
from loopback import text
from small_models import access as way_to
from small_models import why

from envdoctor.revision import SnapshotError, Unread, open_snapshot, steps

REPO = "zai-org/tiny"


def listed(hub, most=20, until=None, **options):
    """The titles with what changed, and where the list goes on."""
    found, following = steps(open_snapshot(REPO, None, way_to(hub, **options)), until, most)
    return {step.commit.title: step.changed for step in found}, following


def test_each_commit_has_the_files_that_it_changed_and_the_first_all_of_them(hub, repo):
    repo.commit({"modeling.py": None, "config.json": "[]"}, title="gone")
    first = ["config.json", "m.safetensors", "modeling.py"]
    gone = ["config.json", "modeling.py"]
    expected = {"gone": gone, "readme": ["README.md"], "code": ["modeling.py"], "first": first}
    assert listed(hub) == (expected, None)
    assert len(hub.log) == 1 + 1 + 3


def test_a_page_says_where_the_next_begins_and_old_ends_the_list(hub, repo):
    ids = [commit.id for commit in repo.commits]
    assert listed(hub, most=2) == ({"readme": ["README.md"], "code": ["modeling.py"]}, ids[2])
    assert listed(hub, until=ids[1]) == ({"readme": ["README.md"]}, None)
    assert listed(hub, most=2, until=ids[2])[1] is None
    assert len(listed(hub, most=3)[0]) == 3 and listed(hub, most=3)[1] is None
    assert listed(hub, until=ids[0]) == ({}, None)


def test_five_thousand_commits_cost_a_page(hub):
    repo = hub.repo(REPO)
    for number in range(5000):
        repo.commit({"a": str(number)}, title=str(number))
    found, following = listed(hub)
    assert (len(found), following) == (20, repo.commits[20].id)
    assert len(hub.log) == 22


def test_a_date_before_what_is_looked_at_is_not_before_the_first_commit(hub, repo, monkeypatch):
    monkeypatch.setattr("envdoctor.revision.hub.opening.MOST_COMMITS", 2)
    with pytest.raises(SnapshotError, match="of its history the last 2 commits were looked at"):
        open_snapshot(REPO, "2020-01-01", way_to(hub))


def test_a_list_that_fails_leaves_its_two_commits_unknown(hub, repo):
    hub.fault("403", match=repo.commits[1].id, times=9)
    found, _ = listed(hub)
    assert "HTTP 403" in why(found["readme"]) and isinstance(found["code"], Unread)
    assert found["first"] == ["config.json", "m.safetensors", "modeling.py"]


def test_a_long_list_among_many_has_its_share_of_bytes(hub, repo, monkeypatch):
    monkeypatch.setattr("envdoctor.revision.hub.online._LISTING_LIMIT", 20_000)
    hub.fault("body", match=repo.commits[2].id, data=b'{"siblings": [' + b" " * 10_000 + b"]}")
    found, _ = listed(hub)
    assert "more than 6,666 bytes" in why(found["first"]) and found["readme"] == ["README.md"]


INDEX = '{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}}'

ODD = ("[]", "{", '{"weight_map": [[]]}', '{"weight_map": {"a": [1]}}', '{"weight_map": {"a": 1}}', "[" * 9**5)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"model.safetensors.index.json": INDEX}, "2 of its weight files are not in the local cache (m-1.safetensors"),
        ({"model.safetensors.index.json": INDEX, "m-1.safetensors": "x"}, "1 of its weight files"),
        ({"config.json": "{}"}, "no weights of it are in the local cache"),
        *(({"model.safetensors.index.json": odd}, "no weights") for odd in ODD),
        ({"model.safetensors.index.json": INDEX, "m-1.safetensors": "x", "m-2.safetensors": "y"}, None),
        ({"model.safetensors": "x"}, None),
    ],
)
def test_weights_that_the_cache_does_not_hold_are_named(access, tmp_path, files, words):
    put(tmp_path / "hub", REPO, "a" * 40, {path: text(content) for path, content in files.items()})
    snapshot = open_snapshot(REPO, None, access(offline=True))
    assert (words is None) == (snapshot.lacking is None) == (not snapshot.refused)
    assert words is None or (words in snapshot.lacking and words in why(snapshot.refused[0]))
