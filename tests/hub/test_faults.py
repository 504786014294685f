"""Every fault of a server ends in success after another try, or in a sentence; in time, and never in wrong bytes."""

import email.utils

import pytest
from loopback import Hub, virtual
from small_models import SHARD, header, opened, refused, weights, why


@pytest.fixture
def repo(hub: Hub):
    repo = hub.repo("zai-org/tiny")
    shards = {f"m-{i}.safetensors": virtual(header(400), SHARD) for i in range(5)}
    repo.commit({"config.json": '{"a": 1}', "notes.txt": "n" * 5000, **shards})
    return repo


def one_file(hub: Hub, content: bytes, size: int | None = SHARD) -> None:
    """Put a repository with one file that begins with the content on the Hub."""
    hub.repo("zai-org/tiny").commit({"m.safetensors": virtual(content, size)})


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


@pytest.mark.parametrize(("kind", "options"), [*PASSING, ("body", {"data": b'{"id": "zai-org/tiny", "sib'})])
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
        # a range that is not the one asked for
        *(("cdn", kind, {"by": 5}) for kind in ("short_range", "shift_range", "wrong_content_range")),
    ],
)
def test_a_passing_fault_of_a_header_is_tried_again(hub, repo, kind, options, server):
    snapshot = opened(hub)
    hub.fault(kind, match=r"m-3.*bytes", server=server, **options)
    assert set(snapshot.headers(weights(snapshot)).values()) == {header(400)}
    assert [entry.fault for entry in hub.log if entry.fault] == [kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        *((kind, "where 0-") for kind in ("short_range", "shift_range", "wrong_content_range")),
        *((kind, "broke off") for kind in ("cut", "drop")),
        *((status, f"HTTP {status}") for status in ("503", "429", "404", "403", "418")),
        ("html200", "web page"),
    ],
)
def test_a_lasting_fault_leaves_one_header_unread_with_its_reason(hub, repo, kind, words):
    snapshot = opened(hub)
    hub.fault(kind, match=r"m-3", server="cdn", times=99, by=5, after=9)
    headers = snapshot.headers(weights(snapshot))
    assert words in why(headers.pop("m-3.safetensors"))
    assert set(headers.values()) == {header(400)}


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("html200", {}, "web page"),
        ("cut", {"after": 3}, "broke off"),
        ("500", {}, "HTTP 500"),
        ("body", {"data": b'{"a": 2}'}, "other bytes"),  # not those of the list
    ],
)
def test_a_lasting_fault_leaves_a_text_unread_with_its_reason(hub, repo, kind, options, words):
    snapshot = opened(hub)
    hub.fault(kind, match="config.json", times=99, **options)
    assert words in why(snapshot.read("config.json", 100))
    assert snapshot.read("notes.txt", 10_000) == b"n" * 5000


def test_a_body_without_a_length_that_was_cut_is_noticed_by_its_digest(hub, repo):
    snapshot = opened(hub)
    hub.fault("chunked", match="notes.txt", times=1)
    assert snapshot.read("notes.txt", 10_000) == b"n" * 5000


@pytest.mark.parametrize(
    ("kind", "options", "error", "words", "requests"),
    [
        ("html200", {}, "protocol", ["web page", "login page of this network"], None),
        # the wait that a busy server asks for is told when it is too long
        ("429", {"headers": {"RateLimit": '"api";r=0;t=120'}}, "network", ["limits requests", "120 s"], 1),
        ("503", {}, "network", ["HTTP 503", "4 attempts"], 4),
        ("redirect", {"to": "/api/models/zai-org/tiny"}, "protocol", ["redirects"], 6),  # in a circle
    ],
)
def test_a_lasting_fault_of_the_list_is_said(hub, repo, kind, options, error, words, requests):
    hub.fault(kind, times=99, **options)
    refused(hub, error, *words)
    assert requests in (None, len(hub.log))


def test_what_a_busy_server_asks_of_one_request_holds_for_all(hub, repo):
    snapshot = opened(hub)
    hub.forget()
    hub.fault("429", headers={"Retry-After": "120"})
    assert all("to wait 120 s" in why(snapshot.read(path, 10_000)) for path in ("config.json", "notes.txt"))
    assert len(hub.log) == 1


def test_a_server_that_ignores_ranges_costs_at_most_a_megabyte_a_shard(hub, repo):
    snapshot = opened(hub)
    hub.fault("ignore_range", times=999)
    headers = snapshot.headers(weights(snapshot))
    assert set(headers.values()) == {header(400)}
    assert max(hub.bytes_of(path) for path in headers) <= 1_000_000
    hub.forget()
    assert why(snapshot.read_range("m-0.safetensors", SHARD - 100, 100))
    assert hub.bytes_of("m-0") <= 1_000_000


def test_a_long_header_is_not_read_from_a_server_that_ignores_ranges(hub):
    one_file(hub, header(40_000))
    snapshot = opened(hub)
    hub.fault("ignore_range", times=999)
    assert "ignores ranges" in why(snapshot.headers(["m.safetensors"])["m.safetensors"])
    assert hub.bytes_of("m.safetensors") <= 1_000_000


@pytest.mark.parametrize(
    "length", [8_184, 8_185, 32_760, 32_761, 99_991, 99_992, 99_993, 99_994, 99_999, 100_000, 100_001]
)
def test_a_header_of_any_length_is_whole(hub, length):
    content = length.to_bytes(8, "little") + b"{" + b" " * (length - 2) + b"}"
    one_file(hub, content)
    assert opened(hub).headers(["m.safetensors"])["m.safetensors"] == content


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"1234567", b"\xff" * 8, (1 << 63).to_bytes(8, "little") + b"{}", b"\0" * 8]
)
def test_a_file_that_is_no_safetensors_comes_back_for_the_reader_of_headers_to_name(hub, content):
    one_file(hub, content, None)
    assert opened(hub).headers(["m.safetensors"])["m.safetensors"] == content[:8]


