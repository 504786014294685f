"""What was looked at on the disk, and whether it is still as it was."""

from __future__ import annotations

import json
from array import array
from time import time_ns

from envdoctor.text.files import Files

__all__ = ["Looks", "Mark", "same"]

#: As :meth:`Files.mark` and :meth:`Files.folder_mark` make them.
Mark = tuple[int, int]

#: What is written just after it was read may leave the times as they were: clocks of file systems tick slowly.
_TICK, _SLOW_TICK = 50_000_000, 2_000_000_000


class Looks:
    """Files and folders by their paths as they were when they were looked at (:attr:`Files.looks` notes them).
    ``failed``: somebody did not come to an end with them, and another time may."""

    __slots__ = ("failed", "files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, Mark] = {}
        self.folders: dict[str, Mark] = {}
        self.failed = False

    def add(self, files: dict[str, list[int]], folders: dict[str, list[int]]) -> None:
        """What somebody else looked at."""
        for own, others in ((self.files, files), (self.folders, folders)):
            for path, (what, changed) in others.items():
                own.setdefault(path, (what, changed))

    def settled(self, started: int) -> bool:
        """Whether nothing was changed since ``started`` (ns), or so shortly before that a later change might not
        show."""
        now = time_ns()
        times = [changed for noted in (self.files, self.folders) for what, changed in noted.values() if what >= 0]
        return not self.failed and not any(
            started - (_TICK if time % 1000 else _SLOW_TICK) <= time <= now for time in times
        )

    def written(self) -> bytes:
        """As bytes, which :func:`same` reads."""
        grouped: dict[str, list[str]] = {}
        for path in self.files:
            folder, slash, name = path.rpartition("/")
            grouped.setdefault(folder + slash, []).append(name)
        marks = array("q")
        for folder, names in grouped.items():
            for name in names:
                marks.extend(self.files[folder + name])
        paths = json.dumps([grouped, self.folders], separators=(",", ":"))
        return paths.encode() + b"\n" + marks.tobytes()


def same(written: bytes, files: Files) -> bool:
    """Whether all of it is as it was. Raises ``ValueError`` for what is not written so."""
    paths, _, marks = written.partition(b"\n")
    grouped, folders = json.loads(paths)
    for path, (names, changed) in folders.items():
        if files.folder_mark(path, (names, changed))[0] != names:
            return False
    now = array("q")
    for folder, inside in grouped.items():
        now.extend(files.marks(folder, inside))
    return now.tobytes() == marks
