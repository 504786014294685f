"""Every fault of a server ends in success after another try, or in a sentence; in time, and never in wrong bytes."""

from __future__ import annotations

import email.utils

import pytest
from loopback import Hub, virtual
from small_models import SHARD, access, error_of, header, weights

from envdoctor.hub import HubSnapshot, Unread, open_hub


@pytest.fixture
def repo(hub: Hub):
    repo = hub.repo("zai-org/tiny")
    shards = {f"m-{i}.safetensors": virtual(header(400), SHARD) for i in range(5)}
    repo.commit({"config.json": '{"a": 1}', "notes.txt": "n" * 5000, **shards})
    return repo


def opened(hub: Hub, **options: object) -> HubSnapshot:
    return open_hub("zai-org/tiny", None, access(hub, **options))


PASSING = [
    ("429", {"headers": {"Retry-After": "0"}}),
    ("429", {"headers": {"RateLimit": '"api";r=0;t=0'}}),
    ("429", {"headers": {"Retry-After": email.utils.formatdate(0)}}),
    ("429", {"headers": {"Retry-After": "soon"}}),
    *((status, {}) for status in ("500", "502", "503", "504", "408")),
    ("drop", {}),
    ("cut", {"after": 3}),
    ("bad_length", {"by": 10}),
]


@pytest.mark.parametrize(("kind", "options"), PASSING)
def test_a_passing_fault_of_the_list_is_tried_again(hub, repo, kind, options):
    hub.fault(kind, match="/api/models", **options)
    assert opened(hub).files["config.json"].size == 8
    assert len(hub.log) == 2


@pytest.mark.parametrize(
    ("server", "kind", "options"),
    [
        *(("cdn", *fault) for fault in PASSING),
        # the Hub answers with a redirect, which has no body to be cut
        *(("hub", *fault) for fault in PASSING if fault[0] not in ("cut", "bad_length")),
    ],
)
def test_a_passing_fault_of_a_header_is_tried_again(hub, repo, kind, options, server):
    snapshot = opened(hub)
    hub.fault(kind, match=r"m-3.*bytes", server=server, **options)
    assert set(snapshot.headers(weights(snapshot)).values()) == {header(400)}
    assert [entry.fault for entry in hub.log if entry.fault] == [kind]


@pytest.mark.parametrize("kind", ["short_range", "shift_range", "wrong_content_range"])
def test_a_range_that_is_not_the_one_asked_for_is_asked_for_again(hub, repo, kind):
    snapshot = opened(hub)
    hub.fault(kind, match=r"m-3", server="cdn", by=5)
    assert set(snapshot.headers(weights(snapshot)).values()) == {header(400)}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("short_range", "where 0-"),
        ("shift_range", "where 0-"),
        ("wrong_content_range", "where 0-"),
        ("cut", "broke off"),
        ("drop", "broke off"),
        ("503", "HTTP 503"),
        ("429", "HTTP 429"),
        ("404", "HTTP 404"),
        ("403", "HTTP 403"),
        ("418", "HTTP 418"),
        ("html200", "web page"),
    ],
)
def test_a_lasting_fault_leaves_one_header_unread_with_its_reason(hub, repo, kind, words):
    snapshot = opened(hub)
    hub.fault(kind, match=r"m-3", server="cdn", times=99, by=5, after=9)
    headers = snapshot.headers(weights(snapshot))
    unread = headers.pop("m-3.safetensors")
    assert isinstance(unread, Unread)
    assert words in unread.reason
    assert set(headers.values()) == {header(400)}


@pytest.mark.parametrize(("kind", "words"), [("html200", "web page"), ("cut", "broke off"), ("500", "HTTP 500")])
def test_a_lasting_fault_leaves_a_text_unread_with_its_reason(hub, repo, kind, words):
    snapshot = opened(hub)
    hub.fault(kind, match="config.json", times=99, after=3)
    unread = snapshot.read("config.json", 100)
    assert isinstance(unread, Unread)
    assert words in unread.reason
    assert snapshot.read("notes.txt", 10_000) == b"n" * 5000


def test_a_text_that_is_not_the_one_of_the_list_is_unread(hub, repo):
    snapshot = opened(hub)
    hub.fault("body", match="config.json", times=99, data=b'{"a": 2}')
    unread = snapshot.read("config.json", 100)
    assert isinstance(unread, Unread)
    assert "other bytes" in unread.reason


def test_a_body_without_a_length_that_was_cut_is_noticed_by_its_digest(hub, repo):
    snapshot = opened(hub)
    hub.fault("chunked", match="notes.txt", times=1)
    assert snapshot.read("notes.txt", 10_000) == b"n" * 5000


def test_a_login_page_in_the_place_of_the_list_is_said(hub, repo):
    hub.fault("html200", times=99)
    error = error_of(hub)
    assert error.kind == "protocol"
    assert "web page" in str(error) and "login page of this network" in str(error)


