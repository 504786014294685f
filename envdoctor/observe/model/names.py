"""What a user's text names: a folder, or a repository and perhaps a revision; the other names of its vendor; and the
files of a repository that are in the Hub cache.

huggingface_hub is not asked: in offline mode it refuses every call, and importing it costs more than a whole check."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import NOT_GIVEN, Unknown, Value
from envdoctor.observe.errors import ObservationError
from envdoctor.system.files import Files
from envdoctor.system.message import Message, MessageError

_LONGEST = 4096
#: The Hub's rule for names (huggingface_hub.utils.validate_repo_id): letters, digits, ``-``, ``_`` and ``.``, no ``-``
#: or ``.`` at either end, no ``--`` or ``..``, at most 96 characters a part.
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?\Z")
#: What git allows in the name of a branch or a tag.
_REVISION = re.compile(r"(?!-)[^\s\x00-\x1f\x7f~^:?*\[\\]{1,255}\Z")
#: A day, or a moment of it, in the place of a revision.
_MOMENT = re.compile(r"@\d{4}-\d{2}-\d{2}[T\d:.+Z-]{0,30}\Z")
#: An address: ``hf://`` as HfFileSystem writes it, a page of a Hub or of a mirror, also without its scheme.
_ADDRESS = re.compile(r"(?:hf://|https?://([^/\s@?#]+)/|((?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com))/)", re.I)
#: What stands between the name of a repository and a revision in the address of a page.
_PAGES = ("tree", "blob", "raw", "resolve", "blame", "edit", "commit", "commits")
#: Servers of models or of code that are no Hub, and what they are called.
_OTHERS = {"modelscope.": "ModelScope", "github.com": "GitHub", "gitee.com": "Gitee", "gitlab.com": "GitLab"}


class NameProblem(MessageError, ValueError):
    """The text names no model. The message is a sentence that begins with the text: what is wrong, what to give."""


class NamedModel(NamedTuple):
    """What a text names: a folder's absolute path, or a repository and perhaps a revision of it."""

    folder: str | None
    repo: str | None
    revision: str | None


def parse_name(text: str, cwd: str, environ: Mapping[str, str]) -> NamedModel:
    """Return what a text names. An existing folder wins over a repository's name; a config.json means its folder.

    Forms: a path, ``ORG/NAME``, ``NAME`` (the oldest models), either with ``@REVISION``, ``hf://ORG/NAME@REVISION``,
    the address of a model's page, file, commit or pull request.
    Raises :class:`NameProblem`.
    """
    shown = printable(text)
    if not text.strip() or "\0" in text or len(text) > _LONGEST:
        raise NameProblem('"{}" is no name: give ORG/NAME or a folder', shown)
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    path = os.path.join(cwd, home + text[1:] if home and re.match(r"~(?:[/\\]|\Z)", text) else text)
    if os.path.isfile(path) and os.path.basename(path) == "config.json":
        path = os.path.dirname(path)
    if os.path.isdir(path):
        return NamedModel(os.path.abspath(path), None, None)
    if os.path.lexists(path):
        problem = Message("is a symbolic link that leads nowhere or in a circle")
        if os.path.exists(path):
            problem = Message("is neither a folder nor a file")
        if os.path.isfile(path):
            problem = Message("is a file: give config.json, or the folder that holds it")
        raise NameProblem("{} {}", shown, problem)
    address = _ADDRESS.match(text)
    name, at, revision = _in_address(text, address, shown) if address else text.partition("@")
    if re.match(r"ms:|modelscope:", text):
        raise NameProblem("{}: {} is not read; download the model and give its folder", shown, "ModelScope")
    if name.count("/") == 2 and not written_as_path(name):
        name = name.removesuffix("/")
    if not is_repo_name(name):
        if "://" not in text and not address and (written_as_path(name) or name.endswith("/") or name.count("/") > 1):
            raise NameProblem("{}: no such folder", shown)
        raise NameProblem(
            "{} is neither a folder nor a repository name (ORG/NAME of letters, digits, '-', '_' and '.')", shown
        )
    if re.fullmatch(r"(?=.*\d)[0-9a-f]{7,40}", name):
        raise NameProblem("{} is a commit: give the model before it, ORG/NAME {}", shown, shown)
    if at and not is_revision(revision) and not _MOMENT.match(revision):
        raise NameProblem("{}: what follows @ is not a revision (a branch, a tag or a commit)", shown)
    return NamedModel(None, name, revision or None)


