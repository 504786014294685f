"""A local directory as a snapshot: a checkout, a download, or what a training run wrote."""

import os
import stat
from collections.abc import Container, Iterator
from typing import NamedTuple

from envdoctor.hub.file_names import refusal_of_name
from envdoctor.hub.local import LocalSnapshot
from envdoctor.hub.object_ids import Hasher, pointer_in
from envdoctor.hub.safetensors_header import LARGEST_HEADER
from envdoctor.hub.snapshot import FileEntry, SnapshotError, Unread
from envdoctor.models.names import printable
from envdoctor.text.files import because_of
from envdoctor.text.message import Message

MOST_FILES = 100_000
_DEEPEST = 32
#: Folders that are about the files and not of them.
_ASIDE = frozenset((".git", ".cache", "__pycache__", ".ipynb_checkpoints"))


class Found(NamedTuple):
    """A file below a folder: ``place`` is where its links lead to; ``status`` is None when nothing is there."""

    path: str
    place: str
    status: os.stat_result | None


def open_folder(
    folder: str, shown: str | None = None, *, largest_header: int = LARGEST_HEADER, hasher: Hasher | None = None
) -> LocalSnapshot:
    """The snapshot of a directory; ``shown`` is how the user wrote it. Raises :class:`SnapshotError`.

    It has no revision: what lies there may be of no commit. Object ids are those of the content; notes and names inside
    the folder prove nothing. Links that lead out of it, and what is no regular file, are refused. A file that is the
    text of an LFS pointer has the oid and the size that it points to (git-lfs fetches by it, and checks what it gets),
    and cannot be read.
    """
    label = shown or folder
    if not os.path.isdir(folder):
        raise SnapshotError(Message("{} is no folder", label), "usage")
    root = os.path.realpath(folder)
    hasher = hasher or Hasher()
    files: dict[str, FileEntry] = {}
    places: dict[str, str] = {}
    refused: list[Unread] = []
    for found in walk(root, root, Message("the folder"), _ASIDE):
        if isinstance(found, Unread):
            refused.append(found)
            continue
        if found.status is None:
            refused.append(Unread(found.path, Message("it is a link to nothing")))
            continue
        size = found.status.st_size
        pointer = pointer_in(found.place, size)
        if pointer is not None:
            files[found.path] = FileEntry(found.path, pointer.size, pointer.oid)
        else:
            places[found.path] = found.place
            files[found.path] = FileEntry(found.path, size, hasher.oid(found.place, size))
        if len(files) > MOST_FILES:
            raise SnapshotError(
                Message("{} holds more than {} files: is it a model?", label, f"{MOST_FILES:,}"), "usage"
            )
    absent = Message("the folder holds its LFS pointer only: git lfs pull fetches the file")
    return LocalSnapshot(label, label, files, places, tuple(refused), largest_header, absent)


def walk(folder: str, within: str, called: str, aside: Container[str] = ()) -> Iterator[Found | Unread]:
    """The regular files below a folder, in order; what is none, has a bad name or leads out of ``within`` is unread.

    ``within`` is a path without links, ``called`` its name for people. Folders of a name in ``aside`` are left out.
    """
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, below)) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            yield Unread(below or ".", Message("the folder cannot be read: {}", because_of(error)))
            continue
        folders: list[str] = []
        for entry in names:
            path = f"{below}/{entry.name}" if below else entry.name
            problem = refusal_of_name(path)
            if problem:
                yield Unread(printable(path), problem)
            elif not entry.is_dir(follow_symlinks=False):
                yield _file(os.path.realpath(entry.path), path, within, called)
            elif path.count("/") >= _DEEPEST:
                yield Unread(path, Message("it lies more than {} folders deep", _DEEPEST))
            elif entry.name not in aside:
                folders.append(path)
        waiting += reversed(folders)


def _file(place: str, path: str, within: str, called: str) -> Found | Unread:
    try:
        inside = os.path.commonpath([within, place]) == within
    except ValueError:  # another drive
        inside = False
    if not inside:
        return Unread(path, Message("it is a link that leads out of {}", called))
    try:
        status = os.stat(place)
    except OSError:
        return Found(path, place, None)
    if not stat.S_ISREG(status.st_mode):
        return Unread(
            path,
            Message(
                "it is {}",
                Message("a link to a folder") if stat.S_ISDIR(status.st_mode) else Message("no regular file"),
            ),
        )
    return Found(path, place, status)
