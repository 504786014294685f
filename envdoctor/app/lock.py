"""Whether a model's files are those that envdoctor.lock pins, as facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from envdoctor.app.errors import UsageProblem
from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.hub.lock import LOCK_NAME, Locked, LockError, compare_lock, locked_model, read_lock
from envdoctor.hub.snapshot import Snapshot

__all__ = ["find_locked", "lock_facts"]

_KEYS = ("lock.revision", "lock.state", "lock.files")


def find_locked(lock: Path | None, names: Iterable[str | None], aliases: Mapping[str, str]) -> Locked | None:
    """What a lock pins for a model under any of its names; a folder without a name is the only model there is.

    Raises :class:`UsageProblem`.
    """
    if lock is None:
        return None
    try:
        models = read_lock(lock)
    except LockError as error:
        raise UsageProblem(str(error)) from None
    known = [name for name in names if name]
    found = locked_model(models, [spelled for name in known for spelled in _spellings(name, aliases)])
    if found is None and not known and len(models) == 1:
        return next(iter(models.values()))
    return found


def lock_facts(lock: Path | None, locked: Locked | None, snapshot: Snapshot | None) -> list[Fact]:
    """``lock.*``: absent without a lock, unknown when it does not pin this model or there are no files to compare."""
    if lock is None:
        return [Fact(key, ABSENT, f"no {LOCK_NAME}", "lock") for key in _KEYS]
    if locked is None:
        reason = Unknown(f"{LOCK_NAME} pins no model of this name")
        return [Fact(key, reason, LOCK_NAME, "lock") for key in _KEYS]
    revision: Value = locked.revision if locked.revision else ABSENT
    facts = [Fact("lock.revision", revision, LOCK_NAME, "lock")]
    if snapshot is None:
        reason = Unknown("no files of the model are at hand to compare with the lock")
        return facts + [Fact(key, reason, LOCK_NAME, "lock") for key in _KEYS[1:]]
    state, differing = compare_lock(locked, snapshot)
    return [
        *facts,
        Fact("lock.state", state, LOCK_NAME, "lock"),
        Fact("lock.files", tuple(differing), LOCK_NAME, "lock"),
    ]


def _spellings(name: str, aliases: Mapping[str, str]) -> list[str]:
    """A repository's name, and the same under its organisation's other name."""
    organisation, slash, model = name.rpartition("/")
    others = [new for old, new in aliases.items() if old.lower() == organisation.lower()]
    others += [old for old, new in aliases.items() if new.lower() == organisation.lower()]
    return [name, *(f"{other}{slash}{model}" for other in others if slash)]
