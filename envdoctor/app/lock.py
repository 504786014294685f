"""Whether a model's files are those that envdoctor.lock pins, as facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from envdoctor.app.errors import UsageProblem
from envdoctor.facts.values import ABSENT, Fact, Value
from envdoctor.hub.lock import LOCK_NAME, Locked, LockError, compare_lock, locked_model, read_lock
from envdoctor.hub.snapshot import Snapshot

__all__ = ["find_locked", "lock_facts"]


def find_locked(folder: Path, names: Iterable[str | None], aliases: Mapping[str, str]) -> Locked | None:
    """What the lock of the project pins for a model under any of its names. Raises :class:`UsageProblem`."""
    try:
        models = read_lock(folder / LOCK_NAME)
    except LockError as error:
        raise UsageProblem(str(error)) from None
    return locked_model(models, [spelled for name in names if name for spelled in _spellings(name, aliases)])


def lock_facts(locked: Locked | None, snapshot: Snapshot | None) -> list[Fact]:
    """``lock.*``: absent without a lock; without files to compare only the pinned commit is known."""
    if locked is None:
        return [Fact(key, ABSENT, f"no {LOCK_NAME}", "lock") for key in ("lock.revision", "lock.state", "lock.files")]
    revision: Value = locked.revision if locked.revision else ABSENT
    facts = [Fact("lock.revision", revision, LOCK_NAME, "lock")]
    if snapshot is not None:
        state, differing = compare_lock(locked, snapshot)
        facts.append(Fact("lock.state", state, LOCK_NAME, "lock"))
        facts.append(Fact("lock.files", tuple(differing), LOCK_NAME, "lock"))
    return facts


def _spellings(name: str, aliases: Mapping[str, str]) -> list[str]:
    """A repository's name, and the same under its organisation's other name."""
    organisation, slash, model = name.rpartition("/")
    others = [new for old, new in aliases.items() if old.lower() == organisation.lower()]
    others += [old for old, new in aliases.items() if new.lower() == organisation.lower()]
    return [name, *(f"{other}{slash}{model}" for other in others if slash)]
