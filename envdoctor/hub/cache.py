"""The local cache of huggingface_hub as snapshots: what was downloaded, and when offline all there is.

``models--ORG--NAME/{refs/<name>, blobs/<etag>, snapshots/<commit>/<path> -> ../../blobs/<etag>, trees/<commit>.json}``.
A link's target is named by the file's oid, so that nothing is hashed; it is read one level only, since blobs may be
links themselves, into a store that all repositories share and that is named by other digests. Since huggingface_hub
1.33 the list of all files of a commit is kept too, with oids of files that were never downloaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from envdoctor.hub.file_names import is_text_about_the_model, refusal_of_name
from envdoctor.hub.header_plan import LARGEST_HEADER
from envdoctor.hub.local_files import digest, lies_below, read_whole
from envdoctor.hub.local_snapshot import LocalSnapshot
from envdoctor.hub.snapshot import FileEntry, Unread
from envdoctor.observe.model.reading.hub_cache import _names as all_names
from envdoctor.observe.model.reading.hub_cache import cache_folder

__all__ = ["Cached", "CachedSnapshot", "cached_snapshots", "open_cached"]

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_DIGEST = re.compile(r"(?:([0-9a-f]{40})|([0-9a-f]{64}))\Z")
_MOST = 1000
_MOST_FILES = 100_000
_TREE_LIMIT = 64 << 20


class Comparable(Protocol):
    """What files can be taken out of."""

    files: Mapping[str, FileEntry]
    refused: tuple[Unread, ...]


class Cached(NamedTuple):
    """A commit in the cache.

    ``repo`` is the name it was downloaded under, ``refs`` the branches and tags that point to it (``main``,
    ``refs/pr/1``), ``used`` when its folder last changed, in seconds since 1970.
    """

    repo: str
    commit: str
    folder: str
    refs: tuple[str, ...]
    used: float


class CachedSnapshot(LocalSnapshot):
    """A commit of the cache. ``complete`` is False where only what was downloaded is known, and not all files of it."""

    def __init__(self, cached: Cached, asked: str, largest_header: int) -> None:
        self.repo: str | None = cached.repo
        self.asked = asked
        self.revision: str | None = cached.commit
        self.label = f"{cached.repo} @ {cached.commit[:7]} (cache)"
        super().__init__(largest_header)
        self._places: dict[str, str] = {}
        self._refused: list[Unread] = []
        place = os.path.dirname(os.path.dirname(cached.folder))
        self._root = os.path.realpath(os.path.dirname(place))
        listed = _listed(os.path.join(place, "trees"), cached.commit)
        files = dict(listed or {})
        self._walk(cached.folder, "", files, listed or {}, 0)
        self.complete = listed is not None
        self.files: Mapping[str, FileEntry] = files
        self.refused: tuple[Unread, ...] = tuple(self._refused)

    def holds(self, path: str) -> bool:
        """Whether the file itself is here, not only its name and oid."""
        return path in self._places

    def leave_out_of(self, other: Comparable) -> None:
        """Take the files that this snapshot knows nothing of out of ``other``: whether they changed cannot be told.

        They become ``refused`` there, except text about the model, which is often not downloaded.
        """
        missing = [path for path in other.files if path not in self.files]
        other.files = {path: entry for path, entry in other.files.items() if path in self.files}
        other.refused += tuple(
            Unread(path, f"whether it changed is not known: it was not downloaded with {self.label}")
            for path in missing
            if not is_text_about_the_model(path)
        )

    def _place(self, path: str) -> str | Unread:
        if path in self._places:
            return self._places[path]
        if path in self.files:
            return Unread(path, "it was never downloaded to this machine")
        return Unread(path, f"it is not among the files of {self.label}")

    def _walk(
        self, folder: str, below: str, files: dict[str, FileEntry], listed: Mapping[str, FileEntry], depth: int
    ) -> None:
        try:
            with os.scandir(os.path.join(folder, below)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)[:_MOST_FILES]
        except OSError as error:
            self._refused.append(Unread(below or ".", f"the folder cannot be read: {error.strerror}"))
            return
        for entry in found:
            path = f"{below}/{entry.name}" if below else entry.name
            if refusal_of_name(path):
                self._refused.append(Unread(ascii(path)[1:-1][:200], str(refusal_of_name(path))))
            elif entry.is_dir(follow_symlinks=False):
                if depth < 32:
                    self._walk(folder, path, files, listed, depth + 1)
            else:
                self._file(entry.path, path, files, listed.get(path))

    def _file(self, place: str, path: str, files: dict[str, FileEntry], listed: FileEntry | None) -> None:
        real = os.path.realpath(place)
        if not lies_below(self._root, real):
            self._refused.append(Unread(path, "it is a link that leads out of the cache"))
            return
        if not os.path.isfile(real):
            # A link to a blob that was deleted, or that is still on its way.
            if listed is None:
                self._refused.append(Unread(path, "its content is gone from the cache"))
            return
        size = os.path.getsize(real)
        if listed is not None and listed.size != size:
            self._refused.append(Unread(path, "the cache holds it with another size than the repository lists"))
            return
        self._places[path] = real
        if listed is None:
            oid = _oid_of_link(place)
            files[path] = FileEntry(path, size, oid or digest(real, size))


def cached_snapshots(
    repo: str, environ: Mapping[str, str], aliases: Mapping[str, str], *, cwd: str = "", moved: str | None = None
) -> list[Cached]:
    """The commits of a repository in the cache that ``environ`` selects, under all names of its vendor.

    Those that a reference points to come first (``main`` before others), then the last used. ``aliases`` maps
    organisations (or whole repositories) to their present names; ``moved`` is the name that the Hub redirected to.
    """
    cache = cache_folder(cwd, environ)
    found: list[Cached] = []
    if cache is None:
        return found
    names = all_names(repo, aliases)
    if moved:
        names += [name for name in all_names(moved, aliases) if name not in names]
    for name in names:
        place = os.path.join(cache, "models--" + name.replace("/", "--"))
        refs = _refs(os.path.join(place, "refs"))
        snapshots = os.path.join(place, "snapshots")
        try:
            with os.scandir(snapshots) as entries:
                folders = sorted(e.name for e in entries if _COMMIT.match(e.name) and e.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for commit in folders[:_MOST]:
            folder = os.path.join(snapshots, commit)
            pointing = tuple(sorted(ref for ref, target in refs.items() if target == commit))
            try:
                used = os.stat(folder).st_mtime
            except OSError:
                continue
            found.append(Cached(name, commit, folder, pointing, used))
    return sorted(found, key=lambda item: ("main" not in item.refs, not item.refs, -item.used))


def open_cached(cached: Cached, asked: str | None = None, *, largest_header: int = LARGEST_HEADER) -> CachedSnapshot:
    """The snapshot of a commit of the cache; ``asked`` is the name that the user gave."""
    return CachedSnapshot(cached, asked or cached.repo, largest_header)


def _refs(folder: str) -> dict[str, str]:
    """Reference → commit. ``refs/pr/3`` lies in ``refs/refs/pr/3``."""
    found: dict[str, str] = {}
    for base, folders, names in os.walk(folder):
        if base.count(os.sep) - folder.count(os.sep) > 6 or len(found) > _MOST:
            folders.clear()
        for name in names:
            path = os.path.join(base, name)
            content = read_whole(path, name, 1024)
            commit = content.decode("ascii", "replace").strip() if isinstance(content, bytes) else ""
            if _COMMIT.match(commit):
                found[os.path.relpath(path, folder).replace(os.sep, "/")] = commit
    return found


def _listed(folder: str, commit: str) -> dict[str, FileEntry] | None:
    """The files of a commit by the list that huggingface_hub keeps (format 1); None where there is none."""
    import json

    content = read_whole(os.path.join(folder, commit + ".json"), commit, _TREE_LIMIT)
    if isinstance(content, Unread):
        return None
    try:
        data = json.loads(content.decode("utf-8"))
        if data["format_version"] != 1:
            return None
        return {path: _entry(path, item) for path, item in data["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        return None


def _entry(path: str, item: Mapping[str, Any]) -> FileEntry:
    """Raises ValueError for what is no entry: then the list as a whole is not believed."""
    lfs, size = item.get("lfs_sha256"), item.get("lfs_size")
    digest_of = lfs if lfs is not None else item["blob_id"]
    match = _DIGEST.match(digest_of)
    size = size if lfs is not None and size is not None else item["size"]
    if refusal_of_name(path) or match is None or type(size) is not int or size < 0 or (lfs is None) != bool(match[1]):
        raise ValueError(path)
    return FileEntry(path, size, f"sha1:{match[1]}" if match[1] else f"sha256:{match[2]}")


def _oid_of_link(place: str) -> str | None:
    try:
        target = os.readlink(place)
    except (OSError, ValueError):
        return None
    match = _DIGEST.match(os.path.basename(target))
    if match is None or os.path.basename(os.path.dirname(target)) != "blobs":
        return None
    return f"sha1:{match[1]}" if match[1] else f"sha256:{match[2]}"