def is_address(text: str) -> bool:
    """Return whether a text is the address of a page or of a repository, and not a plain name."""
    return _ADDRESS.match(text) is not None


def _in_address(text: str, address: re.Match[str], shown: str) -> tuple[str, str, str]:
    """Return the repository and the revision in an address, and an ``@`` between them if there is one."""
    from urllib.parse import unquote

    host = (address[1] or address[2] or "").lower()
    other = next((name for part, name in _OTHERS.items() if part in host), None)
    if other:
        raise NameProblem("{}: {} is not read; download the model and give its folder", shown, other)
    words = [unquote(word) for word in re.split(r"[?#]", text[address.end() :])[0].strip("/").split("/")]
    if words[0] in ("datasets", "spaces"):
        raise NameProblem("{} is the address of a dataset or a space: give a model", shown)
    words = words[1:] if words[0] == "models" and len(words) > 2 else words
    at = next((number for number, word in enumerate(words[:2]) if "@" in word), None)
    if at is not None:
        last, _, revision = words[at].partition("@")
        size, behind = at + 1, [revision, *words[at + 1 :]]
        words = [*words[:at], last]
    else:
        pages = (*_PAGES, "discussions")
        size = 1 if len(words) > 1 and words[1] in pages else 2
        page = words[size] if len(words) > size else ""
        behind = ["refs", "pr", *words[size + 1 :]] if page == "discussions" else words[size + 1 :]
        behind = behind if page in pages else []
    return "/".join(words[:size]), "@" if behind else "", "/".join(behind[: 3 if behind[:2] == ["refs", "pr"] else 1])


def is_repo_name(name: str) -> bool:
    """Return whether the Hub would accept the name of a repository: ``ORG/NAME`` or ``NAME``."""
    parts = name.split("/")
    if len(parts) > 2 or "--" in name or ".." in name or name.endswith((".git", ".json")):
        return False
    return all(_PART.match(part) for part in parts)


def is_revision(text: str) -> bool:
    """Return whether a branch, a tag or a commit can be called so."""
    return _REVISION.match(text) is not None and ".." not in text


def spellings(repo: str, aliases: Mapping[str, str]) -> list[str]:
    """Return the repository's name, then what the other names of its vendor make of it.

    ``aliases`` maps an organisation, or a whole repository, to its present name; case does not matter there.
    """
    present = {old.lower(): new for old, new in aliases.items()}

    def others(name: str) -> list[str]:
        now = present.get(name.lower(), name)
        former = sorted(old for old, new in aliases.items() if new.lower() == now.lower())
        return sorted({now, *former})

    organisation, slash, name = repo.rpartition("/")
    whole = [other for other in others(repo) if "/" in other]
    moved = [f"{other}/{name}" for other in others(organisation) if "/" not in other] if slash else []
    return list(dict.fromkeys([repo, *whole, *moved]))


def printable(text: str, limit: int = 200) -> str:
    """Return at most ``limit`` of a text, with control, bidirectional and surrogate characters as escapes."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def written_as_path(text: str) -> bool:
    """Return whether a text cannot be the name of a repository or of a revision, because it is written as a path."""
    is_path = text.startswith((".", "/", "~")) or text.endswith(".json") or "\\" in text
    return is_path or re.match("[A-Za-z]:/", text) is not None


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


class _CachedRepo(NamedTuple):
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


def cached_repos(names: Iterable[str], cache: str | None) -> list[_CachedRepo]:
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
    repos: list[_CachedRepo] = []
    present.sort(key=lambda name: folded.index(name.lower()))
    for folder in sorted(present, key=lambda name: exact.index(name) if name in exact else len(exact)):
        place = os.path.join(str(cache), folder)
        snapshots = os.path.join(place, "snapshots")
        if os.path.isdir(snapshots):
            refs = _refs(os.path.join(place, "refs"))
            name = folder.removeprefix("models--").replace("--", "/", 1)
            repos.append(_CachedRepo(refs, tuple(_commits(name, snapshots, refs))))
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
    """Return the model that an ``option`` names; see :func:`parse_name`.

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
