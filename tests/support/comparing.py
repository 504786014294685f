"""Running one comparer in a test, on two snapshots and with the shipped tables."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from observing import shipped

from envdoctor.hub import Clock, Snapshot
from envdoctor.revision import Compared, files_of
from envdoctor.revision.comparer import Revisions

__all__ = ["outcome"]


def outcome(comparer: ModuleType | Any, old: Snapshot, new: Snapshot, clock: Clock | None = None) -> Compared:
    """What the comparer says of two snapshots."""
    files = files_of(comparer, sorted(old.files.keys() | new.files.keys()))
    return comparer.compare(Revisions(old, new, shipped(), clock or Clock(), files))
