"""Whether what was looked at on the disk is still as it was."""

from __future__ import annotations

import json
from array import array
from time import time_ns

from envdoctor.text.files import Files, Looks

__all__ = ["add", "same", "settled", "written"]

#: What is written just after it was read may leave the times as they were: clocks of file systems tick slowly.
_TICK, _SLOW_TICK = 50_000_000, 2_000_000_000


def add(looks: Looks, files: dict[str, list[int]], folders: dict[str, list[int]]) -> None:
    """What somebody else looked at, as JSON gives it."""
    for own, others in ((looks.files, files), (looks.folders, folders)):
        for path, (what, changed) in others.items():
            own.setdefault(path, (what, changed))


def settled(looks: Looks, started: int) -> bool:
    """Whether nothing was changed since ``started`` (ns), or so shortly before that a later change might not show."""
    now = time_ns()
    times = [changed for noted in (looks.files, looks.folders) for what, changed in noted.values() if what >= 0]
    return not looks.failed and not any(
        started - (_TICK if time % 1000 else _SLOW_TICK) <= time <= now for time in times
    )


def written(looks: Looks) -> bytes:
    """The looks as bytes, which :func:`same` reads."""
    grouped: dict[str, list[str]] = {}
    for path in looks.files:
        folder, slash, name = path.rpartition("/")
        grouped.setdefault(folder + slash, []).append(name)
    marks = array("q")
    for folder, names in grouped.items():
        for name in names:
            marks.extend(looks.files[folder + name])
    paths = json.dumps([grouped, looks.folders], separators=(",", ":"))
    return paths.encode() + b"\n" + marks.tobytes()


def same(looks: bytes, files: Files) -> bool:
    """Whether all that was written so is as it was. Raises :class:`~envdoctor.text.files.Spent`."""
    paths, _, marks = looks.partition(b"\n")
    grouped, folders = json.loads(paths)
    for path, (names, changed) in folders.items():
        if files.folder_mark(path, (names, changed))[0] != names:
            return False
    now = array("q")
    for folder, inside in grouped.items():
        now.extend(files.marks(folder, inside))
    return now.tobytes() == marks