def test_a_header_above_the_limit_is_not_fetched(hub):
    one_file(hub, (30 << 20).to_bytes(8, "little"))
    said = why(opened(hub, largest_header=1 << 20).headers(["m.safetensors"])["m.safetensors"])
    assert "31,457,280 bytes" in said and "--max-header" in said
    assert hub.bytes_of("m.safetensors") <= 1 << 16


def test_headers_beyond_all_measure_end_somewhere(hub, monkeypatch):
    monkeypatch.setattr("envdoctor.revision.hub.local._ALL_HEADERS", 100_000)
    size = (30_000).to_bytes(8, "little") + b"{" + b" " * 29_999
    hub.repo("zai-org/tiny").commit({f"m-{i}.safetensors": virtual(size, SHARD) for i in range(9)})
    headers = opened(hub).headers([f"m-{i}.safetensors" for i in range(9)]).values()
    assert sum(isinstance(found, bytes) for found in headers) == 3
    assert all("MiB already" in why(found) for found in headers if not isinstance(found, bytes))


def test_ranges_from_both_ends(hub, repo):
    snapshot = opened(hub)
    parts = [snapshot.read_range("m-0.safetensors", *part) for part in ((0, 8), (SHARD - 4, 4), (5, 0))]
    assert parts == [header(400)[:8], bytes(4), b""]
    assert all(why(snapshot.read_range("m-0.safetensors", *part)) for part in ((SHARD, 1), (0, 1 << 31)))
    assert snapshot.read_range("config.json", 1, 3) == b'"a"'
    hub.forget()
    assert why(snapshot.read("notes.txt", 4999)), "above the limit it is not asked for"
    assert not hub.log


def test_the_token_never_reaches_the_cdn(hub, repo):
    snapshot = opened(hub, token="hf_secret")
    snapshot.headers(weights(snapshot))
    snapshot.read_range("m-0.safetensors", SHARD - 1, 1)
    assert snapshot.read("config.json", 100) == b'{"a": 1}'
    assert {(entry.server, entry.authorized) for entry in hub.log} == {("hub", True), ("cdn", False)}


def test_a_redirect_on_the_same_server_keeps_the_token(hub, repo):
    snapshot = opened(hub, token="hf_secret")
    hub.forget()
    hub.fault("redirect", status=307, to=f"/zai-org/tiny/resolve/{snapshot.revision}/config.json")
    assert snapshot.read("config.json", 100) == b'{"a": 1}'
    assert [entry.authorized for entry in hub.log] == [True, True]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "gopher://x/", "http://", "http://[x", "http://a:99999/", "//"])
def test_a_redirect_to_what_is_no_web_address_is_refused(hub, repo, to):
    hub.fault("redirect", to=to, times=99)
    refused(hub, "protocol network")


def test_a_mirror_that_redirects_elsewhere_gets_no_token_there(hub, repo):
    with Hub() as other:
        other.repo("zai-org/tiny").commit({"config.json": "{}"})
        elsewhere = other.endpoint.replace("127.0.0.1", "localhost")
        hub.fault("redirect", status=308, to=f"{elsewhere}/api/models/zai-org/tiny/revision/main?blobs=true")
        assert len(opened(hub, token="hf_secret").files) == 1
        assert [entry.authorized for entry in other.log] == [False]


#: An answer that takes ten minutes is not waited for.
NEVER = {"seconds": 600}
DRIP = {"chunk": 1, "pause": 0.02}


@pytest.mark.parametrize(("kind", "options"), [("latency", NEVER), ("slow", {"match": "/api/models", **DRIP})])
def test_a_list_that_does_not_come_or_drips_is_given_up_at_the_deadline(hub, repo, kind, options):
    hub.fault(kind, times=99, **options)
    refused(hub, "timeout", "--timeout", timeout=0.5)


def test_a_server_that_is_slow_once_is_asked_again(hub, repo):
    hub.fault("latency", **NEVER)
    assert len(opened(hub, patience=0.3).files) == 7


def test_what_is_not_there_at_the_deadline_is_unread_and_the_others_stand(hub, repo):
    snapshot = opened(hub, timeout=2.0)
    hub.fault("latency", match="m-3", times=99, **NEVER)
    headers = snapshot.headers(weights(snapshot))
    assert "--timeout" in why(headers["m-3.safetensors"])
    assert sum(isinstance(found, bytes) for found in headers.values()) == 4
    hub.fault("slow", match="notes.txt", times=99, **DRIP)
    assert why(opened(hub, timeout=0.5).read("notes.txt", 10_000))


@pytest.mark.parametrize("piece", [b"[],", b'{"a":0},', b'"",'])
def test_a_list_whose_parsing_would_outlast_the_deadline_is_not_parsed(hub, repo, piece):
    """Parsing runs in one piece, and nothing else runs meanwhile: 42 MB of such JSON took 12 s of 6 that were given."""
    hub.fault("body", match="/api/models", data=b'{"siblings":[' + piece * 1_000_001 + b"0]}")
    refused(hub, "protocol", "more than 1,000,000 values")


def test_requests_run_side_by_side(hub):
    hub.repo("zai-org/tiny").commit({f"m-{i}.safetensors": virtual(header(400), SHARD) for i in range(40)})
    snapshot = opened(hub)
    hub.forget()
    hub.fault("company", requests=3, times=3)
    assert set(snapshot.headers(weights(snapshot)).values()) == {header(400)}
