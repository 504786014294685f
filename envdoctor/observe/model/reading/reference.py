"""What ``--model`` means: a folder, a configuration file, or a repository whose files may be in the Hub cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from envdoctor.observe.model.reading.hub_cache import download_revision, find_snapshot, snapshot_of_path
from envdoctor.observe.model.reading.model_error import ModelError
from envdoctor.observe.model.reading.source import ModelSource

__all__ = ["is_repo_name", "resolve"]

#: The Hub's rule for names (huggingface_hub.utils.validate_repo_id): letters, digits, ``-``, ``_`` and ``.``, no ``-``
#: or ``.`` at either end, no ``--`` or ``..``, at most 96 characters a part.
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?\Z")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,249}\Z")
_URL = re.compile(r"https?://[^/\s@]+/((?!datasets/|spaces/)[\w.-]+/[\w.-]+)(?:/tree/[^\s]*)?/?\Z")


def resolve(
    model: str, *, cwd: str, environ: Mapping[str, str], aliases: Mapping[str, str] | None = None
) -> ModelSource:
    """The model that ``--model`` names.

    A local folder wins over a repository name; the path of a ``config.json`` means its folder. A repository is written
    ``ORG/NAME``, ``NAME`` (the oldest models) or either with ``@REVISION`` (branch, tag, commit or the beginning of
    one), and is looked up in the Hub cache that ``environ`` selects. ``aliases`` maps an organisation (or a whole
    repository) to its present name; the cache keeps the name of the day of the download, so that all names of one
    vendor are tried.

    Raises :class:`ModelError` for a path where nothing is, and for what can be no repository name.
    """
    if not model.strip() or "\0" in model:
        raise ModelError("--model is empty: give ORG/NAME or a folder")
    path = os.path.join(cwd, _expand(model, environ)) if len(model) <= 4096 else ""
    local = _local(model, path)
    if local is not None:
        return local
    name, at, revision = model.partition("@")
    if not is_repo_name(name):
        raise _no_model(model, name)
    if at and (not _REVISION.match(revision) or ".." in revision):
        raise ModelError(f"--model {model}: what follows @ is not a revision (a branch, a tag or a commit)")
    found = find_snapshot(name, revision, cwd=cwd, environ=environ, aliases=aliases or {})
    return ModelSource(
        given=model,
        folder=found.folder,
        repo=name,
        revision=found.revision,
        origin=found.origin if found.folder else "--model",
        missing=found.missing,
        cached=found.folder is not None,
    )


def is_repo_name(name: str) -> bool:
    """Whether the Hub would accept the name of a repository: ``ORG/NAME`` or ``NAME``."""
    parts = name.split("/")
    if len(parts) > 2 or "--" in name or ".." in name or name.endswith((".git", ".json")):
        return False
    return all(_PART.match(part) for part in parts)


def _expand(model: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if home and (model == "~" or model.startswith(("~/", "~\\"))):
        return home + model[1:]
    return model


def _local(model: str, path: str) -> ModelSource | None:
    """The source when something is at the path, None when nothing is."""
    if os.path.isdir(path):
        return _folder(model, os.path.abspath(path))
    if os.path.isfile(path):
        if os.path.basename(path) != "config.json":
            raise ModelError(f"--model {model} is a file: give config.json, or the folder that holds it")
        return _folder(model, os.path.dirname(os.path.abspath(path)))
    if os.path.islink(path):
        raise ModelError(f"--model {model} is a symbolic link that leads nowhere or in a circle")
    if os.path.exists(path):
        raise ModelError(f"--model {model} is neither a folder nor a file")
    return None


def _folder(model: str, folder: str) -> ModelSource:
    for path in (folder, os.path.realpath(folder)):
        repo, revision = snapshot_of_path(path)
        if repo is not None and is_repo_name(repo):
            return ModelSource(model, folder, repo, revision, "--model", cached=True)
    return ModelSource(model, folder, None, download_revision(folder), "--model")


def _no_model(model: str, name: str) -> ModelError:
    url = _URL.match(model)
    if url and is_repo_name(url.group(1)):
        return ModelError(f"--model {model}: give the repository by its name: --model {url.group(1)}")
    if len(model) <= 4096 and _looks_like_path(name):
        return ModelError(f"--model {model}: no such folder")
    return ModelError(
        f"--model {model} is neither a folder nor a repository name (ORG/NAME of letters, digits, '-', '_' and '.')"
    )


def _looks_like_path(text: str) -> bool:
    return bool(
        text.startswith((".", "/", "~"))
        or "\\" in text
        or text.count("/") > 1
        or text.endswith(("/", ".json"))
        or re.match(r"[A-Za-z]:[\\/]", text)
    )
