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
    """The looks as bytes, which :func:`same` reads: a line for each folder, then the marks of the files in it."""
    inside: dict[str, list[str]] = {}
    for path in looks.files:
        folder, slash, name = path.rpartition("/")
        inside.setdefault(folder + slash, []).append(name)
    lines = [json.dumps((path, *mark), separators=(",", ":")) for path, mark in looks.folders.items()]
    marks = array("q")
    for folder, names in inside.items():
        lines.append(json.dumps((folder, names), separators=(",", ":")))
        for name in names:
            marks.extend(looks.files[folder + name])
    text = "\n".join(lines).encode()
    return b"%08x" % len(text) + text + marks.tobytes()


def same(looks: memoryview, files: Files) -> bool:
    """Whether all that was written so is as it was. Raises :class:`~envdoctor.text.files.Spent`."""
    end = 8 + int(bytes(looks[:8]), 16)
    marks, place = looks[end:], 0
    for path, what, *changed in json.loads(b"[" + bytes(looks[8:end]).replace(b"\n", b",") + b"]"):
        if changed:
            if files.folder_mark(path, (what, *changed))[0] != what:
                return False
            continue
        now = array("q", files.marks(path, what)).tobytes()
        if now != marks[place : place + len(now)]:
            return False
        place += len(now)
    return True
