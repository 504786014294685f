"""The files of a revision as a Hub lists them, checked item by item."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from envdoctor.hub.object_ids import oid_of_digest
from envdoctor.hub.snapshot import FileEntry, Unread, refusal_of_name
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError
from envdoctor.models.names import printable
from envdoctor.text.message import Message

MOST_FILES = 100_000
_LISTING_LIMIT = 48 << 20
_PAGE_LIMIT = 8 << 20
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_NAME = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?\Z", re.ASCII)
_MOST_REFUSED = 100


class Listing(NamedTuple):
    """A revision of a repository: its present name, its commit, its files, and the items that were refused."""

    repo: str
    commit: str
    files: Mapping[str, FileEntry]
    refused: tuple[Unread, ...]


def fetch_listing(transport: Transport, repo: str, revision: str) -> Listing:
    """The listing of a revision in one request; in one more a page where the server's list has no oids.

    Raises :class:`TransportError`.
    """
    known = transport.moved.get(repo, repo)
    url = f"{transport.endpoint}/api/models/{known}/revision/{quote(revision, safe='')}?blobs=true"
    data, _ = transport.fetch_json(url, _LISTING_LIMIT)
    if not isinstance(data, dict):
        raise _odd(transport, "the description of a repository")
    name = data.get("id")
    present = name if isinstance(name, str) and _NAME.match(name) else known
    if present != repo:
        transport.moved[repo] = present
    commit = data.get("sha")
    if not isinstance(commit, str) or not _COMMIT.match(commit):
        if not _COMMIT.match(revision):
            raise _odd(transport, "a commit")
        commit = revision
    siblings = data.get("siblings")
    if not isinstance(siblings, list):
        raise _odd(transport, "a list of files")
    if siblings and not any(isinstance(s, dict) and (s.get("blobId") or s.get("lfs")) for s in siblings):
        siblings = list(_tree(transport, present, commit))
    if len(siblings) > MOST_FILES:
        raise TransportError(
            "{} lists {} files; at most {} are compared", repo, f"{len(siblings):,}", f"{MOST_FILES:,}", kind="protocol"
        )
    files, refused = check_items(siblings)
    return Listing(present, commit, files, refused)


def _odd(transport: Transport, what: str) -> TransportError:
    return TransportError("{} did not send {}: it is no Hub, or a broken mirror", transport.host, what, kind="protocol")


def _tree(transport: Transport, repo: str, commit: str) -> Iterable[Any]:
    """The recursive tree, page by page, as siblings."""
    url = f"{transport.endpoint}/api/models/{repo}/tree/{commit}?recursive=true"
    for page in pages(transport, url, most=MOST_FILES):
        for item in page:
            if isinstance(item, dict) and item.get("type") == "file":
                yield {"rfilename": item.get("path"), "blobId": item.get("oid"), **item}


def pages(transport: Transport, url: str, *, most: int) -> Iterable[list[Any]]:
    """The pages of a list, up to the one that passes ``most`` items. Raises :class:`TransportError`."""
    seen = 0
    asked: set[str] = set()
    while url and seen <= most:
        if url in asked or not url.startswith(transport.endpoint + "/"):
            raise _odd(transport, "a sane address of the next page")
        asked.add(url)
        page, answer = transport.fetch_json(url, _PAGE_LIMIT)
        if not isinstance(page, list):
            raise _odd(transport, Message("a list"))
        yield page
        seen += len(page)
        following = _NEXT.search(answer.headers.get("link", ""))
        url = following[1] if following else ""


def check_items(siblings: Iterable[Any]) -> tuple[dict[str, FileEntry], tuple[Unread, ...]]:
    """The files of a list that can be trusted, and the items that cannot: the first hundred by name."""
    files: dict[str, FileEntry] = {}
    refused: list[Unread] = []
    left_out = 0
    for item in siblings:
        path = item.get("rfilename") if isinstance(item, dict) else None
        reason = refusal_of_name(path)
        entry = None if reason else _entry(str(path), item)
        if entry is None:
            reason = reason or Message("the list gives it no size")
        elif entry.path in files:
            reason = Message("it is listed twice")
        else:
            files[entry.path] = entry
        if reason and len(refused) < _MOST_REFUSED:
            shown = printable(path) if isinstance(path, str) else "a file without a name"
            refused.append(Unread(shown, reason))
        elif reason:
            left_out += 1
    if left_out:
        reason = Message("their names or entries are not valid either")
        refused.append(Unread(Message("{} more files", f"{left_out:,}"), reason))
    return files, tuple(refused)


def _entry(path: str, item: Mapping[str, Any]) -> FileEntry | None:
    lfs, size, digest = item.get("lfs"), item.get("size"), item.get("blobId")
    if isinstance(lfs, dict):
        digest, size = lfs.get("sha256") or lfs.get("oid"), lfs.get("size", size)
    oid = oid_of_digest(digest.removeprefix("sha256:") if isinstance(digest, str) else None)
    if oid is not None and oid.startswith("sha256:") != isinstance(lfs, dict):
        oid = None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 63:
        return None
    return FileEntry(path, size, oid)
