"""A copy of files of an environment, which undoes a change to the byte: bytes, modes, times and links.

It lies on the disk of the environment, in a folder of its own that outlives the process that made it. Its journal is
written last: without a journal nothing was changed yet, with a journal the environment may be half changed.
"""

import filecmp
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

_JOURNAL, _LOCK, _FILES = "journal.json", "lock", "files"
#: Bytes that stay free beside the copy.
_ROOM = 64 << 20


class Busy(Exception):
    """Another process is at work with the copy."""


class NoRoom(Exception):
    """The copy would fill the disk; ``needed`` and ``free`` are bytes."""

    def __init__(self, needed: int, free: int) -> None:
        self.needed, self.free = needed, free
        super().__init__(needed, free)


class Entry(NamedTuple):
    """The disk's entry of a path: ``kind`` is dir, file, link or other; ``target`` is where a link leads."""

    kind: str
    mode: int
    size: int
    mtime: int
    ctime: int
    inode: int
    owner: int
    group: int
    target: str = ""

    @property
    def seen(self) -> tuple[object, ...]:
        """Return the part that a restored file has in common with the original."""
        return self.kind, self.mode, self.size if self.kind == "file" else 0, self.mtime, self.target


def _entry_of(path: str) -> Entry:
    """Return the entry of a path; links are not followed. Raises ``OSError``."""
    status = os.lstat(path)
    mode = status.st_mode
    kind = "dir" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file" if stat.S_ISREG(mode) else "other"
    numbers = (stat.S_IMODE(mode), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return Entry(kind, *numbers, status.st_uid, status.st_gid, os.readlink(path) if kind == "link" else "")


def listing(roots: Iterable[str], skip: str) -> dict[str, Entry]:
    """Return the entries of all paths at and below the roots, without the folder ``skip``. Raises ``OSError`` for a
    folder that cannot be listed."""
    entries: dict[str, Entry] = {}
    stack = [root for root in roots if os.path.lexists(root)]
    while stack:
        path = stack.pop()
        if path == skip or path in entries:
            continue
        entries[path] = _entry_of(path)
        if entries[path].kind == "dir":
            stack += [os.path.join(path, name) for name in os.listdir(path)]
    return entries


@contextmanager
def without_new(folder: str, name: str) -> Iterator[None]:
    """Remove the empty file of that name from the folder in the end, unless it was there, and restore its times."""
    path, before = os.path.join(folder, name), _entry_of(folder)
    was_there = os.path.lexists(path)
    try:
        yield
    finally:
        with suppress(OSError):
            if not was_there and _entry_of(path).size == 0:
                os.unlink(path)
                _dress(folder, before)


class Undo:
    """The copy in ``folder``, of files below ``roots`` (real paths without links). One process at a time has it, from
    :meth:`take` to :meth:`discard` or :meth:`release`."""

    def __init__(self, folder: str, roots: Sequence[str]) -> None:
        self._folder, self._roots = folder, sorted(roots)
        self._descriptor = -1
        self._parent = _entry_of(os.path.dirname(folder))

    def take(self) -> bool:
        """Take the folder, and make it if it is missing; return whether it holds an unfinished change: its journal is
        ours, and about these roots. Raises :class:`Busy` and ``OSError``."""
        if not os.path.lexists(self._folder):
            os.mkdir(self._folder, 0o700)
        entry = _entry_of(self._folder)
        if entry.kind != "dir" or (hasattr(os, "geteuid") and entry.owner != os.geteuid()) or entry.mode & 0o022:
            raise PermissionError(13, "it is not this user's own folder")
        self._descriptor = os.open(os.path.join(self._folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            import fcntl
        except ImportError:  # Windows: a file that a living installer holds cannot be replaced there
            pass
        else:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise Busy from None
        return self._journal() is not None

    def copy(self, chosen: Callable[[str], bool], about: Sequence[str]) -> int:
        """Copy the files below the roots that are ``chosen`` by their path, and list everything; return their bytes.
        ``about`` are words for a person who finds the copy. Raises :class:`NoRoom` and ``OSError``."""
        before = listing(self._roots, self._folder)
        if self._parent_path in before:  # as it was before the folder of the copy was made
            before[self._parent_path] = self._parent
        files = [path for path, entry in before.items() if entry.kind == "file" and chosen(path)]
        needed, free = sum(before[path].size for path in files), shutil.disk_usage(self._folder).free
        if needed + _ROOM > free:
            raise NoRoom(needed, free)
        place = os.path.join(self._folder, _FILES)
        shutil.rmtree(place, ignore_errors=True)
        os.mkdir(place)
        for number, path in enumerate(files):  # bytes and never a hard link: other users of the file keep it
            shutil.copy2(path, os.path.join(place, str(number)))
        journal = {"roots": self._roots, "about": list(about), "files": files, "entries": before}
        unfinished = os.path.join(self._folder, f"{_JOURNAL}.new")
        with open(unfinished, "w", encoding="ascii") as file:
            json.dump(journal, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, os.path.join(self._folder, _JOURNAL))
        return needed

    def about(self) -> tuple[str, ...]:
        """Return the words that were given to :meth:`copy`."""
        return tuple(map(str, (self._journal() or {}).get("about", ())))

    def put_back(self) -> list[str]:
        """Restore everything below the roots; return the paths for which that failed. It may be ended at any point and
        be begun again."""
        journal = self._journal() or {"files": [], "entries": {}}
        before = {path: Entry(*entry) for path, entry in journal["entries"].items()}
        copies = {path: os.path.join(self._folder, _FILES, str(number)) for number, path in enumerate(journal["files"])}
        now = listing(self._roots, self._folder)
        # New files go first: on a full disk that makes room.
        for path in sorted(now.keys() - before.keys(), reverse=True):
            with suppress(OSError):
                _remove(path, now[path].kind)
        for path, entry in sorted(before.items()):
            folder = os.path.dirname(path)
            if now.get(path) != entry and os.path.realpath(folder) == folder:  # no link of a strange journal leads away
                with suppress(OSError):
                    _restore(path, entry, now.get(path), copies.get(path, ""))
        for path, entry in sorted(before.items(), reverse=True):
            if entry.kind == "dir":
                with suppress(OSError):
                    _dress(path, entry)
        goal, result = (
            {(path, entry.seen) for path, entry in entries.items()}
            for entries in (before, listing(self._roots, self._folder))
        )
        return sorted({path for path, _ in goal ^ result} - {self._parent_path})

    def discard(self) -> None:
        """Remove the copy: the files stay as they are now, and the folder around the copy gets its old time."""
        entry = (self._journal() or {"entries": {}})["entries"].get(self._parent_path)
        with suppress(OSError):
            os.unlink(os.path.join(self._folder, _JOURNAL))
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):
            _dress(self._parent_path, Entry(*entry) if entry else self._parent)
        self.release()

    def release(self) -> None:
        """Let another process have the copy, as it is."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def _parent_path(self) -> str:
        return os.path.dirname(self._folder)

    def _journal(self) -> dict[str, Any] | None:
        """Return the journal; None if it is missing, or not about these roots."""
        try:
            with open(os.path.join(self._folder, _JOURNAL), encoding="ascii") as file:
                journal = json.load(file)
            inside = tuple(root + os.sep for root in self._roots)
            paths = [*journal["entries"], *journal["files"]]
            good = journal["roots"] == self._roots and all(
                path in self._roots or (path.startswith(inside) and os.path.normpath(path) == path) for path in paths
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return journal if good else None


def _remove(path: str, kind: str) -> None:
    os.rmdir(path) if kind == "dir" else os.unlink(path)


def _restore(path: str, entry: Entry, now: Entry | None, copy: str) -> None:
    """Restore one path, whose folder exists already. Raises ``OSError``."""
    if now is not None and now.kind != entry.kind:
        _remove(path, now.kind)
        now = None
    if entry.kind == "dir":
        if now is None:
            os.mkdir(path)
    elif entry.kind == "link":
        if now is None or now.target != entry.target:
            if now is not None:
                os.unlink(path)
            os.symlink(entry.target, path)
            os.utime(path, ns=(entry.mtime, entry.mtime), follow_symlinks=False)
    elif entry.kind == "file":
        if os.path.lexists(copy) and (now is None or not filecmp.cmp(copy, path, shallow=False)):
            os.replace(copy, path)
        _dress(path, entry)


def _dress(path: str, entry: Entry) -> None:
    """Give a file or folder its owner, mode and times. Raises ``OSError``."""
    now = _entry_of(path)
    if hasattr(os, "chown") and (now.owner, now.group) != (entry.owner, entry.group):
        with suppress(OSError):
            os.chown(path, entry.owner, entry.group)
    if _entry_of(path).mode != entry.mode:
        os.chmod(path, entry.mode)
    if now.mtime != entry.mtime:
        os.utime(path, ns=(entry.mtime, entry.mtime))
