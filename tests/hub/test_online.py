"""Snapshots on the Hub: what they cost, and what is said when something goes wrong."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Hub, Repo, virtual
from small_models import SHARD, access, header, opened, refused, weights, why

from envdoctor.revision import Transport, TransportError, open_hub


@pytest.fixture
def repo(hub: Hub) -> Repo:
    repo = hub.repo("zai-org/tiny")
    shards = {f"model-{i:05d}-of-00007.safetensors": virtual(header(40 + i), SHARD + i) for i in range(7)}
    repo.commit({"config.json": '{"a": 1}', "modeling.py": "a = 1\n", **shards}, title="first")
    repo.commit({"modeling.py": "a = 2\n"}, title="second")
    return repo


def test_two_revisions_are_two_requests_and_a_changed_text_is_one_more_each(hub, repo):
    way = access(hub)
    old, new = open_hub("zai-org/tiny", repo.commits[1].id, way), open_hub("zai-org/tiny", None, way)
    changed = [path for path in new.files if old.files[path].oid != new.files[path].oid]
    assert changed == ["modeling.py"]
    assert (old.read("modeling.py", 100), new.read("modeling.py", 100)) == (b"a = 1\n", b"a = 2\n")
    assert len(hub.log) == way.cost[0] == 4
    assert hub.bytes_of(".safetensors") == 0


def test_a_file_is_read_once(hub, repo):
    snapshot = opened(hub)
    hub.forget()
    assert snapshot.read("config.json", 100) == snapshot.read("config.json", 100) == b'{"a": 1}'
    snapshot.headers(weights(snapshot))
    before = len(hub.log)
    snapshot.headers(weights(snapshot))
    assert len(hub.log) == before


def test_headers_cost_two_requests_a_shard_and_little_more_than_their_bytes(hub, repo):
    way = access(hub)
    snapshot = open_hub("zai-org/tiny", None, way)
    hub.forget()
    headers = snapshot.headers(weights(snapshot))
    assert headers == {f"model-{i:05d}-of-00007.safetensors": header(40 + i) for i in range(7)}
    assert len(hub.log) == 14
    assert hub.bytes_of(".safetensors") <= 3 * 8192 + 4 * (1.01 * len(header(46)) + 256)


def test_a_longer_header_costs_one_more_request_that_needs_no_redirect(hub):
    hub.repo("zai-org/long").commit({"model.safetensors": virtual(header(4000), SHARD)})
    snapshot = opened(hub, repo="zai-org/long")
    hub.forget()
    assert snapshot.headers(["model.safetensors"])["model.safetensors"] == header(4000)
    assert [entry.server for entry in hub.log] == ["hub", "cdn", "cdn"]
    assert hub.bytes_of(".safetensors") == len(header(4000))


def test_what_was_learned_of_one_revision_serves_the_other(hub):
    repo = hub.repo("zai-org/many")
    first = repo.commit({f"m-{i}.safetensors": virtual(header(400), SHARD) for i in range(20)})
    repo.commit({f"m-{i}.safetensors": virtual(header(401), SHARD) for i in range(20)})
    way = access(hub)
    old, new = open_hub("zai-org/many", first, way), open_hub("zai-org/many", None, way)
    old.headers(weights(old))
    hub.forget()
    assert set(new.headers(weights(new)).values()) == {header(401)}
    assert len(hub.log) == 40


def test_connections_are_kept(hub, repo):
    way = access(hub, connections=4)
    snapshot = open_hub("zai-org/tiny", None, way)
    for _ in range(5):
        open_hub("zai-org/tiny", None, way)
    assert len({e.connection for e in hub.log}) == 1
    snapshot.headers(weights(snapshot))
    assert len({(e.server, e.connection) for e in hub.log}) <= 8


def test_a_server_without_oids_in_its_list_is_asked_for_the_tree_page_by_page(hub, repo):
    hub.blobs = False
    hub.page_size = 4
    snapshot = opened(hub)
    assert snapshot.files["modeling.py"].oid == "sha1:" + repo.commits[0].files["modeling.py"].git_oid
    assert snapshot.files["model-00000-of-00007.safetensors"].size == SHARD
    assert snapshot.files["model-00000-of-00007.safetensors"].oid.startswith("sha256:")
    assert (len(snapshot.files), len(hub.log)) == (9, 1 + 3)


def test_a_moved_repository_is_followed_and_both_names_are_known(hub, repo):
    hub.move("THUDM/tiny", "zai-org/tiny")
    way = access(hub)
    snapshot = open_hub("THUDM/tiny", None, way)
    assert (snapshot.asked, snapshot.repo) == ("THUDM/tiny", "zai-org/tiny")
    hub.forget()
    open_hub("THUDM/tiny", repo.commits[1].id, way)
    assert len(hub.log) == 1


@pytest.mark.parametrize("how", ["main", "v1", "refs/pr/1", "prefix"])
def test_a_revision_is_a_branch_a_tag_a_pull_request_or_the_beginning_of_a_commit(hub, repo, how):
    repo.tags["v1"] = repo.commits[1].id
    wanted = {"main": repo.branches["main"], "v1": repo.tags["v1"], "prefix": repo.commits[1].id}
    wanted["refs/pr/1"] = repo.pull_request(1, {"more.txt": "more"})
    asked = wanted["prefix"][:7] if how == "prefix" else how
    snapshot = opened(hub, asked)
    assert snapshot.revision == wanted[how]
    assert snapshot.label == f"zai-org/tiny @ {wanted[how][:7]}"


@pytest.mark.parametrize(
    ("repo", "revision"),
    [
        *((name, None) for name in ("../../etc", "a/b/c", "", "x y", "-x", "a/b\n", "https://evil")),
        *(("zai-org/tiny", revision) for revision in ("a b", "..", "x/../y", "a\nb", "x" * 300, "a?b")),
    ],
)
def test_what_is_no_name_of_a_repository_or_a_revision_is_asked_of_nobody(hub, repo, revision):
    refused(hub, "usage", repo=repo, revision=revision)
    assert not hub.log


def test_what_is_not_there_is_said(hub, repo):
    nothing = "zai-org/nothing"
    refused(hub, "not-found", "zai-org/nothing was not found", "log in", repo=nothing)
    refused(hub, "not-found", "the token's owner cannot see it", repo=nothing, token="hf_secret")
    refused(hub, "revision-not-found", "no revision nothing", revision="nothing")


def test_what_may_not_be_seen_is_said(hub, repo):
    hub.repo("zai-org/secret", private=True, readers={"hf_reader"}).commit({"config.json": "{}"})
    refused(hub, "not-found", repo="zai-org/secret")
    assert opened(hub, repo="zai-org/secret", token="hf_reader").read("config.json", 9) == b"{}"
    hub.repo("zai-org/gone", disabled=True).commit({})
    refused(hub, "disabled", repo="zai-org/gone")
    hub.refused_tokens.add("hf_secret")
    refused(hub, "private", "does not accept the token", token="hf_secret")


@pytest.mark.parametrize(("token", "words"), [(False, "log in"), ("hf_other", "the account of your token")])
def test_a_gated_repository_can_be_listed_and_says_what_to_do_for_its_files(hub, token, words):
    repo = hub.repo("zai-org/gated", gated=True, readers={"hf_reader"})
    repo.commit({"config.json": "{}", "a.py": "", "m.safetensors": virtual(header(), SHARD)})
    snapshot = opened(hub, repo="zai-org/gated", token=token)
    assert len(snapshot.files) == 3
    hub.forget()
    said = why(snapshot.read("config.json", 100))
    assert "is gated" in said and words in said
    assert why(snapshot.headers(["m.safetensors"])["m.safetensors"]) and why(snapshot.read("a.py", 100))
    assert len(hub.log) == 1, "one refusal is enough"
    reader = opened(hub, repo="zai-org/gated", token="hf_reader")
    assert reader.read("config.json", 100) == b"{}"


def test_without_a_network_the_answer_comes_at_once(hub, repo):
    refused(hub, "offline", "local cache", offline=True)
    assert not hub.log
    with Hub() as gone:
        nowhere = gone.endpoint
    refused(hub, "network", "the connection was refused", endpoint=nowhere, pause=30.0)
    in_the_open = hub.endpoint.replace("http:", "https:")
    refused(hub, "network", "no encrypted connection", "(WRONG_VERSION_NUMBER)", endpoint=in_the_open, pause=30.0)
    nameless = {"endpoint": "http://no-such-host.invalid", "pause": 30.0}
    refused(hub, "network", "no-such-host.invalid cannot be reached", **nameless)


@pytest.mark.parametrize("endpoint", ["ftp://x", "http://", "nothing", "http://a:b"])
def test_an_endpoint_that_is_no_web_address_is_a_mistake_of_use(endpoint):
    with pytest.raises(TransportError) as caught:
        Transport(endpoint=endpoint)
    assert caught.value.kind == "usage"


BAD_NAMES = [
    *("../../.ssh/id_rsa", "/etc/passwd", "a/../../b", "C:/x", "a\\b", "", "a//b"),
    *("x\x1b[31m", "a\u202eb", "\ud800", "x" * 5000),
]


def test_hostile_names_are_refused_and_named(hub, repo):
    repo.extra_siblings = [{"rfilename": name, "blobId": "0" * 40, "size": 3} for name in BAD_NAMES]
    snapshot = opened(hub)
    assert (len(snapshot.files), len(snapshot.refused)) == (9, len(BAD_NAMES))
    assert all(unread.path.isprintable() and len(unread.path) <= 400 for unread in snapshot.refused)
    assert why(snapshot.read("../../.ssh/id_rsa", 10))


@pytest.mark.parametrize(
    "entry",
    [
        *(None, 3, [], {}, {"rfilename": 3}, {"rfilename": "x"}, {"rfilename": "x", "lfs": {}}),
        *({"rfilename": "x", "size": size} for size in (-1, True, 1 << 70, "3", None)),
        {"rfilename": "config.json", "size": 3},
    ],
)
def test_a_broken_entry_is_refused_and_the_others_stand(hub, repo, entry):
    repo.extra_siblings = [entry]
    snapshot = opened(hub)
    assert (len(snapshot.files), len(snapshot.refused)) == (9, 1)


def test_an_oid_that_is_none_is_not_believed(hub, repo):
    repo.extra_siblings = [
        {"rfilename": "x", "size": 3, "blobId": "../x"},
        {"rfilename": "y", "lfs": {"sha256": 3, "size": 4}},
    ]
    snapshot = opened(hub)
    assert (snapshot.files["x"].oid, snapshot.files["y"].oid) == (None, None)


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'"x"', b'{"sha": 3}', b'{"siblings": 3, "sha": "x"}', b"\xff", b"{", b"[" * 10**5]
)
def test_an_answer_of_another_shape_is_one_sentence(hub, repo, body):
    hub.fault("body", data=body, times=2)
    refused(hub, "protocol")


def test_a_list_of_more_files_than_are_compared_is_refused(hub, repo, monkeypatch):
    repo.extra_siblings = [{"rfilename": f"f{i}", "blobId": "0" * 40, "size": 1} for i in range(100_000)]
    refused(hub, "protocol", "100,009 files")
    monkeypatch.setattr("envdoctor.revision.hub.online._LISTING_LIMIT", 10_000)
    refused(hub, "protocol", "more than 10,000 bytes")


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False)
NAMES = st.text(alphabet="a./\\:~-\n\x00\u202e中", max_size=12) | st.text(max_size=12)
ITEMS = st.dictionaries(
    st.sampled_from(["rfilename", "size", "blobId", "lfs"]),
    SCALARS | NAMES | st.dictionaries(st.sampled_from(["sha256", "oid", "size"]), SCALARS, max_size=3),
)
NAMED = st.fixed_dictionaries({"rfilename": NAMES, "size": st.just(1)})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SCALARS | ITEMS | NAMED | st.lists(SCALARS, max_size=2), max_size=20))
def test_any_list_is_checked_item_by_item(hub, items):
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}"})
    repo.extra_siblings = items
    snapshot = opened(hub)
    assert len(snapshot.files) + len(snapshot.refused) == len(items) + 1
    for path, entry in snapshot.files.items():
        assert path == entry.path and "\\" not in path and path.isprintable()
        assert os.path.normpath(os.path.join("/root/model", path)).startswith("/root/model/")
        assert isinstance(entry.size, int) and entry.size >= 0
        assert entry.oid is None or entry.oid.startswith(("sha1:", "sha256:"))
    for unread in snapshot.refused:
        assert unread.path.isprintable() and unread.reason
