"""The one reader of files from outside: bounded, regular files only, never waiting, below a root when there is one."""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter

from envdoctor.system.message import Message, said_by

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL first: 3 ms of every check
except ImportError:  # another Python than CPython
    from hashlib import blake2b

#: The mark of a file or folder, from :meth:`Files.mark` or :meth:`Files.folder_mark`.
Mark = tuple[int, int]

#: Opening a FIFO that has no writer must not hang. Windows needs O_BINARY, or \r\n would be translated.
NEVER_WAIT = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
#: The flags to open a folder on the way, which need not be listed.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW
_BY_STEPS = os.open in os.supports_dir_fd and os.readlink in os.supports_dir_fd
_MAX_LINKS = 40
_PIECE = 1 << 16
_WORD = (1 << 63) - 1
_KIND = 0o170000  # the bits of a mode that tell files from folders
#: When a file or its metadata was changed; on Windows, where that time is its creation, when its content was changed.
_changed: Callable[[os.stat_result], int] = attrgetter("st_ctime_ns" if os.name == "posix" else "st_mtime_ns")


def because_of(error: Exception) -> Message:
    """Return the reason as a clause: of an ``OSError`` without its path (``Permission denied``), else its message."""
    return Message(error.strerror or type(error).__name__) if isinstance(error, OSError) else said_by(error)


class Spent(Exception):
    """The budget of one run is used up. Not an ``OSError``: nothing else of the environment or model is to be tried."""


class Budget:
    """The budget for reading one environment or model, however it is built: seconds of this process's time on the
    processor, bytes, and steps (a file opened or looked at, a name listed, a piece read).

    A large environment (500 distributions, 200 compiled files) takes a fiftieth of it. ``spent`` says which part was
    used up; None until then.
    """

    __slots__ = ("_bytes", "_steps", "_until", "spent")

    def __init__(self, *, seconds: float = 5.0, size: int = 1 << 29, steps: int = 1_000_000) -> None:
        self._until = time.process_time() + seconds
        self._bytes = size
        self._steps = steps
        self.spent: str | None = None

    def use(self, steps: int = 1, size: int = 0) -> None:
        """Count the next work. Raises :class:`Spent` when the budget is used up, from then on every time."""
        before = self._steps
        self._steps -= steps
        self._bytes -= size
        if self.spent is None:
            if self._steps < 0:
                self.spent = Message("not read to the end: it has too many files and entries")
            elif self._bytes < 0:
                self.spent = Message("not read to the end: its files are too large")
            elif before >> 8 != self._steps >> 8 and time.process_time() > self._until:
                self.spent = Message("not read to the end: it takes too long")
        if self.spent is not None:
            raise Spent(self.spent)


