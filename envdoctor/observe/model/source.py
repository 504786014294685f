"""What ``--model`` means: a folder, or a repository whose files may be in the Hub cache.

huggingface_hub is not asked: in offline mode it refuses every call, and importing it costs more than a whole check."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import NOT_GIVEN, Unknown, Value
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.names import NameProblem, is_repo_name, parse_name, spellings
from envdoctor.system.files import Files
from envdoctor.system.message import Message

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
    """Return the one cache that huggingface_hub would use with these variables, whether or not it exists.

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


def closed_part(folder: str | None) -> str | None:
    """Return the folder itself, or the nearest one above it that is there, if it is a file or cannot be written into;
    else None."""
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder if folder and not (os.path.isdir(folder) and os.access(folder, os.W_OK)) else None


def cached_repos(names: Iterable[str], cache: str | None) -> list[CachedRepo]:
    """Return what the cache holds under each of these names of a repository, in their order; nothing for the others.

    A name counts in any case, as on the Hub (https://github.com/huggingface/huggingface_hub/issues/3838): the cache has
    a folder for every way in which it was typed, and the one that is written like the name comes first.
    """
    exact = list(dict.fromkeys("models--" + name.replace("/", "--") for name in names))
    folded = [name.lower() for name in exact]
    try:
        present = [name for name in os.listdir(cache) if name.lower() in folded] if cache else []
    except OSError:
        return []
    repos: list[CachedRepo] = []
    present.sort(key=lambda name: folded.index(name.lower()))
    for folder in sorted(present, key=lambda name: exact.index(name) if name in exact else len(exact)):
        place = os.path.join(str(cache), folder)
        snapshots = os.path.join(place, "snapshots")
        if os.path.isdir(snapshots):
            refs = _refs(os.path.join(place, "refs"))
            name = folder.removeprefix("models--").replace("--", "/", 1)
            repos.append(CachedRepo(refs, tuple(_commits(name, snapshots, refs))))
    return repos


def matching(commits: Sequence[CachedCommit], revision: str) -> list[CachedCommit]:
    """Return those that a branch, a tag, a commit or the beginning of one (four digits or more) means."""
    chosen = [item for item in commits if revision in item.refs or revision == item.commit]
    if not chosen and _BEGINNING.match(revision):
        chosen = [item for item in commits if item.commit.startswith(revision)]
    return chosen


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
    refs: dict[str, str] = {}
    for base, folders, names in os.walk(folder):
        if base.count(os.sep) - folder.count(os.sep) > _DEEPEST_REFERENCE or len(refs) > _MOST:
            folders.clear()
        for name in names[:_MOST]:
            path = os.path.join(base, name)
            try:
                commit = _FILES.whole(path, 1024).decode("ascii", "replace").strip()
            except OSError:
                continue
            if _COMMIT.match(commit):
                refs[os.path.relpath(path, folder).replace(os.sep, "/")] = commit
    return refs


def commit_of_path(path: str) -> tuple[str | None, str | None]:
    """Repository and commit of a folder inside a Hub cache, from its path; None for what the path does not say."""
    match = _PLACE.search(path.replace("\\", "/"))
    if match is None:
        return None, None
    return match[1].replace("--", "/", 1), match[2] if _COMMIT.match(match[2]) else None


class ModelSource(NamedTuple):
    """A model as given, and its files on this machine.

    ``folder`` is the absolute path of the folder with config.json, or None when no files are here; ``missing`` then
    says why, as a clause for the user. ``repo`` is ``ORG/NAME`` (or a name alone) where it is known, ``revision`` the
    commit of the files where the Hub cache names it: a note inside a folder proves nothing of the files beside it.
    ``origin`` is ``--model`` or names the Hub cache; ``cached`` is True for a folder of the Hub cache, which may hold
    some of the repository's files only.
    """

    given: str
    folder: str | None
    repo: str | None
    revision: str | None
    origin: str
    missing: Message = NOT_GIVEN.reason
    cached: bool = False

    def unread(self, keys: Iterable[str]) -> list[tuple[str, Value, str]]:
        """Return what is found of a model without files on this machine."""
        return [(key, Unknown(self.missing), self.origin) for key in keys]


def resolve(
    model: str,
    *,
    cwd: str,
    environ: Mapping[str, str],
    aliases: Mapping[str, str] | None = None,
    option: str = "--model",
) -> ModelSource:
    """Return the model that an ``option`` names; see :func:`envdoctor.observe.model.names.parse_name`.

    A repository is looked up in the Hub cache that ``environ`` selects. The cache keeps the name of the day of the
    download, so that all names of a vendor are tried: ``aliases`` maps organisations to their present names.

    Raises :class:`ObservationError` for a path where nothing is, and for what can be no repository name.
    """
    try:
        parsed = parse_name(model, cwd, environ)
    except NameProblem as error:
        raise ObservationError("{} {}", option, error) from None
    if parsed.repo is None:
        for path in (str(parsed.folder), os.path.realpath(str(parsed.folder))):
            own, commit = commit_of_path(path)
            if own is not None and is_repo_name(own):
                return ModelSource(model, parsed.folder, own, commit, "--model", cached=True)
        return ModelSource(model, parsed.folder, None, None, "--model")
    repo, revision = parsed.repo, parsed.revision or "main"
    problems: list[Message] = []
    for held in cached_repos(spellings(repo, aliases or {}), cache_folder(cwd, environ)):
        commits = matching(held.commits, revision)
        if len(commits) == 1:
            cached = commits[0]
            origin = Message("Hub cache") if cached.repo == repo else Message("Hub cache, under {}", cached.repo)
            return ModelSource(model, cached.folder, repo, cached.commit, origin, cached=True)
        others = ", ".join(item.commit[:12] for item in held.commits[:3])
        if revision in held.refs:
            problems.append(Message("the Hub cache names a commit for {} and does not hold its files", revision))
        elif others:
            problems.append(Message("the Hub cache holds other revisions: {}; name one with @", others))
        else:
            problems.append(Message("its place in the Hub cache is empty"))
    shown = f"{repo}@{parsed.revision}" if parsed.revision else repo
    reason = f" ({problems[0]})" if problems else ""
    missing = Message("no files of {} on this machine{}; download them or give a folder", shown, reason)
    return ModelSource(model, None, repo, None, "--model", missing)