def test_the_wait_that_a_busy_server_asks_for_is_told_when_it_is_too_long(hub, repo):
    hub.fault("429", times=99, headers={"RateLimit": '"api";r=0;t=120'})
    error = error_of(hub)
    assert error.kind == "network"
    assert "limits requests" in str(error) and "120 s" in str(error)
    assert len(hub.log) == 1


def test_a_lasting_trouble_of_the_list_is_four_requests(hub, repo):
    hub.fault("503", times=99)
    error = error_of(hub)
    assert "HTTP 503" in str(error) and "4 attempts" in str(error)
    assert len(hub.log) == 4


# --- servers that ignore ranges --------------------------------------------------------------------------------------


def test_a_server_that_ignores_ranges_costs_at_most_a_megabyte_a_shard(hub, repo):
    snapshot = opened(hub)
    hub.fault("ignore_range", times=999)
    headers = snapshot.headers(weights(snapshot))
    assert set(headers.values()) == {header(400)}
    for path in headers:
        assert hub.bytes_of(path) <= 1_000_000


def test_a_long_header_is_not_read_from_a_server_that_ignores_ranges(hub):
    hub.repo("zai-org/tiny").commit({"m.safetensors": virtual(header(40_000), SHARD)})
    snapshot = opened(hub)
    hub.fault("ignore_range", times=999)
    unread = snapshot.headers(["m.safetensors"])["m.safetensors"]
    assert isinstance(unread, Unread)
    assert "ignores ranges" in unread.reason
    assert hub.bytes_of("m.safetensors") <= 1_000_000


def test_the_end_of_a_large_file_is_not_read_from_a_server_that_ignores_ranges(hub, repo):
    snapshot = opened(hub)
    hub.fault("ignore_range", times=999)
    assert isinstance(snapshot.read_ranges("m-0.safetensors", [(-100, 100)]), Unread)
    assert hub.bytes_of("m-0") <= 1_000_000


# --- odd files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length", [8_184, 8_185, 32_760, 32_761, 99_991, 99_992, 99_993, 99_994, 99_999, 100_000, 100_001]
)
def test_a_header_of_any_length_is_whole(hub, length):
    content = length.to_bytes(8, "little") + b"{" + b" " * (length - 2) + b"}"
    hub.repo("zai-org/tiny").commit({"m.safetensors": virtual(content, SHARD)})
    assert opened(hub).headers(["m.safetensors"])["m.safetensors"] == content


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"1234567", b"\xff" * 8, (1 << 63).to_bytes(8, "little") + b"{}", b"\0" * 8]
)
def test_a_file_that_is_no_safetensors_comes_back_for_the_reader_of_headers_to_name(hub, content):
    hub.repo("zai-org/tiny").commit({"m.safetensors": virtual(content)})
    snapshot = opened(hub)
    assert snapshot.headers(["m.safetensors"])["m.safetensors"] == content[:8]


def test_a_header_above_the_limit_is_not_fetched(hub):
    size = (30 << 20).to_bytes(8, "little")
    hub.repo("zai-org/tiny").commit({"m.safetensors": virtual(size, SHARD)})
    snapshot = open_hub("zai-org/tiny", None, access(hub, largest_header=1 << 20))
    unread = snapshot.headers(["m.safetensors"])["m.safetensors"]
    assert isinstance(unread, Unread)
    assert "31,457,280 bytes" in unread.reason and "--max-header" in unread.reason
    assert hub.bytes_of("m.safetensors") <= 1 << 16


def test_headers_beyond_all_measure_end_somewhere(hub, monkeypatch):
    monkeypatch.setattr("envdoctor.hub.headers._ALL_HEADERS", 100_000)
    size = (30_000).to_bytes(8, "little") + b"{" + b" " * 29_999
    hub.repo("zai-org/tiny").commit({f"m-{i}.safetensors": virtual(size, SHARD) for i in range(9)})
    headers = opened(hub).headers([f"m-{i}.safetensors" for i in range(9)])
    assert sum(isinstance(found, bytes) for found in headers.values()) == 3
    assert all("MiB already" in found.reason for found in headers.values() if isinstance(found, Unread))


def test_a_list_whose_end_is_missing_is_asked_for_again(hub, repo):
    hub.fault("body", match="/api/models", data=b'{"id": "zai-org/tiny", "sib')
    assert len(opened(hub).files) == 7


def test_what_a_busy_server_asks_of_one_request_holds_for_all(hub, repo):
    snapshot = opened(hub)
    hub.forget()
    hub.fault("429", headers={"Retry-After": "120"})
    for path in ("config.json", "notes.txt"):
        unread = snapshot.read(path, 10_000)
        assert isinstance(unread, Unread) and "to wait 120 s" in unread.reason
    assert len(hub.log) == 1


