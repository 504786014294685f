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
    """One kind of entries below ``home`` (envdoctor's cache folder): files in the folder called ``kind``, whose names
    may hold one more folder (``ab/abcdef``). Without a home nothing is kept; with ``most``, only so many entries of
    each ending, the newest.

    If one of its folders is a link or another user's, nothing below it is read or made. An entry that another user may
    have written counts as missing.
    """

    def __init__(self, home: str | None, kind: str, most: int | None = None) -> None:
        self._home = home
        self._most = most
        self._kind = kind.split("/") if kind else []
        self._folder = os.path.join(home, *self._kind) if home else None

    def read(self, name: str, limit: int) -> memoryview | None:
        """Return the data under this name; None if it is missing, was changed, or is longer than ``limit``."""
        if self._folder is None or not self._is_own(name):
            return None
        try:
            descriptor = os.open(os.path.join(self._folder, name), _READ)
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
        """Keep an entry."""
        if self._home is None or self._folder is None:
            return
        place = os.path.join(self._folder, name)
        temporary = os.path.join(os.path.dirname(place), f"{os.getpid()}-{time.time_ns()}{_UNFINISHED}")
        try:
            os.makedirs(os.path.dirname(self._home), exist_ok=True)
            if not self._is_own(name, make=True):
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
        if self._most is not None:
            self.trim(self._most, os.path.splitext(name)[1])

    def trim(self, most: int, ending: str) -> None:
        """Keep the ``most`` newest of this user's files with that ending, and of the files of interrupted writers."""
        if self._folder is None or not self._is_own():
            return
        ages: list[tuple[float, str]] = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith((ending, _UNFINISHED)):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and _is_ours(status):
                            ages.append((status.st_mtime, entry.path))
        except OSError:
            return
        for _, path in sorted(ages)[: max(0, len(ages) - most)]:
            _remove(path)

    def _is_own(self, name: str = "", *, make: bool = False) -> bool:
        """Return whether the folders on the way to an entry are real ones of this user; ``make`` adds missing ones."""
        folder = self._home or ""
        try:
            for part in ("", *self._kind, *name.split("/")[:-1]):
                folder = os.path.join(folder, part) if part else folder
                if make and not os.path.lexists(folder):
                    os.mkdir(folder, 0o700)
                status = os.lstat(folder)
                if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
                    return False
        except (OSError, ValueError):
            return False
        return True


def _is_ours(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
