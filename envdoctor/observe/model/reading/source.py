"""What ``--model`` means: a folder, or a repository whose files may be in the Hub cache."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.facts.values import NOT_GIVEN, Fact, Unknown
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.hub_cache import CachedCommit, cache_folder, cached_repos, commit_of_path, matching
from envdoctor.observe.model.reading.names import NameProblem, is_repo_name, parse_name, spellings
from envdoctor.system.message import Message


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

    def unread(self, keys: tuple[str, ...]) -> list[Fact]:
        """The facts of a model without files on this machine."""
        return [Fact(key, Unknown(self.missing), self.origin, "model") for key in keys]


def resolve(
    model: str,
    *,
    cwd: str,
    environ: Mapping[str, str],
    aliases: Mapping[str, str] | None = None,
    option: str = "--model",
) -> ModelSource:
    """The model that an ``option`` names; see :func:`envdoctor.observe.model.reading.names.parse_name`.

    A repository is looked up in the Hub cache that ``environ`` selects. The cache keeps the name of the day of the
    download, so that all names of a vendor are tried: ``aliases`` maps organisations to their present names.

    Raises :class:`ObservationError` for a path where nothing is, and for what can be no repository name.
    """
    try:
        named = parse_name(model, cwd, environ)
    except NameProblem as error:
        raise ObservationError("{} {}", option, error) from None
    if named.repo is None:
        return _folder(model, str(named.folder))
    repo, revision = named.repo, named.revision or "main"
    problems: list[Message] = []
    for held in cached_repos(spellings(repo, aliases or {}), cache_folder(cwd, environ)):
        found = matching(held.commits, revision)
        if len(found) == 1:
            origin = Message("Hub cache") if found[0].repo == repo else Message("Hub cache, under {}", found[0].repo)
            return ModelSource(model, found[0].folder, repo, found[0].commit, origin, cached=True)
        lost = Message("the Hub cache names a commit for {} and does not hold its files", revision)
        problems.append(lost if revision in held.refs else _instead(held.commits))
    shown = f"{repo}@{named.revision}" if named.revision else repo
    why = f" ({problems[0]})" if problems else ""
    missing = Message("no files of {} on this machine{}; download them or give a folder", shown, why)
    return ModelSource(model, None, repo, None, "--model", missing)


def _instead(commits: tuple[CachedCommit, ...]) -> Message:
    if not commits:
        return Message("its place in the Hub cache is empty")
    listed = ", ".join(item.commit[:12] for item in commits[:3])
    return Message("the Hub cache holds other revisions: {}; name one with @", listed)


def _folder(model: str, folder: str) -> ModelSource:
    for path in (folder, os.path.realpath(folder)):
        repo, revision = commit_of_path(path)
        if repo is not None and is_repo_name(repo):
            return ModelSource(model, folder, repo, revision, "--model", cached=True)
    return ModelSource(model, folder, None, None, "--model")
