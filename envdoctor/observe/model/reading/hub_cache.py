"""The Hub cache on disk, read as huggingface_hub lays it out: ``models--ORG--NAME/{refs,snapshots}``.

The client itself is not asked: in offline mode it refuses every call, and importing it costs more than the whole check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.observe.model.reading.model_file import read_bytes

__all__ = ["Snapshot", "cache_folder", "download_revision", "find_snapshot", "snapshot_of_path"]

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_MAX_SNAPSHOTS = 1000


class Snapshot(NamedTuple):
    """A snapshot's folder, its commit and where it was found; without a folder ``missing`` says why, as a clause."""

    folder: str | None
    revision: str | None
    origin: str
    missing: str = ""


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


def find_snapshot(
    repo: str, revision: str, *, cwd: str, environ: Mapping[str, str], aliases: Mapping[str, str]
) -> Snapshot:
    """The cached files of a repository at a revision (empty: ``main``), under its own name or another of its vendor."""
    cache = cache_folder(cwd, environ)
    problems: list[str] = []
    if cache is not None and os.path.isdir(cache):
        for name in _names(repo, aliases):
            place = os.path.join(cache, "models--" + name.replace("/", "--"))
            if not os.path.isdir(os.path.join(place, "snapshots")):
                continue
            folder, problem = _snapshot(place, revision or "main")
            if folder is not None:
                origin = "Hub cache" if name == repo else f"Hub cache, under {name}"
                commit = os.path.basename(folder)
                return Snapshot(folder, commit if _COMMIT.match(commit) else None, origin)
            problems.append(problem)
    shown = f"{repo}@{revision}" if revision else repo
    why = f" ({problems[0]})" if problems else ""
    return Snapshot(None, None, "", f"no files of {shown} on this machine{why}; download them or give a folder")


def _names(repo: str, aliases: Mapping[str, str]) -> list[str]:
    """The repository's name, then what its vendor's other names would make of it."""
    organisation, slash, name = repo.rpartition("/")
    present = aliases.get(organisation, organisation)
    vendor = {present} | {old for old, new in aliases.items() if new == present}
    names = [f"{other}{slash}{name}" for other in sorted(vendor) if "/" not in other] if slash else []
    renamed = aliases.get(repo, repo)
    whole = {renamed} | {old for old, new in aliases.items() if new == renamed and "/" in old}
    return list(dict.fromkeys([repo, *sorted(whole), *names]))


def _snapshot(place: str, revision: str) -> tuple[str | None, str]:
    """The folder of a revision below ``models--ORG--NAME``, or why there is none."""
    snapshots = os.path.join(place, "snapshots")
    present = _folders(snapshots)
    # A reference is a file with the commit in it; "refs/pr/3" lies in refs/refs/pr/3.
    content = read_bytes(os.path.join(place, "refs"), revision, 1024)
    commit = "" if isinstance(content, Unknown) else content.decode("ascii", "replace").strip()
    if commit:
        if commit in present:
            return os.path.join(snapshots, commit), ""
        return None, f"the Hub cache names a commit for {revision} and does not hold its files"
    matches = [name for name in present if name == revision]
    if not matches and re.match(r"[0-9a-f]{7,40}\Z", revision):
        matches = [name for name in present if name.startswith(revision)]
    if len(matches) == 1:
        return os.path.join(snapshots, matches[0]), ""
    if not present:
        return None, "its place in the Hub cache is empty"
    listed = ", ".join(name[:12] for name in present[:3] if re.match(r"[\w.-]+\Z", name))
    return None, f"the Hub cache holds other revisions: {listed}; name one with @"


def _folders(place: str) -> list[str]:
    found: list[str] = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if len(found) == _MAX_SNAPSHOTS:
                    break
                if entry.is_dir():
                    found.append(entry.name)
    except OSError:
        return []
    return sorted(found)


def snapshot_of_path(path: str) -> tuple[str | None, str | None]:
    """Repository and commit of a folder inside a Hub cache, from its path; None for what the path does not say."""
    parts = path.replace("\\", "/").split("/")
    for index in range(len(parts) - 2):
        if parts[index].startswith("models--") and parts[index + 1] == "snapshots":
            commit = parts[index + 2]
            repo = parts[index].removeprefix("models--").replace("--", "/", 1)
            return repo, commit if _COMMIT.match(commit) else None
    return None, None


def download_revision(folder: str) -> str | None:
    """The commit that ``hf download --local-dir`` noted for config.json, unless the file was changed afterwards.

    The note has three lines: commit, etag, time of the download in seconds; one second of difference is allowed, as
    in huggingface_hub.
    """
    content = read_bytes(folder, os.path.join(".cache", "huggingface", "download", "config.json.metadata"), 4096)
    if isinstance(content, Unknown):
        return None
    lines = content.decode("ascii", "replace").split("\n")
    try:
        changed = os.stat(os.path.join(folder, "config.json")).st_mtime
        if _COMMIT.match(lines[0]) and changed - 1 <= float(lines[2]):
            return lines[0]
    except (IndexError, OSError, ValueError):
        return None
    return None
