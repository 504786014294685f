"""Running one comparer in a test, on two snapshots and with the shipped tables."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from observing import shipped

from envdoctor.hub.pickle_reading import Clock
from envdoctor.hub.snapshot import Snapshot
from envdoctor.revision.comparer import Compared, Revisions
from envdoctor.revision.comparing import files_of

__all__ = ["outcome"]


def outcome(comparer: ModuleType | Any, old: Snapshot, new: Snapshot, clock: Clock | None = None) -> Compared:
    """What the comparer says of two snapshots."""
    files = files_of(comparer, sorted(old.files.keys() | new.files.keys()))
    return comparer.compare(Revisions(old, new, shipped(), clock or Clock(), files))