class Looks:
    """Files and folders by their paths as they were when they were looked at. ``failed``: an observation was cut off,
    and may succeed another time."""

    __slots__ = ("failed", "files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, Mark] = {}
        self.folders: dict[str, Mark] = {}
        self.failed = False


class Files:
    """The reader of files below a root, or anywhere when ``root`` is None.

    Paths are always paths of this machine. With a root, symbolic links are resolved inside it, the way they would be
    after ``chroot``: an absolute target starts at the root and ``..`` does not leave it. Each component is opened below
    the one before it, so a link that replaces it meanwhile is not followed either. Folder listings are kept for the
    life of the object, so that an environment is listed once. With a ``budget``, all reading is counted, and every
    method raises :class:`Spent` when it is used up. With ``looks``, every file and folder that is looked at from then
    on is noted there, as it was just before.
    """

    __slots__ = ("_listed", "budget", "looks", "root")

    def __init__(self, root: str | None = None, budget: Budget | None = None) -> None:
        self.root = None if root is None else os.path.abspath(root)
        self.budget = budget
        self.looks: Looks | None = None
        self._listed: dict[str, list[str]] = {}

    def use(self, steps: int = 1, size: int = 0) -> None:
        """Count work on what was read. Raises :class:`Spent`."""
        if self.budget is not None:
            self.budget.use(steps, size)

    def inside(self, path: str) -> str:
        """Return the path on this machine of a path that the environment's own files give."""
        if self.root is None:
            return path
        return os.path.join(self.root, path.lstrip("/"))

    def real(self, path: str) -> str:
        """Return ``path`` without symbolic links if there is a root, else unchanged.

        Raises ``OSError`` (ELOOP) for a circle of links and (ENOENT) for a path outside the root.
        """
        if self.root is None:
            return path
        todo = self._below(path)
        top = self.root.rstrip(os.sep)
        place, links = top, 0
        while todo:
            part = todo.pop()
            if part == "..":
                place = place if place == top else os.path.dirname(place).rstrip(os.sep)
                continue
            step = place + os.sep + part
            try:
                target = os.readlink(step)
            except (OSError, ValueError):
                place = step
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                place = top
            todo += _components(target)
        return place or os.sep

    def resolved(self, path: str) -> str:
        """Return ``path`` with every symbolic link resolved, root or not; unchanged if it cannot be a path."""
        try:
            return os.path.realpath(path) if self.root is None else self.real(path)
        except (OSError, ValueError):
            return path

    def status(self, path: str) -> os.stat_result:
        """Return ``os.stat`` of the path, with links followed. Raises ``OSError``."""
        try:
            status = self._status(path)
        except OSError as error:
            self._note(path, (-2, error.errno or 0))
            raise
        self._note(path, _mark(status))
        return status

    def _note(self, path: str, mark: Mark) -> None:
        if self.looks is not None:
            self.looks.files.setdefault(path, mark)

    def mark(self, path: str) -> Mark:
        """Return the mark of a file, by which a change shows: its size and the time of its change, in ns (if the file
        system keeps it, the time that cannot be set). A folder gives its identity only; on a failure, the reason."""
        try:
            return _mark(self._status(path))
        except OSError as error:
            return (-2, error.errno or 0)

    def unchanged(self, base: str, paths: Collection[str], marks: Iterable[Mark]) -> bool:
        """Return whether :meth:`mark` still gives these marks for these files. Paths may be relative to the folder
        ``base``, which is then opened once instead of once for every file."""
        self.use(len(paths))
        holder: int | None = None
        look, changed = self._status, _changed
        try:
            if self.root is None and _BY_STEPS:
                holder = os.open(base, _STEP & ~_NO_FOLLOW)
                look = partial(os.stat, dir_fd=holder)
            for path, (size, when) in zip(paths, marks, strict=True):
                if size < 0 or holder is None:
                    if self.mark(os.path.join(base, path)) != (size, when):
                        return False
                    continue
                status = look(path)
                if changed(status) != when or status.st_size != size:
                    return False
        except (OSError, ValueError):
            return False
        finally:
            if holder is not None:
                os.close(holder)
        return True

    def folder_mark(self, path: str, before: Mark | None = None) -> Mark:
        """Return a digest of the names in a folder, without Python's own bytecode, which every import may add; and when
        it was changed. A folder that has not changed since ``before`` is not listed again."""
        try:
            changed = _changed(self._status(path))
            if before is not None and before[1] == changed:
                return before
            names = "\0".join(name for name in sorted(self._list(path)) if name != "__pycache__")
        except (OSError, ValueError) as error:
            return (-2, getattr(error, "errno", None) or 0)
        return (int.from_bytes(digest(names), "big") >> 2, changed)

    def _status(self, path: str) -> os.stat_result:
        if self.budget is not None:
            self.budget.use()
        try:
            if self.root is None:
                return os.stat(path)
            if not _BY_STEPS:
                return os.lstat(self.real(path))
            folder, name = self._holder(path)
            try:
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
        except ValueError as error:  # an embedded NUL
            raise OSError(errno.EINVAL, str(error), path) from None

    def is_folder(self, path: str) -> bool:
        """Return whether it is a folder; False if that is unknown."""
        return stat.S_ISDIR(self._mode(path))

    def is_file(self, path: str) -> bool:
        """Return whether it is a regular file; False if that is unknown."""
        return stat.S_ISREG(self._mode(path))

    def _mode(self, path: str) -> int:
        try:
            return self.status(path).st_mode
        except OSError:
            return 0

    def is_gone(self, path: str) -> bool:
        """Return whether the path, or the target of its links, is missing; False if that is unknown."""
        try:
            self.status(path)
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        return False

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted. Raises ``OSError``."""
        if self.looks is not None and folder not in self.looks.folders:
            self.looks.folders[folder] = self.folder_mark(folder)
        names = self._listed.get(folder)
        if names is None:
            try:
                names = sorted(self._list(folder))
                self.use(1 + len(names))
            except ValueError as error:
                raise OSError(errno.EINVAL, str(error), folder) from None
            self._listed[folder] = names
        return names

    def names_or_none(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; an empty result if it cannot be listed."""
        try:
            return self.names(folder)
        except OSError:
            return []

    def open(self, path: str) -> int:
        """Open a regular file and return its descriptor, which the caller closes. Raises ``OSError``, also for anything
        but a regular file: to open a device may already be an act."""
        status = self.status(path)
        if self.root is None or not _BY_STEPS:
            _demand_regular(status)
            return os.open(self.real(path), NEVER_WAIT if self.root is None else NEVER_WAIT | _NO_FOLLOW)
        folder, name = self._holder(path)
        try:
            _demand_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
            return os.open(name, NEVER_WAIT | _NO_FOLLOW, dir_fd=folder)
        finally:
            os.close(folder)

    def _list(self, folder: str) -> list[str]:
        if self.root is None or not _BY_STEPS:
            return os.listdir(self.real(folder))
        holder, name = self._holder(folder)
        try:
            descriptor = os.open(name, NEVER_WAIT | _NO_FOLLOW | getattr(os, "O_DIRECTORY", 0), dir_fd=holder)
        finally:
            os.close(holder)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def _holder(self, path: str) -> tuple[int, str]:
        """Open the folder that holds the target of ``path`` below the root; return its descriptor, which the caller
        closes, and the name there. Raises ``OSError``."""
        todo = self._below(path)
        opened = [os.open(self.root or os.sep, _STEP & ~_NO_FOLLOW)]
        links = 0
        try:
            while todo:
                part = todo.pop()
                if part == "..":
                    if len(opened) > 1:
                        os.close(opened.pop())
                    continue
                try:
                    target = os.readlink(part, dir_fd=opened[-1])
                except OSError:  # no link, or nothing
                    if not todo:
                        return opened.pop(), part
                    opened.append(os.open(part, _STEP, dir_fd=opened[-1]))
                    continue
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                while target.startswith("/") and len(opened) > 1:
                    os.close(opened.pop())
                todo += _components(target)
            return opened.pop(), "."
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _below(self, path: str) -> list[str]:
        """Return the path's components below the root, last one first. Raises ``OSError`` if it is outside the root."""
        top = (self.root or "").rstrip(os.sep)
        if path != self.root and not path.startswith(top + os.sep):
            raise OSError(errno.ENOENT, Message("outside the root folder"), path)
        return _components(path[len(top) :].replace(os.sep, "/"))

    def head(self, path: str, limit: int) -> bytes:
        """Read at most ``limit`` bytes of a regular file. Raises ``OSError`` for anything else."""
        with self._opened(path) as descriptor:
            content = read_regular(descriptor, limit)
        self.use(0, len(content))
        return content

    def lines(self, path: str, limit: int) -> Iterator[bytes]:
        """Yield at most ``limit`` bytes of a regular file in pieces that end with a line: a long list is never held
        whole. Raises ``OSError`` for anything else."""
        with self._opened(path) as descriptor:
            rest = b""
            while limit > 0 and (part := read_regular(descriptor, min(limit, _PIECE))):
                self.use(1, len(part))
                limit -= len(part)
                end = part.rfind(b"\n") + 1 or (len(part) if len(rest) > _PIECE else 0)
                if end:
                    yield rest + part[:end]
                    rest = b""
                rest += part[end:]
            if rest:
                yield rest

    def ranges(self, path: str, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Read byte ranges ``(offset, length)`` of a regular file. Raises ``OSError`` also if it ends before one."""
        parts: list[bytes] = []
        with self._opened(path) as descriptor:
            for offset, length in ranges:
                self.use(1, length)
                os.lseek(descriptor, offset, os.SEEK_SET)
                parts.append(read_regular(descriptor, length))
                if len(parts[-1]) < length:
                    raise OSError(errno.EINVAL, Message("it ends before byte {}", f"{offset + length:,}"), path)
        return parts

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        descriptor = self.open(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def whole(self, path: str, limit: int) -> bytes:
        """Read all of a regular file. Raises ``OSError`` also if it has more than ``limit`` bytes, with that reason."""
        with self._opened(path) as descriptor:
            status = os.fstat(descriptor)
            content = _content(descriptor, status, limit + 1) if status.st_size <= limit else None
        if content is None or len(content) > limit:
            most = f"{limit >> 20} MiB" if limit >= 1 << 20 else Message("{} bytes", limit)
            raise OSError(errno.EFBIG, Message("it is larger than {}", most), path)
        self.use(0, len(content))
        return content

    def text(self, path: str, limit: int) -> str:
        """Read at most ``limit`` bytes as UTF-8 text; invalid bytes are replaced. Raises ``OSError``."""
        return self.head(path, limit).decode("utf-8-sig", "replace")

    def text_or_empty(self, path: str, limit: int) -> str:
        """Read the text like :meth:`text`; an empty text if it cannot be read."""
        try:
            return self.text(path, limit)
        except OSError:
            return ""


def _components(path: str) -> list[str]:
    """Return the components of a path without empty ones and dots, last one first."""
    return [part for part in path.split("/")[::-1] if part not in ("", ".")]


def _mark(status: os.stat_result) -> Mark:
    if status.st_mode & _KIND == stat.S_IFDIR:
        return (-1, status.st_ino & _WORD)
    return (status.st_size, _changed(status))


def digest(data: str | bytes | memoryview) -> bytes:
    """Return a digest of 16 bytes, for which no other data can be made."""
    return blake2b(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data, digest_size=16).digest()


def _demand_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        reason = Message("it is a folder") if stat.S_ISDIR(status.st_mode) else Message("it is not a regular file")
        raise OSError(errno.EINVAL, reason)


def read_regular(descriptor: int, limit: int) -> bytes:
    """Read up to ``limit`` bytes from the descriptor's position. Raises ``OSError`` unless it is a regular file."""
    return _content(descriptor, os.fstat(descriptor), limit)


def _content(descriptor: int, status: os.stat_result, limit: int) -> bytes:
    _demand_regular(status)
    parts: list[bytes] = []
    expected = status.st_size + 1  # so that the first read takes it whole, and sees that it grew
    while limit > 0:
        size = min(limit, max(expected, 1 << 16))
        part = os.read(descriptor, size)
        parts.append(part)
        if len(part) < size:  # a regular file gives less only at its end
            break
        limit -= len(part)
        expected -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
