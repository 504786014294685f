"""Whether what was looked at on the disk is still as it was."""

import os
from array import array
from time import time_ns

from envdoctor.system.files import Files, Looks

#: What is written just after it was read may leave the times as they were: clocks of file systems tick slowly.
_TICK, _SLOW_TICK = 50_000_000, 2_000_000_000
_HALF = 1 << 63  # a digest stands in two numbers


def add(looks: Looks, files: dict[str, list[int]], folders: dict[str, list[int]]) -> None:
    """Add the looks of another process, as JSON gives them."""
    for own, others in ((looks.files, files), (looks.folders, folders)):
        for path, (what, changed) in others.items():
            own.setdefault(path, (what, changed))


def settled(looks: Looks, started: int) -> bool:
    """Return whether nothing changed since ``started`` (ns), or so shortly before that later changes might not show."""
    now = time_ns()
    times = [changed for noted in (looks.files, looks.folders) for what, changed in noted.values() if what >= 0]
    late = any(started - (_TICK if time % 1000 else _SLOW_TICK) <= time <= now for time in times)
    return not (looks.failed or late)


def written(looks: Looks) -> bytes:
    """Write the looks as bytes, which :func:`same` reads: their paths, then all marks in that order."""
    inside: dict[str, list[str]] = {}
    for path in looks.files:
        folder, slash, name = path.rpartition("/")
        inside.setdefault(folder + slash, []).append(name)
    parts = [str(len(looks.folders)), *looks.folders]
    marks = array("q", (number for what, when in looks.folders.values() for number in (*divmod(what, _HALF), when)))
    for folder, names in inside.items():
        parts += (folder, "/".join(names))
        for name in names:
            marks.extend(looks.files[folder + name])
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return b"%08x" % len(text) + text + marks.tobytes()


def same(looks: memoryview, files: Files, base: str = os.sep) -> bool:
    """Return whether everything that :func:`written` wrote is unchanged; most of it lies in ``base``, an absolute path.
    Raises :class:`~envdoctor.system.files.Spent`."""
    end = 8 + int(bytes(looks[:8]), 16)
    numbers = array("q")
    numbers.frombytes(looks[end:])
    count, *parts = str(looks[8:end], "utf-8", "surrogatepass").split("\0")
    folders, holders = parts[: int(count)], parts[int(count) :]
    start, paths = os.path.join(base, ""), list[str]()
    for folder, names in zip(holders[::2], holders[1::2], strict=True):
        folder = folder.removeprefix(start)
        paths += [folder + name for name in names.split("/")]
    of_folders, of_files = numbers[: 3 * len(folders)], numbers[3 * len(folders) :]
    if len(of_files) != 2 * len(paths):
        return False
    for path, high, low, when in zip(folders, of_folders[::3], of_folders[1::3], of_folders[2::3], strict=True):
        if files.folder_mark(path, (high * _HALF + low, when))[0] != high * _HALF + low:
            return False
    return files.unchanged(base, paths, of_files[::2], of_files[1::2])
