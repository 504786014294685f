"""The Hub cache on disk, read as huggingface_hub lays it out: ``models--ORG--NAME/{refs,snapshots}``.

The client itself is not asked: in offline mode it refuses every call, and importing it costs more than the whole check.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.system.files import Files

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_BEGINNING = re.compile(r"[0-9a-f]{4,39}\Z")
_PLACE = re.compile(r"(?:\A|/)models--([^/]*)/snapshots/([^/]*)")
_MOST = 1000
_DEEPEST_REFERENCE = 6
_FILES = Files()


class CachedCommit(NamedTuple):
    """A commit whose files are in the cache.

    ``repo`` is the name it was downloaded under, ``refs`` the branches and tags that point to it (``main``,
    ``refs/pr/1``), ``used`` when its folder last changed, in seconds since 1970.
    """

    repo: str
    commit: str
    folder: str
    refs: tuple[str, ...] = ()
    used: float = 0.0


class CachedRepo(NamedTuple):
    """What the cache holds of a repository under one name; ``refs`` (name to commit) may name commits that are gone."""

    refs: Mapping[str, str]
    commits: tuple[CachedCommit, ...]


def cache_folder(cwd: str, environ: Mapping[str, str]) -> str | None:
    """The one cache that huggingface_hub would use with these variables, whether or not it exists.

    HF_HUB_CACHE (or its former name) wins over HF_HOME, which wins over XDG_CACHE_HOME, which wins over ~/.cache.
    """
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        folder = environ.get(name)
        if folder and "\0" not in folder:
            if folder == "~" or folder.startswith("~/"):
                folder = home + folder[1:]
            return os.path.join(cwd, folder, below) if below else os.path.join(cwd, folder)
    return os.path.join(home, ".cache", "huggingface", "hub") if home else None


def cached_repos(names: Iterable[str], cache: str | None) -> list[CachedRepo]:
    """What the cache holds under each of these names of a repository, in their order; nothing for the others.

    A name counts in any case, as on the Hub (https://github.com/huggingface/huggingface_hub/issues/3838): the cache has
    a folder for every way in which it was typed, and the one that is written like the name comes first.
    """
    names = dict.fromkeys("models--" + name.replace("/", "--") for name in names)
    lower = {name.lower() for name in names}
    try:
        present = [name for name in os.listdir(cache or "") if name.lower() in lower] if cache else []
    except OSError:
        return []
    found: list[CachedRepo] = []
    for folder in sorted(present, key=lambda folder: _rank(folder, list(names))):
        place = os.path.join(str(cache), folder)
        snapshots = os.path.join(place, "snapshots")
        if os.path.isdir(snapshots):
            refs = _refs(os.path.join(place, "refs"))
            name = folder.removeprefix("models--").replace("--", "/", 1)
            found.append(CachedRepo(refs, tuple(_commits(name, snapshots, refs))))
    return found


def _rank(folder: str, names: Sequence[str]) -> tuple[int, int]:
    """The first of the names that a folder is, and then the first that it is in another case."""
    exact = names.index(folder) if folder in names else len(names)
    return exact, [name.lower() for name in names].index(folder.lower())


def matching(commits: Sequence[CachedCommit], revision: str) -> list[CachedCommit]:
    """Those that a branch, a tag, a commit or the beginning of one (four digits or more) means."""
    found = [item for item in commits if revision in item.refs or revision == item.commit]
    if not found and _BEGINNING.match(revision):
        found = [item for item in commits if item.commit.startswith(revision)]
    return found


def _commits(name: str, snapshots: str, refs: Mapping[str, str]) -> Iterator[CachedCommit]:
    try:
        with os.scandir(snapshots) as entries:
            present = sorted(e.name for e in entries if _COMMIT.match(e.name) and e.is_dir(follow_symlinks=False))
    except OSError:
        return
    for commit in present[:_MOST]:
        folder = os.path.join(snapshots, commit)
        pointing = tuple(sorted(ref for ref, target in refs.items() if target == commit))
        try:
            yield CachedCommit(name, commit, folder, pointing, _FILES.status(folder).st_mtime)
        except OSError:
            pass  # it was deleted just now


def _refs(folder: str) -> dict[str, str]:
    """Reference to commit, each a file with the commit in it; ``refs/pr/3`` lies in ``refs/refs/pr/3``."""
    found: dict[str, str] = {}
    for base, folders, names in os.walk(folder):
        if base.count(os.sep) - folder.count(os.sep) > _DEEPEST_REFERENCE or len(found) > _MOST:
            folders.clear()
        for name in names[:_MOST]:
            path = os.path.join(base, name)
            try:
                commit = _FILES.whole(path, 1024).decode("ascii", "replace").strip()
            except OSError:
                continue
            if _COMMIT.match(commit):
                found[os.path.relpath(path, folder).replace(os.sep, "/")] = commit
    return found


def commit_of_path(path: str) -> tuple[str | None, str | None]:
    """Repository and commit of a folder inside a Hub cache, from its path; None for what the path does not say."""
    match = _PLACE.search(path.replace("\\", "/"))
    if match is None:
        return None, None
    return match[1].replace("--", "/", 1), match[2] if _COMMIT.match(match[2]) else None
