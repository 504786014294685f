"""A snapshot on a Hub: one request for the list, and then only what is asked for; the commits of a repository, newest
first; and what one command may ask for.

Its files are checked item by item. What a person reads when a repository, a revision or a file cannot be had says what
happened, and what to do.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from envdoctor.observe.model.names import (
    CachedCommit,
    cache_folder,
    cached_repos,
    is_repo_name,
    is_revision,
    printable,
    spellings,
)
from envdoctor.revision.hub.local import MOST_FILES, RemoteFile, read_headers
from envdoctor.revision.hub.safetensors_header import LARGEST_HEADER
from envdoctor.revision.hub.snapshot import FileEntry, Hasher, Snapshot, SnapshotError, Unread, check_items
from envdoctor.revision.hub.transport import Again, Transport, TransportError, is_web_page
from envdoctor.system.message import Message, said_by

_LOGIN = Message("log in (hf auth login) or set HF_TOKEN")
_LISTING_LIMIT = 48 << 20
_PAGE_LIMIT = 8 << 20
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_NAME = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?\Z", re.ASCII)
Result = TypeVar("Result")


@dataclass
class Access:
    """Nothing is asked, and huggingface_hub not imported, before :attr:`hub` is needed. ``offline`` takes the local
    cache in the Hub's place. ``aliases`` maps organisations to their present names, for the cache's old ones.
    ``timeout`` in seconds bounds everything that is asked of the Hub, ``largest_header`` in bytes each safetensors
    header. ``hash`` reads large files of this machine to the end. ``notice`` is told of long waits."""

    cwd: str
    environ: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    timeout: float = 60.0
    largest_header: int = LARGEST_HEADER
    hash: bool = False
    notice: Callable[[str], None] | None = None
    #: The way to the Hub if anything was asked for there.
    transport: Transport | None = None

    def __post_init__(self) -> None:
        switches = (self.environ.get("HF_HUB_OFFLINE") or self.environ.get("TRANSFORMERS_OFFLINE") or "").upper()
        self.offline = self.offline or switches in ("1", "ON", "YES", "TRUE")

    @property
    def hub(self) -> Transport:
        """Return the transport to the Hub. Raises :class:`SnapshotError` if huggingface_hub cannot be used."""
        if self.transport is None:
            try:
                self.transport = Transport(timeout=self.timeout, notice=self.notice)
            except TransportError as error:
                raise SnapshotError("the Hub cannot be asked: {}", error, kind="usage") from None
        return self.transport

    @cached_property
    def hasher(self) -> Hasher:
        """Return the hasher that computes the object ids of files of this machine."""
        return Hasher(self.hash, self.notice)

    @property
    def cost(self) -> tuple[int, int]:
        """Return the number of requests so far, every hop of a redirect counted, and of the bytes of their bodies."""
        return (self.transport.requests, self.transport.received) if self.transport else (0, 0)

    def cached(self, repo: str, moved: str | None = None) -> list[CachedCommit]:
        """Return the commits of a repository in the cache under all its names: main, other references, last used."""
        names = [*spellings(repo, self.aliases), *(spellings(moved, self.aliases) if moved else ())]
        repos = cached_repos(dict.fromkeys(names), cache_folder(self.cwd, self.environ))
        commits = [commit for repo_cache in repos for commit in repo_cache.commits]
        return sorted(commits, key=lambda item: ("main" not in item.refs, not item.refs, -item.used))


def _listing_refused(error: TransportError, repo: str, revision: str, transport: Transport) -> SnapshotError:
    """Return the error for a repository or revision as a whole."""
    host, token, words = transport.host, transport.has_token, error.said.lower()
    match error.kind:
        case "offline":
            text = (
                "{} @ {} was not asked for on {}: offline mode is on (HF_HUB_OFFLINE or --offline); give local "
                "folders, or revisions that are in the local cache"
            )
            return SnapshotError(text, repo, revision, host, kind="offline")
        case "network" | "timeout":
            text = "{} @ {}: {}; check the network, the proxy and HF_ENDPOINT, or give local folders"
            return SnapshotError(text, repo, revision, error, kind=error.kind)
        case "usage":
            return SnapshotError("{} @ {}: {}", repo, revision, error, kind="usage")
    if error.code == "RevisionNotFound":
        text = "{} has no revision {} on {}: give a branch, a tag, a commit, refs/pr/N or a date (2024-01-31)"
        return SnapshotError(text, repo, revision, host, kind="revision-not-found")
    if error.code == "GatedRepo":
        return SnapshotError("{} on {} is gated: {}", repo, host, _gate(repo, transport), kind="gated")
    if "disabled" in words:
        text = "{} was disabled on {}, its files cannot be read: give local folders"
        return SnapshotError(text, repo, host, kind="disabled")
    if "credentials" in words or (error.status == 401 and token and not error.code):
        text = "{} does not accept the token of this machine (HTTP {}): {} again, or unset it"
        return SnapshotError(text, host, error.status, _LOGIN, kind="private")
    if error.code == "RepoNotFound" or error.status in (401, 404):
        hint = Message("the token's owner cannot see it") if token else Message("it is private: then {}", _LOGIN)
        return SnapshotError("{} was not found on {}: the name is wrong, or {}", repo, host, hint, kind="not-found")
    if error.status == 403:
        return SnapshotError("{} does not let this token read {} (HTTP 403)", host, repo, kind="private")
    words = f": {error.said}" if error.said else ""
    return SnapshotError("{} @ {}: {}{}", repo, revision, error, words, kind="protocol")


def _gate(repo: str, transport: Transport) -> Message:
    if transport.has_token:
        return Message("accept its conditions at {}/{} with the account of your token", transport.host, repo)
    return Message("accept its conditions at {}/{}, then {}", transport.host, repo, _LOGIN)


def ask_for_snapshot(access: Access, repo: str, revision: str, share: int = 1) -> "HubSnapshot":
    """Return the snapshot by the list of a revision: one request, one more a page where the server's list has no oids.
    Where ``share`` lists are asked for at once, each may have its part of 48 MiB. It is made in one of the transport's
    threads. Raises :class:`TransportError`."""
    transport = access.hub
    name_now = transport.moved.get(repo, repo)
    url = f"{transport.endpoint}/api/models/{name_now}/revision/{quote(revision, safe='')}?blobs=true"
    data, _ = transport.fetch_json(url, _LISTING_LIMIT // share)
    if not isinstance(data, dict):
        raise _odd(transport, Message("the description of a repository"))
    name = data.get("id")
    present = name if isinstance(name, str) and _NAME.match(name) else name_now
    if present != repo:
        transport.moved[repo] = present
    commit = data.get("sha")
    if not isinstance(commit, str) or not _COMMIT.match(commit):
        commit = revision
    if not _COMMIT.match(commit):
        raise _odd(transport, Message("a commit"))
    siblings = data.get("siblings")
    if not isinstance(siblings, list):
        raise _odd(transport, Message("a list of files"))
    if siblings and not any(isinstance(s, dict) and (s.get("blobId") or s.get("lfs")) for s in siblings):
        url = f"{transport.endpoint}/api/models/{present}/tree/{commit}?recursive=true"
        items = (item for page in _pages(transport, url, most=MOST_FILES) for item in page if isinstance(item, dict))
        files = (item for item in items if item.get("type") == "file")
        siblings = [{"rfilename": item.get("path"), "blobId": item.get("oid"), **item} for item in files]
    if len(siblings) > MOST_FILES:
        text = "{} lists {} files; at most {} are compared"
        raise TransportError(text, repo, f"{len(siblings):,}", f"{MOST_FILES:,}")
    snapshot = HubSnapshot(access, repo, *check_items(siblings), present, commit)
    snapshot.card = card if isinstance(card := data.get("cardData"), dict) else {}
    return snapshot


def _odd(transport: Transport, expected: Message) -> TransportError:
    text = "{} did not send {}; it is not a Hub, or its mirror is broken"
    return TransportError(text, transport.host, expected, kind="protocol")


def _pages(transport: Transport, url: str, *, most: int) -> Iterable[list[Any]]:
    """Yield the pages of a list, up to the one that passes ``most`` items. Raises :class:`TransportError`."""
    count = 0
    visited: set[str] = set()
    while url and count <= most:
        if url in visited or not url.startswith(transport.endpoint + "/"):
            raise _odd(transport, Message("a sane address of the next page"))
        visited.add(url)
        page, headers = transport.fetch_json(url, _PAGE_LIMIT)
        if not isinstance(page, list):
            raise _odd(transport, Message("a list"))
        yield page
        count += len(page)
        following = _NEXT.search(headers.get("link", ""))
        url = following[1] if following else ""


class Commit(NamedTuple):
    """One commit. ``date`` is None where the server's is not one; ``title`` is the author's text, not cleaned."""

    id: str
    title: str
    date: datetime | None


def commits(transport: Transport, repo: str, revision: str, most: int) -> Iterator[Commit]:
    """Yield the commits from ``revision`` back. Raises :class:`SnapshotError`."""
    new_name = transport.moved.get(repo, repo)
    url = f"{transport.endpoint}/api/models/{new_name}/commits/{quote(revision, safe='')}"
    following = iter(_pages(transport, url, most=most))
    count = 0
    while count < most:
        try:
            page = transport.in_time(lambda: next(following, None))
        except TransportError as error:
            raise _listing_refused(error, repo, revision, transport) from None
        if page is None:
            return
        for item in page[: most - count]:
            match item:
                case {"id": str(name)} if _COMMIT.match(name):
                    title, date = (text if isinstance(text := item.get(key), str) else "" for key in ("title", "date"))
                    yield Commit(name, title[:500], moment(date) if len(date) <= 40 else None)
                case _:
                    raise SnapshotError("{} sent a history of {} that is none", transport.host, repo, kind="protocol")
        count += len(page)


def moment(text: str) -> datetime | None:
    """Return a date, with or without a time, in UTC unless it says otherwise; None for an invalid date."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)


