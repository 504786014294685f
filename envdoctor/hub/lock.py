"""``envdoctor.lock``: the revision of each model that a project trains with, and the oid of every file of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread

__all__ = [
    "LOCK_NAME",
    "SCHEMA",
    "LockError",
    "Locked",
    "compare_lock",
    "lock_entry",
    "lock_text",
    "locked_model",
    "read_lock",
]

LOCK_NAME = "envdoctor.lock"
SCHEMA = "envdoctor.lock/1"
_LARGEST = 64 << 20
#: Files that change what is loaded when they are added; others (logs, optimizer states) do not.
_LOADED = (".py", "config.json", ".jinja", ".safetensors", "tokenizer.json", "tokenizer.model")


class LockError(ValueError):
    """The lock file cannot be used; the message names it and what is wrong."""


class Locked(NamedTuple):
    """What is pinned for one model: its name, the commit, the oid of each file, the sha256 of each header."""

    repo: str
    revision: str | None
    files: Mapping[str, str]
    headers: Mapping[str, str]


def read_lock(path: Path) -> dict[str, Locked]:
    """The pinned models by name; empty when there is no such file. Raises :class:`LockError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise LockError(f"{path}: larger than {_LARGEST >> 20} MiB, not read")
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LockError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise LockError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise LockError(f'{path}: "schema": "{SCHEMA}" is expected; `envdoctor pin REPO` writes it')
    models = document.get("models", {})
    if not isinstance(models, dict):
        raise LockError(f"{path}: models: a table is expected")
    return {name: _locked(path, name, entry) for name, entry in models.items()}


def _locked(path: Path, name: str, entry: Any) -> Locked:
    if not isinstance(entry, dict):
        raise LockError(f"{path}: {name}: a table is expected")
    tables = {}
    for key in ("files", "headers"):
        table = entry.get(key, {})
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise LockError(f"{path}: {name}: {key}: a table of texts is expected")
        tables[key] = table
    revision = entry.get("revision")
    if revision is not None and not isinstance(revision, str):
        raise LockError(f"{path}: {name}: revision: a text is expected")
    return Locked(name, revision, tables["files"], tables["headers"])


def locked_model(models: Mapping[str, Locked], names: Iterable[str | None]) -> Locked | None:
    """The entry of the first of these names, compared without regard to case."""
    lowered = {name.lower(): entry for name, entry in models.items()}
    return next((lowered[name.lower()] for name in names if name and name.lower() in lowered), None)


def lock_entry(snapshot: Snapshot) -> tuple[Locked, list[Unread]]:
    """What to pin of a snapshot, and the headers that could not be read."""
    weights = [path for path in snapshot.files if path.endswith(".safetensors")]
    headers: dict[str, str] = {}
    unread: list[Unread] = []
    for path, header in snapshot.headers(weights).items():
        if isinstance(header, Unread):
            unread.append(header)
        else:
            headers[path] = hashlib.sha256(header).hexdigest()
    files = {path: entry.oid for path, entry in sorted(snapshot.files.items()) if entry.oid is not None}
    return Locked(snapshot.repo or snapshot.asked, snapshot.revision, files, headers), unread


def lock_text(models: Mapping[str, Locked]) -> str:
    """The text of a lock file with these models, sorted, so that a change shows as a short difference."""
    document = {
        "schema": SCHEMA,
        "models": {
            name: {
                **({"revision": entry.revision} if entry.revision else {}),
                "files": dict(sorted(entry.files.items())),
                "headers": dict(sorted(entry.headers.items())),
            }
            for name, entry in sorted(models.items())
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def compare_lock(locked: Locked, snapshot: Snapshot) -> tuple[str, list[str]]:
    """The state of a snapshot beside its lock, and the files that differ.

    ``same``: every pinned file that is there has its oid, and no other that is loaded was added. ``changed``: it says
    to be the pinned commit and files differ. ``moved``: another commit. Files whose oid is not known are compared by
    their header. A pinned file that is not there was perhaps never downloaded; loading without it says so by itself.
    """
    differing: list[str] = []
    unsure: list[str] = []
    for path in sorted(locked.files.keys() | snapshot.files.keys()):
        entry, wanted = snapshot.files.get(path), locked.files.get(path)
        if entry is None:
            continue
        if wanted is None:
            if path.endswith(_LOADED):
                differing.append(path)
        elif entry.oid is None or entry.oid.partition(":")[0] != wanted.partition(":")[0]:
            unsure.append(path)
        elif entry.oid != wanted:
            differing.append(path)
    for path, header in snapshot.headers([path for path in unsure if path in locked.headers]).items():
        if isinstance(header, Unread) or hashlib.sha256(header).hexdigest() != locked.headers[path]:
            differing.append(path)
    if snapshot.revision and locked.revision and snapshot.revision != locked.revision:
        return "moved", sorted(differing)
    return ("changed" if differing else "same"), sorted(differing)
