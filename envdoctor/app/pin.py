"""``envdoctor pin``: write down which files of a model this project trains with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envdoctor.app.check import open_matrix
from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Sources, find_lock
from envdoctor.hub.lock import LOCK_NAME, Locked, LockError, lock_entry, lock_text, read_lock
from envdoctor.hub.snapshot import SnapshotError
from envdoctor.hub.sources import open_one, open_reach

__all__ = ["Pinned", "pin"]


@dataclass(frozen=True)
class Pinned:
    """What was written: the text of the lock file, where it belongs, and the entry of the model."""

    path: Path
    text: str
    entry: Locked


def pin(
    repo: str,
    revision: str | None = None,
    *,
    sources: Sources | None = None,
    offline: bool = False,
    timeout: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> Pinned:
    """The lock file of the working directory with this model in it; nothing is written here.

    Raises :class:`UsageProblem` and :class:`JobError`, the latter also when a part of the snapshot cannot be read: a
    lock with holes would later call a change unchanged.
    """
    sources = sources or Sources()
    path = find_lock(sources.cwd) or sources.cwd / LOCK_NAME
    reach = open_reach(
        environ=sources.environ,
        cwd=sources.cwd,
        aliases=open_matrix().part("families", "organisations"),
        offline=offline,
        timeout=timeout,
        cache=sources.cache,
        notice=progress or (lambda text: None),
    )
    try:
        models = read_lock(path)
        snapshot = open_one(repo, revision, reach)
    except LockError as error:
        raise UsageProblem(str(error)) from None
    except SnapshotError as error:
        raise (UsageProblem if error.kind == "usage" else JobError)(str(error)) from None
    entry, unread = lock_entry(snapshot)
    unread = [*snapshot.refused, *unread]
    if unread:
        raise JobError(f"{snapshot.label}: {unread[0].path} could not be read: {unread[0].reason}")
    models[entry.repo] = entry
    return Pinned(path, lock_text(models), entry)