@dataclass
class HubSnapshot(Snapshot):
    """The files of one commit on a Hub, by its list. ``refused`` are files whose entries cannot be trusted (their names
    are shown and never used as paths). What ``local`` holds with the same oid is read there."""

    access: Access
    asked: str
    files: Mapping[str, FileEntry]
    refused: tuple[Unread, ...]
    repo: str | None
    revision: str | None
    local: Snapshot | None = None
    _gate: Message | None = None
    _read: dict[str, bytes | Unread] = field(default_factory=dict)
    _headers: dict[str, bytes | Unread] = field(default_factory=dict)
    _remote: dict[str, RemoteFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.label = f"{self.repo} @ {str(self.revision)[:7]}"
        self._name, self._hub = str(self.repo), self.access.hub

    def whole(self, entry: FileEntry) -> bytes | Unread:
        """Return all of a file, checked against the oid of the list."""
        path = entry.path

        def take(headers: Mapping[str, str], body: bytes, host: str) -> bytes:
            if not entry.holds(body):
                page = is_web_page(headers, body)
                what = Message("a web page") if page else Message("other bytes than its list names")
                raise Again("the server sent {} in its place", what)
            return body

        content = self._here(entry, lambda local: local.read(path, entry.size))
        if content is None and path not in self._read:
            self._read[path] = self._ask(path, lambda: self._hub.fetch(self._url(path), entry.size, take))
        return self._read[path] if content is None else content

    def part(self, entry: FileEntry, offset: int, length: int) -> bytes | Unread:
        """Return a part of a file by one request; only the first of a file goes through the Hub's redirect."""
        path = entry.path
        content = self._here(entry, lambda local: local.read_range(path, offset, length))
        if content is not None:
            return content
        remote = self._remote.setdefault(path, RemoteFile(self._hub, self._url(path), entry.size))
        return self._ask(path, lambda: remote.read(offset, length))

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """Return the headers of the files, asked for side by side."""
        waiting: list[FileEntry] = []
        for path in dict.fromkeys(path for path in paths if path not in self._headers):
            entry = self.entry(path)
            if isinstance(entry, Unread):
                self._headers[path] = entry
            elif header := self._here(entry, lambda local, path=path: local.headers([path])[path]):  # type: ignore[misc]
                self._headers[path] = header
            elif self._gate:
                self._headers[path] = Unread(path, self._gate)
            else:
                waiting.append(entry)
        files = [RemoteFile(self._hub, self._url(entry.path), entry.size) for entry in waiting]
        results = read_headers(self._hub, self._name, files, self.access.largest_header)
        for entry, result in zip(waiting, results, strict=True):
            self._headers[entry.path] = self._told(entry.path, result)
        return {path: self._headers[path] for path in paths}

    def _here(self, entry: FileEntry, read: Callable[[Snapshot], Result | Unread]) -> Result | None:
        """Return this machine's copy of a file with the same oid; None without one."""
        twin = self.local.files.get(entry.path) if self.local else None
        content = read(self.local) if self.local and twin and entry.oid and twin.oid == entry.oid else None
        return None if isinstance(content, Unread) else content

    def _url(self, path: str) -> str:
        return f"{self._hub.endpoint}/{self._name}/resolve/{self.revision}/{quote(path)}"

    def _ask(self, path: str, call: Callable[[], Result]) -> Result | Unread:
        return Unread(path, self._gate) if self._gate else self._told(path, self._hub.side_by_side([call])[0])

    def _told(self, path: str, result: Result | TransportError) -> Result | Unread:
        """Return the result, or why the file was not read."""
        if not isinstance(result, TransportError):
            return result
        if result.code == "GatedRepo":
            self._gate = Message("{} is gated: {}", self._name, _gate(self._name, self._hub))
            return Unread(path, self._gate)
        if result.code == "EntryNotFound" or result.status == 404:
            return Unread(path, Message("{} lists it and does not have it (HTTP {})", self._hub.host, result.status))
        return Unread(path, Message("{}: {}", result, result.said) if result.said else said_by(result))


def open_hub(repo: str, revision: str | None, access: Access) -> HubSnapshot:
    """Return the snapshot of a branch, tag, (short) commit or ``refs/pr/N``. Raises :class:`SnapshotError`."""
    if not is_repo_name(repo):
        text = '"{}" is not the name of a repository; give ORG/NAME or a folder'
        raise SnapshotError(text, printable(repo), kind="usage")
    name = revision or "main"
    if not is_revision(name):
        problem = Message('"{}" is not a revision; give a branch, a tag, a commit or refs/pr/N', printable(name))
        raise SnapshotError(problem, kind="usage")
    hub = access.hub
    try:
        return hub.in_time(lambda: ask_for_snapshot(access, repo, name))
    except TransportError as error:
        raise _listing_refused(error, repo, name, hub) from None
