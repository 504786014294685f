"""A Hub on this machine (standard library only): what the real clients need of it, every fault, and a log of costs.

Two servers: the hub on ``http://127.0.0.1:P1`` and its CDN on ``http://localhost:P2``; recent clients refuse a CDN of
the hub's own origin. File contents may be virtual (a prefix, then zeros), so a shard of 5 GB costs no disk. The
sha256 of a virtual file is synthetic: it names its description, not its bytes.

    with Hub() as hub:
        repo = hub.repo("zai-org/chatglm3-6b")
        old = repo.commit({"config.json": "{}", "model.safetensors": virtual(header, 5_000_000_000)}, title="first")
        hub.fault("cut", match=r"GET .*config", after=3)
        run("envdoctor", env=hub.environ(tmp_path))
        assert hub.bytes_of(".safetensors") == 0
"""

import datetime
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

_ZEROS = bytes(1 << 16)
_LOGIN_PAGE = b"<!DOCTYPE html><html><body>Please log in to the airport WiFi</body></html>"
#: Contents up to this size are hashed as they are; beyond, oids are synthetic.
_REAL_DIGEST = 8 << 20


@dataclass(frozen=True)
class Blob:
    """The content of one file: ``prefix``, then zeros up to ``size``. LFS files are served by the CDN."""

    prefix: bytes
    size: int
    lfs: bool

    def slice(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes ``[start, end)`` in pieces."""
        while start < end:
            if start < len(self.prefix):
                piece = self.prefix[start : min(end, start + len(_ZEROS))]
            else:
                piece = _ZEROS[: min(end - start, len(_ZEROS))]
            yield piece
            start += len(piece)

    @property
    def sha256(self) -> str:
        """Of the content; synthetic for large virtual files."""
        return _sha256(self.prefix, self.size)

    @property
    def git_oid(self) -> str:
        """Of the file in git: for an LFS file that of its pointer."""
        body = self.pointer if self.lfs else b"".join(self.slice(0, self.size))
        return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()

    @property
    def pointer(self) -> bytes:
        """The text that git holds in place of an LFS file."""
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()


_digests: dict[tuple[bytes, int], str] = {}


def _sha256(prefix: bytes, size: int) -> str:
    key = (hashlib.sha256(prefix).digest(), size)
    if key not in _digests:
        if size <= _REAL_DIGEST:
            _digests[key] = hashlib.sha256(prefix[:size] + bytes(max(0, size - len(prefix)))).hexdigest()
        else:
            _digests[key] = hashlib.sha256(b"virtual file\0%d\0" % size + prefix).hexdigest()
    return _digests[key]


def text(content: str | bytes) -> Blob:
    """A small file that lies in git itself."""
    data = content.encode() if isinstance(content, str) else content
    return Blob(data, len(data), lfs=False)


def virtual(prefix: bytes, size: int | None = None) -> Blob:
    """An LFS file that begins with ``prefix`` (a header) and has ``size`` bytes in all."""
    return Blob(prefix, len(prefix) if size is None else size, lfs=True)


#: Files of a commit by path; None deletes one.
Contents = Mapping[str, "Blob | str | bytes | None"]


@dataclass(frozen=True)
class Commit:
    """One commit with all files of its state."""

    id: str
    title: str
    date: str
    files: Mapping[str, Blob]
    parent: str | None


@dataclass
class Repo:
    """One model repository. ``commits`` are newest first; branches and tags point to commit ids."""

    name: str
    commits: list[Commit] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pull_requests: dict[int, str] = field(default_factory=dict)
    #: Conditions to accept: files are refused (401 without a token, 403 with one outside ``readers``), lists are not.
    gated: bool = False
    #: Invisible without a token of ``readers``.
    private: bool = False
    disabled: bool = False
    readers: set[str] = field(default_factory=set)
    #: Extra siblings in listings, as they are (hostile names, missing sizes).
    extra_siblings: list[dict[str, Any]] = field(default_factory=list)

    def commit(self, files: Contents, *, title: str = "Update", date: str | None = None, id: str | None = None) -> str:
        """Add a commit on top of main and return its id. Files of before stay; None deletes one."""
        self.branches["main"] = self._add(files, title, date, id)
        return self.branches["main"]

    def pull_request(self, number: int, files: Contents) -> str:
        """A pull request on top of main; its commit is not on main."""
        self.pull_requests[number] = self._add(files, "PR", None, None)
        return self.pull_requests[number]

    def _add(self, files: Contents, title: str, date: str | None, id: str | None) -> str:
        parent = self.branches.get("main")
        before = self.find(parent) if parent else None
        state = dict(before.files) if before else {}
        for path, content in files.items():
            if content is None:
                state.pop(path, None)
            else:
                state[path] = content if isinstance(content, Blob) else text(content)
        number = len(self.commits)
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=number)
        name = id or hashlib.sha1(f"{self.name} {number} {title}".encode()).hexdigest()
        # the beginning of an id is enough: the rest is made up
        name += hashlib.sha1(name.encode()).hexdigest()[: 40 - len(name)] if len(name) < 40 else ""
        self.commits.insert(0, Commit(name, title, date or f"{day}T12:00:00.000Z", state, parent))
        return name

    def find(self, revision: str) -> Commit | None:
        """The commit of a branch, tag, ``refs/…``, full id, or unambiguous beginning of at least 7 characters."""
        match = re.fullmatch(r"refs/pr/(\d+)", revision)
        wanted = self.pull_requests.get(int(match[1])) if match else None
        wanted = wanted or self.branches.get(revision.removeprefix("refs/heads/"))
        wanted = wanted or self.tags.get(revision.removeprefix("refs/tags/")) or revision
        found = [commit for commit in self.commits if commit.id == wanted]
        if not found and len(wanted) >= 7:
            found = [commit for commit in self.commits if commit.id.startswith(wanted)]
        return found[0] if len(found) == 1 else None

    def history(self, revision: str) -> list[Commit]:
        """The commits from a revision back to the first."""
        found: list[Commit] = []
        commit = self.find(revision)
        while commit is not None:
            found.append(commit)
            commit = self.find(commit.parent) if commit.parent else None
        return found


@dataclass
class Fault:
    """Something that goes wrong, the next ``times`` times that ``match`` is found in "METHOD path [range]"."""

    kind: str
    match: str
    times: int
    options: dict[str, Any]
    server: str | None


@dataclass
class Entry:
    """One request as it was served. ``sent`` counts body bytes handed to the socket."""

    server: str
    method: str
    path: str
    query: str
    range: str | None
    authorized: bool
    agent: str
    connection: int
    status: int = 0
    sent: int = 0
    fault: str | None = None
    done: bool = False


class Hub:
    """The two servers, what they hold, and what was asked of them."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, str] = {}
        self.page_size = 1000
        #: Whether listings give oids and sizes for ``?blobs=true`` (some mirrors do not), and the front matter.
        self.blobs = self.cards = True
        self.refused_tokens: set[str] = set()
        self.faults: list[Fault] = []
        self._entries: list[Entry] = []
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._servers = [_Server(self, "hub", "127.0.0.1"), _Server(self, "cdn", "127.0.0.1")]
        self.endpoint = f"http://127.0.0.1:{self._servers[0].server_port}"
        self.cdn = f"http://localhost:{self._servers[1].server_port}"

    def __enter__(self) -> "Hub":
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def repo(self, name: str, **options: Any) -> Repo:
        """Add an empty repository."""
        self.repos[name] = Repo(name, **options)
        return self.repos[name]

    def move(self, old: str, new: str) -> None:
        """Redirect everything below an old name (307), as the Hub does after a rename."""
        self.moved[old] = new

    def fault(self, kind: str, match: str = "", times: int = 1, server: str | None = None, **options: Any) -> None:
        """Plan a fault.

        Kinds: ``latency`` (seconds), ``slow`` (chunk, pause), a status such as ``"429"`` (headers), ``drop``, ``cut``
        (after), ``ignore_range``, ``short_range`` (by), ``shift_range`` (by), ``wrong_content_range``, ``html200``,
        ``bad_length`` (by), ``chunked`` (no Content-Length), ``redirect`` (to), ``body`` (data),
        ``company`` (requests: no answer before so many have arrived).
        """
        self.faults.append(Fault(kind, match, times, options, server))

    def take_fault(self, server: str, line: str) -> Fault | None:
        """The planned fault for a request, counted down."""
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and fault.server in (None, server) and re.search(fault.match, line):
                    fault.times -= 1
                    return fault
        return None

    def record(self, entry: Entry) -> None:
        """Add a request to the log."""
        with self._lock:
            self._entries.append(entry)

    @property
    def log(self) -> list[Entry]:
        """Every request so far, in order of arrival, once those under way are through (a second at most)."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            with self._lock:
                if all(entry.done for entry in self._entries):
                    break
            time.sleep(0.002)
        return list(self._entries)

    def forget(self) -> None:
        """Empty the log."""
        with self._lock:
            self._entries.clear()

    def bytes_of(self, part: str) -> int:
        """Body bytes sent of the CDN's and the hub's files whose path holds ``part``; listings are not files."""
        return sum(e.sent for e in self.log if part in e.path and not e.path.startswith("/api/models"))

    def environ(self, home: Path | str) -> dict[str, str]:
        """The variables that make a client use this Hub and nothing else."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(Path(home) / "hf-home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "*",
            "no_proxy": "*",
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, hub: Hub, role: str, host: str) -> None:
        self.hub = hub
        self.role = role
        self.connections = 0
        super().__init__((host, 0), _Handler)

    def server_bind(self) -> None:
        # Small: what a client leaves unread must not lie in the kernel and count as sent.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.connections += 1
        self.number = self.server.connections

    def log_message(self, *_: Any) -> None:
        """Our own log is kept instead."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_GET

    def _serve(self) -> None:
        hub = self.server.hub
        parts = urlsplit(self.path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        asked = self.server.role, self.command, parts.path, parts.query, self.headers.get("Range")
        self.entry = Entry(*asked, bool(token), self.headers.get("User-Agent") or "", self.number)
        hub.record(self.entry)
        line = f"{self.command} {unquote(parts.path)}" + (f" {self.entry.range}" if self.entry.range else "")
        self.fault = hub.take_fault(self.server.role, line)
        self.entry.fault = self.fault.kind if self.fault else None
        try:
            if self._faulty_from_the_start():
                return
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            if self.server.role == "cdn":
                self._cdn(parts.path)
            else:
                self._route(parts.path, query, token)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.entry.done = True

    def _is(self, kind: str) -> dict[str, Any] | None:
        return self.fault.options if self.fault and self.fault.kind == kind else None

    def _by(self, kind: str) -> int:
        return (self._is(kind) or {}).get("by", 0)

    def _faulty_from_the_start(self) -> bool:
        fault = self.fault
        if fault is None:
            return False
        if fault.kind == "latency":
            self.server.hub.stopping.wait(fault.options["seconds"])
        elif fault.kind == "company":
            hub = self.server.hub
            while len(hub._entries) < fault.options["requests"] and not hub.stopping.wait(0.005):
                pass
        elif fault.kind == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return True
        answers = {
            "html200": (200, {"Content-Type": "text/html; charset=utf-8"}, _LOGIN_PAGE),
            "redirect": (fault.options.get("status", 302), {"Location": fault.options.get("to", "")}, b""),
            "body": (200, {"Content-Type": "application/json"}, fault.options.get("data", b"")),
        }
        if fault.kind.isdigit():
            busy = {"Content-Type": "text/plain", **fault.options.get("headers", {})}
            answers[fault.kind] = (int(fault.kind), busy, b"busy")
        if fault.kind in answers:
            self._send(*answers[fault.kind])
        return fault.kind in answers

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._send_blob(status, headers, Blob(body, len(body), lfs=False), 0, len(body))

    def _json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        kind = {"Content-Type": "application/json; charset=utf-8"}
        self._send(200, {**kind, **(headers or {})}, json.dumps(value).encode())

    def _error(self, status: int, code: str | None, message: str) -> None:
        headers = {"Content-Type": "application/json", "X-Error-Message": message}
        if code:
            headers["X-Error-Code"] = code
        self._send(status, headers, json.dumps({"error": message}).encode())

    def _send_blob(self, status: int, headers: Mapping[str, str], blob: Blob, start: int, end: int) -> None:
        self.entry.status = status
        self.close_connection = self.close_connection or self._is("bad_length") is not None
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self._is("chunked") is not None:
            # neither a length nor chunks: the end of the connection is the end of the body
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(end - start + self._by("bad_length")))
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = end
        if (options := self._is("cut")) is not None:
            stop = min(end, start + options["after"])
            self.close_connection = True
        slow = self._is("slow")
        for piece in blob.slice(start, stop):
            step = slow["chunk"] if slow else len(piece)
            for at in range(0, len(piece), step):
                if slow and self.server.hub.stopping.wait(slow["pause"]):
                    return
                self.wfile.write(piece[at : at + step])
                self.entry.sent += len(piece[at : at + step])
        if stop != end:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def _ranged(self, blob: Blob, headers: dict[str, str]) -> None:
        headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.entry.range or "")
        if match is None or match[0] == "bytes=-" or self._is("ignore_range") is not None:
            self._send_blob(200, headers, blob, 0, blob.size)
            return
        if match[1]:
            start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else blob.size, blob.size)
        else:
            start, end = max(0, blob.size - int(match[2])), blob.size
        if start >= blob.size or end <= start:
            self._send(416, {"Content-Range": f"bytes */{blob.size}"}, b"")
            return
        end = max(start + 1, end - self._by("short_range"))
        start, end = start + self._by("shift_range"), min(blob.size, end + self._by("shift_range"))
        other = 7 if self._is("wrong_content_range") is not None else 0
        headers["Content-Range"] = f"bytes {start + other}-{end + other - 1}/{blob.size}"
        self._send_blob(206, headers, blob, start, end)

    def _route(self, path: str, query: dict[str, str], token: str) -> None:
        if token and token in self.server.hub.refused_tokens:
            self._error(401, None, "Invalid credentials in Authorization header")
            return
        if path.startswith("/api/models/"):
            words = path.removeprefix("/api/models/").split("/")
            # the oldest repositories have a name of one part
            size = 1 if len(words) == 1 or words[1] in ("revision", "tree", "commits") else 2
            self._api("/".join(words[:size]), words[size:], query, token)
        elif "/resolve/" in path:
            name, _, rest = path[1:].partition("/resolve/")
            revision, _, file = rest.partition("/")
            self._file(name, unquote(revision), unquote(file), token)
        else:
            self._error(404, None, "Sorry, we can't find the page you are looking for.")

    def _visible(self, name: str, token: str) -> Repo | None:
        """The repository, or None after an answer that says why not."""
        hub = self.server.hub
        # in any case of letters: https://github.com/huggingface/huggingface_hub/issues/1453
        lower = name.lower()
        moved = next((now for old, now in hub.moved.items() if old.lower() == lower), None)
        if moved is not None:
            self._send(307, {"Location": self.path.replace(name, moved, 1)}, b"Temporary Redirect")
            return None
        repo = next((repo for known, repo in hub.repos.items() if known.lower() == lower), None)
        if repo is None or (repo.private and token not in repo.readers):
            self._error(404 if token else 401, "RepoNotFound", "Repository not found")
            return None
        if repo.disabled:
            self._error(403, None, "Access to this resource is disabled.")
            return None
        return repo

    def _commit_of(self, repo: Repo, revision: str) -> Commit | None:
        commit = repo.find(revision)
        if commit is None:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _api(self, name: str, words: list[str], query: dict[str, str], token: str) -> None:
        repo = self._visible(name, token)
        if repo is None:
            return
        verb = words[0] if words else "revision"
        commit = self._commit_of(repo, unquote(words[1]) if len(words) > 1 else "main")
        if commit is None:
            return
        if verb == "revision":
            self._json(self._info(repo, commit, _truth(query.get("blobs"))))
        elif verb == "commits":
            shown = [
                {"id": c.id, "title": c.title, "message": "", "authors": [{"user": "someone"}], "date": c.date}
                for c in repo.history(commit.id)
            ]
            self._page(shown, query, size=min(50, self.server.hub.page_size))
        elif verb == "tree":
            self._page(self._tree(commit), query, size=self.server.hub.page_size)
        else:
            self._error(404, None, "not found")

    def _info(self, repo: Repo, commit: Commit, blobs: bool) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        for path, blob in commit.files.items():
            sibling: dict[str, Any] = {"rfilename": path}
            if blobs and self.server.hub.blobs:
                sibling |= {"blobId": blob.git_oid, "size": blob.size}
                if blob.lfs:
                    sibling["lfs"] = {"sha256": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
            siblings.append(sibling)
        readme = commit.files.get("README.md", text(""))
        front = re.match(rb"---\n(.*?)\n---", b"".join(readme.slice(0, readme.size)), re.DOTALL)
        return {
            **({"cardData": yaml.safe_load(front[1])} if front and self.server.hub.cards else {}),
            "_id": "0" * 24,
            "id": repo.name,
            "modelId": repo.name,
            "sha": commit.id,
            "lastModified": commit.date,
            "createdAt": repo.commits[-1].date,
            "private": repo.private,
            "gated": "manual" if repo.gated else False,
            "disabled": repo.disabled,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings + repo.extra_siblings,
        }

    def _tree(self, commit: Commit) -> list[dict[str, Any]]:
        """The files, and the folders that they are in."""
        entries: dict[str, dict[str, Any]] = {}
        for path, blob in sorted(commit.files.items()):
            for folder in map(str, reversed(PurePosixPath(path).parents[:-1])):
                oid = hashlib.sha1(folder.encode()).hexdigest()
                entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
            entries[path] = {"type": "file", "oid": blob.git_oid, "size": blob.size, "path": path}
            if blob.lfs:
                entries[path]["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
        return list(entries.values())

    def _page(self, items: list[Any], query: dict[str, str], *, size: int) -> None:
        start = int(query.get("cursor", "0"))
        headers = {"X-Total-Count": str(len(items))}
        if start + size < len(items):
            base = urlsplit(self.path)
            rest = "&".join(p for p in base.query.split("&") if p and not p.startswith("cursor="))
            following = f"{self.server.hub.endpoint}{base.path}?{rest + '&' if rest else ''}cursor={start + size}"
            headers["Link"] = f'<{following}>; rel="next"'
        self._json(items[start : start + size], headers)

    def _file(self, name: str, revision: str, path: str, token: str) -> None:
        hub = self.server.hub
        repo = self._visible(name, token)
        if repo is None:
            return
        if repo.gated and token not in repo.readers:
            self._error(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted.")
            return
        commit = self._commit_of(repo, revision)
        if commit is None:
            return
        blob = commit.files.get(path)
        if blob is None:
            self._error(404, "EntryNotFound", "Entry not found")
            return
        headers = {"X-Repo-Commit": commit.id, "ETag": f'"{blob.git_oid}"'}
        if blob.lfs:
            place = f"{hub.cdn}/{name}/{commit.id}/{quote(path)}?Signature=secret-{blob.sha256[:8]}&Expires=1999999999"
            linked = {"X-Linked-Size": str(blob.size), "X-Linked-Etag": f'"{blob.sha256}"'}
            self._send(302, {**headers, **linked, "Location": place}, b"")
        else:
            self._ranged(blob, headers)

    def _cdn(self, path: str) -> None:
        words = unquote(path)[1:].split("/")
        name = next((n for n in ("/".join(words[:2]), words[0]) if n in self.server.hub.repos), None)
        repo = self.server.hub.repos[name] if name else None
        rest = words[len(name.split("/")) :] if name else []
        commit = repo.find(rest[0]) if repo and rest else None
        blob = commit.files.get("/".join(rest[1:])) if commit else None
        if blob is None:
            self._send(404, {}, b"NoSuchKey")
        else:
            self._ranged(blob, {"ETag": f'"{blob.sha256[:32]}"'})


def _truth(value: str | None) -> bool:
    return (value or "").lower() in ("true", "1", "yes")