def test_ranges_from_both_ends(hub, repo):
    snapshot = opened(hub)
    assert snapshot.read_ranges("m-0.safetensors", [(0, 8), (-4, 4), (5, 0)]) == [header(400)[:8], bytes(4), b""]
    assert isinstance(snapshot.read_ranges("m-0.safetensors", [(SHARD, 1)]), Unread)
    assert isinstance(snapshot.read_ranges("m-0.safetensors", [(0, 1 << 31)]), Unread)
    assert snapshot.read_ranges("config.json", [(1, 3)]) == [b'"a"']


def test_a_file_above_the_limit_is_not_asked_for(hub, repo):
    snapshot = opened(hub)
    hub.forget()
    assert isinstance(snapshot.read("notes.txt", 4999), Unread)
    assert not hub.log


# --- redirects and the token -----------------------------------------------------------------------------------------


def test_the_token_never_reaches_the_cdn(hub, repo):
    snapshot = opened(hub, token="hf_secret")
    snapshot.headers(weights(snapshot))
    snapshot.read_ranges("m-0.safetensors", [(0, 1), (-1, 1)])
    assert snapshot.read("config.json", 100) == b'{"a": 1}'
    assert {entry.authorized for entry in hub.log if entry.server == "hub"} == {True}
    assert {entry.authorized for entry in hub.log if entry.server == "cdn"} == {False}


def test_a_redirect_on_the_same_server_keeps_the_token(hub, repo):
    hub.resolve_cache = True
    snapshot = opened(hub, token="hf_secret")
    hub.forget()
    assert snapshot.read("config.json", 100) == b'{"a": 1}'
    assert [entry.authorized for entry in hub.log] == [True, True]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "gopher://x/", "http://", "http://[x", "http://a:99999/", "//"])
def test_a_redirect_to_what_is_no_web_address_is_refused(hub, repo, to):
    hub.fault("redirect", to=to, times=99)
    assert error_of(hub).kind in ("protocol", "network")


def test_a_redirect_in_a_circle_ends(hub, repo):
    hub.fault("redirect", to="/api/models/zai-org/tiny", times=99)
    error = error_of(hub)
    assert "redirects" in str(error)
    assert len(hub.log) == 6


def test_a_mirror_that_redirects_elsewhere_gets_no_token_there(hub, repo):
    with Hub() as other:
        other.repo("zai-org/tiny").commit({"config.json": "{}"})
        elsewhere = other.endpoint.replace("127.0.0.1", "localhost")
        hub.fault("redirect", status=308, to=f"{elsewhere}/api/models/zai-org/tiny/revision/main?blobs=true")
        assert len(opened(hub, token="hf_secret").files) == 1
        assert [entry.authorized for entry in other.log] == [False]


# --- time: an answer that takes ten minutes is not waited for --------------------------------------------------------

NEVER = 600


def test_a_server_that_does_not_answer_is_given_up_at_the_deadline(hub, repo):
    hub.fault("latency", seconds=NEVER, times=99)
    error = error_of(hub, timeout=0.5)
    assert error.kind == "timeout"
    assert "--timeout" in str(error)


def test_a_server_that_is_slow_once_is_asked_again(hub, repo):
    hub.fault("latency", seconds=NEVER)
    assert len(opened(hub, patience=0.3).files) == 7


def test_headers_that_are_not_there_at_the_deadline_are_unread_and_the_others_stand(hub, repo):
    snapshot = opened(hub, timeout=2.0)
    hub.fault("latency", match="m-3", seconds=NEVER, times=99)
    headers = snapshot.headers(weights(snapshot))
    assert isinstance(headers["m-3.safetensors"], Unread)
    assert "--timeout" in headers["m-3.safetensors"].reason
    assert sum(isinstance(found, bytes) for found in headers.values()) == 4


def test_a_server_that_drips_is_given_up_at_the_deadline(hub, repo):
    hub.fault("slow", match="notes.txt", chunk=1, pause=0.02, times=99)
    assert isinstance(opened(hub, timeout=0.5).read("notes.txt", 10_000), Unread)


def test_a_list_that_drips_is_given_up_at_the_deadline(hub, repo):
    hub.fault("slow", match="/api/models", chunk=1, pause=0.02, times=99)
    assert error_of(hub, timeout=0.5).kind == "timeout"


@pytest.mark.parametrize("piece", [b"[],", b'{"a":0},', b'"",'])
def test_a_list_whose_parsing_would_outlast_the_deadline_is_not_parsed(hub, repo, piece):
    """Parsing runs in one piece, and nothing else runs meanwhile: 42 MB of such JSON took 12 s of 6 that were given."""
    hub.fault("body", match="/api/models", data=b'{"siblings":[' + piece * 1_000_001 + b"0]}")
    assert "more than 1,000,000 values" in str(error_of(hub))


def test_requests_run_side_by_side(hub):
    hub.repo("zai-org/tiny").commit({f"m-{i}.safetensors": virtual(header(400), SHARD) for i in range(40)})
    snapshot = opened(hub)
    hub.forget()
    hub.fault("company", requests=3, times=3)
    assert set(snapshot.headers(weights(snapshot)).values()) == {header(400)}
