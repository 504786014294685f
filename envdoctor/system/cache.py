"""Envdoctor's own cache on disk: it reads only entries of this user, writes them whole or not at all, and never fails a
run; and a check whether files and folders that were looked at have changed.

Every failure of the disk is a missing entry.
"""

import marshal
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from time import time_ns

from envdoctor.system.files import NEVER_WAIT, Files, Looks, Mark, digest, read_regular

#: A write just after a read may leave the times as they were: clocks of file systems tick slowly (ns).
_TICK, _SLOW_TICK = 50_000_000, 2_000_000_000


def add_looks(looks: Looks, files: dict[str, list[int]], folders: dict[str, list[int]]) -> None:
    """Add the looks of another process, as JSON gives them."""
    for own, others in ((looks.files, files), (looks.folders, folders)):
        for path, (size, changed) in others.items():
            own.setdefault(path, (size, changed))


def settled(looks: Looks, started: int) -> bool:
    """Return whether nothing changed since ``started`` (ns), or so shortly before that later changes might not show."""
    now = time_ns()
    times = [changed for noted in (looks.files, looks.folders) for size, changed in noted.values() if size >= 0]
    late = any(started - (_TICK if time % 1000 else _SLOW_TICK) <= time <= now for time in times)
    return not (looks.failed or late)


def written_looks(looks: Looks) -> bytes:
    """Write the looks as bytes, which :func:`same_looks` reads: the marks of files by folder and name."""
    inside: dict[str, dict[str, Mark]] = {}
    for path, mark in looks.files.items():
        folder, slash, name = path.rpartition("/")
        inside.setdefault(folder + slash, {})[name] = mark
    return marshal.dumps((looks.folders, inside))


def same_looks(looks: memoryview, files: Files, base: str = os.sep) -> bool:
    """Return whether everything that :func:`written_looks` wrote is unchanged; most of it lies in ``base``, an absolute
    path. Raises :class:`~envdoctor.system.files.Spent`."""
    folders, inside = marshal.loads(looks)  # noqa: S302 (an entry that this user sealed)
    if any(files.folder_mark(path, mark)[0] != mark[0] for path, mark in folders.items()):
        return False
    start, paths, marks = os.path.join(base, ""), list[str](), list[Mark]()
    for folder, names in inside.items():
        below = folder.removeprefix(start)
        paths += [below + name for name in names]
        marks += names.values()
    return files.unchanged(base, paths, marks)


_READ = NEVER_WAIT | getattr(os, "O_NOFOLLOW", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_UNFINISHED = ".new"
_SEAL = 16


def cache_home(environ: Mapping[str, str]) -> str | None:
    """Return envdoctor's cache folder by these variables, which may not exist yet; None if they name no folder."""
    for name, below in (("XDG_CACHE_HOME", ""), ("LOCALAPPDATA", ""), ("HOME", ".cache"), ("USERPROFILE", ".cache")):
        folder = environ.get(name)
        if folder and os.path.isabs(folder) and "\0" not in folder:
            return os.path.join(folder, below, "envdoctor")
    return None


def sealed(data: bytes) -> bytes:
    """Return the data behind its digest: a damaged entry counts as missing."""
    return digest(data) + data


def unsealed(entry: bytes) -> memoryview | None:
    """Return the data of a sealed entry; None if it was changed."""
    data = memoryview(entry)[_SEAL:]
    return data if entry[:_SEAL] == digest(data) else None


class CacheFolder:
    """One kind of entries below ``home`` (envdoctor's cache folder): at most ``most`` files in the folder called
    ``kind``, the newest, and no others; those that a broken-off writer or an older envdoctor left count too. Without a
    home nothing is kept.

    If one of its folders is a link or another user's, nothing below it is read or made. An entry that another user may
    have written counts as missing.
    """

    def __init__(self, home: str | None, kind: str, most: int) -> None:
        self._most, self._folders = most, [home, os.path.join(home, kind)] if home else []

    def read(self, name: str, limit: int) -> memoryview | None:
        """Return the data under this name; None if it is missing, was changed, or is longer than ``limit``."""
        if not self._are_own():
            return None
        try:
            descriptor = os.open(os.path.join(self._folders[-1], name), _READ)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(descriptor)
            is_good = _is_ours(status) and not status.st_mode & 0o022 and status.st_size <= limit + _SEAL
            return unsealed(read_regular(descriptor, limit + _SEAL)) if is_good else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def write(self, name: str, data: bytes) -> None:
        """Keep an entry, and no more than so many."""
        if not self._folders:
            return
        place = os.path.join(self._folders[-1], name)
        temporary = os.path.join(self._folders[-1], f"{os.getpid()}-{time.time_ns()}{_UNFINISHED}")
        try:
            os.makedirs(os.path.dirname(self._folders[0]), exist_ok=True)
            if not self._are_own(make=True):
                return
            descriptor = os.open(temporary, _WRITE, 0o600)
        except (OSError, ValueError):
            return
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(sealed(data))
            os.replace(temporary, place)
        except OSError:
            _remove(temporary)
        self._trim()

    def _trim(self) -> None:
        """Remove all but the newest of this user's files."""
        ages: list[tuple[float, str]] = []
        try:
            with os.scandir(self._folders[-1]) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and _is_ours(status):
                        ages.append((status.st_mtime, entry.path))
        except OSError:
            return
        for _, path in sorted(ages)[: max(0, len(ages) - self._most)]:
            _remove(path)

    def _are_own(self, *, make: bool = False) -> bool:
        """Return whether the folders are real ones of this user; ``make`` adds missing ones."""
        try:
            for folder in self._folders:
                if make and not os.path.lexists(folder):
                    os.mkdir(folder, 0o700)
                status = os.lstat(folder)
                if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
                    return False
        except (OSError, ValueError):
            return False
        return self._folders != []


def _is_ours(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
