"""A local directory as a snapshot: a checkout, a download, or what a training run wrote."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from envdoctor.hub.file_names import refusal_of_name
from envdoctor.hub.header_plan import LARGEST_HEADER
from envdoctor.hub.local_files import digest, lies_below, pointer_of, read_whole
from envdoctor.hub.local_snapshot import LocalSnapshot
from envdoctor.hub.snapshot import FileEntry, SnapshotError, Unread

__all__ = ["FolderSnapshot", "open_folder"]

MOST_FILES = 100_000
_DEEPEST = 32
#: Folders that are about the files and not of them.
_ASIDE = frozenset((".git", ".cache", "__pycache__", ".ipynb_checkpoints"))
_ETAG = re.compile(r"(?:([0-9a-f]{40})|([0-9a-f]{64}))\Z")


class FolderSnapshot(LocalSnapshot):
    """The files below a folder. ``revision`` is None: what lies there may be of no commit.

    ``refused`` names links that lead out of the folder, and what is no regular file. A file that is the text of an LFS
    pointer has the oid and the size that it points to, and cannot be read.
    """

    repo: str | None = None
    revision: str | None = None
    complete = True

    def __init__(self, folder: str, shown: str, largest_header: int) -> None:
        self.asked = self.label = shown
        self._folder = folder
        super().__init__(largest_header)
        self._pointers: set[str] = set()
        self._places: dict[str, str] = {}
        self._refused: list[Unread] = []
        files: dict[str, FileEntry] = {}
        self._walk(os.path.realpath(folder), "", files, 0)
        self.files: Mapping[str, FileEntry] = files
        self.refused: tuple[Unread, ...] = tuple(self._refused)

    def _place(self, path: str) -> str | Unread:
        if path in self._pointers:
            return Unread(path, "the folder holds its LFS pointer only: git lfs pull fetches the file")
        return self._places.get(path) or Unread(path, f"it is not among the files of {self.label}")

    def _walk(self, root: str, below: str, files: dict[str, FileEntry], depth: int) -> None:
        try:
            with os.scandir(os.path.join(root, below)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._refused.append(Unread(below or ".", f"the folder cannot be read: {error.strerror}"))
            return
        for entry in found:
            path = f"{below}/{entry.name}" if below else entry.name
            if len(files) >= MOST_FILES:
                raise SnapshotError(f"{self.label} holds more than {MOST_FILES:,} files: is it a model?", "usage")
            problem = refusal_of_name(path)
            if problem:
                self._refused.append(Unread(ascii(path)[1:-1][:200], problem))
            elif entry.is_dir(follow_symlinks=False):
                if entry.name in _ASIDE:
                    continue
                if depth == _DEEPEST:
                    self._refused.append(Unread(path, f"it lies more than {_DEEPEST} folders deep"))
                else:
                    self._walk(root, path, files, depth + 1)
            else:
                self._file(root, path, files)

    def _file(self, root: str, path: str, files: dict[str, FileEntry]) -> None:
        place = os.path.realpath(os.path.join(root, path))
        if not lies_below(root, place):
            self._refused.append(Unread(path, "it is a link that leads out of the folder"))
            return
        try:
            status = os.stat(place)
        except OSError as error:
            self._refused.append(Unread(path, f"it cannot be read: {error.strerror}"))
            return
        if not stat.S_ISREG(status.st_mode):
            what = "a link to a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            self._refused.append(Unread(path, f"it is {what}"))
            return
        pointer = pointer_of(place, status.st_size)
        if pointer is not None:
            self._pointers.add(path)
            files[path] = FileEntry(path, pointer.size, f"sha256:{pointer.sha256}")
            return
        self._places[path] = place
        oid = _downloaded(root, path, status.st_mtime)
        files[path] = FileEntry(path, status.st_size, oid or digest(place, status.st_size))


def open_folder(folder: str, shown: str | None = None, *, largest_header: int = LARGEST_HEADER) -> FolderSnapshot:
    """The snapshot of a directory; ``shown`` is how the user wrote it. Raises :class:`SnapshotError`."""
    if not os.path.isdir(folder):
        raise SnapshotError(f"{shown or folder} is no folder", "usage")
    return FolderSnapshot(folder, shown or folder, largest_header)


def _downloaded(root: str, path: str, changed: float) -> str | None:
    """The oid that ``hf download --local-dir`` noted for a file, unless the file was changed afterwards.

    The note has three lines: commit, etag (git oid or sha256), time in seconds; one second of difference is allowed,
    as in huggingface_hub.
    """
    note = os.path.join(root, ".cache", "huggingface", "download", *path.split("/")) + ".metadata"
    content = read_whole(note, path, 4096) if os.path.isfile(note) else None
    if not isinstance(content, bytes):
        return None
    lines = content.decode("ascii", "replace").split("\n")
    try:
        match = _ETAG.match(lines[1].strip())
        if match is None or changed - 1 > float(lines[2]):
            return None
    except (IndexError, ValueError):
        return None
    return f"sha1:{match[1]}" if match[1] else f"sha256:{match[2]}"
