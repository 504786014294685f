"""What lies in an image when its layers are put on top of each other, as far as somebody reads it.

Nothing is written before all layers are known but the contents of single files, by number. Links are kept as texts and
followed in here, the way the image's own system would, so that no entry leads to another place of this machine.
"""

import os
import re
import tarfile
from typing import NamedTuple, Union

from envdoctor.observe.locate.image.stream import ImageUnreadable, Stream, entries
from envdoctor.text.files import Budget

__all__ = ["Layers"]

#: What environments are found and read by, and what else counts by being there.
_READ = re.compile(
    r"(?:.*/)?(?:conda-meta/[^/]+|[^/]+\.(?:dist|egg)-info/.+|[^/]+\.(?:py|pth|egg-link|json|txt)|[^/]+-info|"
    r"pyvenv\.cfg|patchlevel\.h|dpkg/status)",
    re.S,
)
_PACKAGED = re.compile(r"(?:.*/)?(?:site|dist)-packages/(?!.*(?:__pycache__/|\.(?:h|hpp|cuh|pyi)\Z)).+", re.S)
#: Bytes: larger files are there, but not taken out. The largest library of torch has 1.3 GB.
_LARGEST, _LARGEST_LIBRARY = 64 << 20, 2 << 30
_MOST_TAKEN = 8 << 30
_MOST_KEPT = 300_000
_LONGEST_NAME = 1000
_MOST_LINKS = 40


class _File(NamedTuple):
    """A file: its size and the number of its content. ``start`` is where that lies in the archive when it was not
    taken out, -1 where nobody reads it."""

    size: int
    number: int
    start: int = -1


class _Same(NamedTuple):
    """A hard link: the file is that of another path."""

    path: str


Folder = dict[str, Union["Folder", str, _File]]  # a text is the target of a symbolic link


class Layers:
    """The tree that grows layer by layer; contents go to numbered files in the folder ``taken``."""

    def __init__(self, taken: str) -> None:
        self._taken, self._count = taken, 0
        self._room = Budget(seconds=1e9, size=_MOST_TAKEN, steps=_MOST_KEPT)
        self._top: Folder = {}

    def add(self, stream: Stream) -> None:
        """Put a layer on top: what it removes of those below goes first, wherever that stands in it."""
        found: list[tuple[list[str], Folder | str | _File | _Same | None]] = []
        for entry in entries(stream):
            parts = _parts(entry.name)
            if not parts:
                continue
            if parts[-1].startswith(".wh."):
                self._remove(parts)
                continue
            content = self._content(entry, "/".join(parts), stream)
            folder = self._folder(parts[:-1]) if content is None else None
            if content is not None or (folder and parts[-1] in folder):
                self._room.use()
                found.append((parts, content))
        for parts, content in found:
            self._put(parts, content)

    def _content(self, entry: tarfile.TarInfo, path: str, stream: Stream) -> Folder | str | _File | _Same | None:
        """What an entry puts at its path; None for what nobody reads."""
        if entry.isdir():
            return {}
        if entry.issym():
            _parts(entry.linkname.replace("..", ""))
            return entry.linkname
        read, packaged = _READ.fullmatch(path) is not None, _PACKAGED.fullmatch(path) is not None
        if not read and not packaged:
            return None
        if entry.islnk():
            return _Same(entry.linkname)
        if not entry.isreg():
            return None
        library = packaged and path.endswith(".so")
        if entry.issparse() or entry.size > (_LARGEST_LIBRARY if library else _LARGEST) or not (read or library):
            return _File(entry.size, 0)
        if library and stream.start is not None:
            return _File(entry.size, 0, stream.start + stream.tell())
        self._room.use(0, entry.size)
        self._count += 1
        with open(os.path.join(self._taken, str(self._count)), "xb") as file:
            for piece in stream.pieces(entry.size):
                file.write(piece)
        return _File(entry.size, self._count)

    def _put(self, parts: list[str], content: Folder | str | _File | _Same | None) -> None:
        if isinstance(content, _Same):
            other = _parts(content.path)
            folder = self._folder(other[:-1])
            same = folder.get(other[-1]) if folder is not None and other else None
            content = same if isinstance(same, _File) else None
        folder = self._folder(parts[:-1], make=content is not None)
        if folder is None:
            return
        if content is None:
            folder.pop(parts[-1], None)
        elif not isinstance(content, dict) or not isinstance(folder.get(parts[-1]), dict):
            folder[parts[-1]] = content

    def _remove(self, parts: list[str]) -> None:
        folder = self._folder(parts[:-1])
        if folder is not None and parts[-1] == ".wh..wh..opq":
            folder.clear()
        elif folder is not None:
            folder.pop(parts[-1].removeprefix(".wh."), None)

    def _folder(self, parts: list[str], *, make: bool = False) -> Folder | None:
        """The folder of a path, links followed; with ``make`` one is made where there is none."""
        at, todo, links = [self._top], parts[::-1], 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del at[max(1, len(at) - 1) :]
                continue
            node = at[-1].get(part)
            if isinstance(node, str):
                links += 1
                if links > _MOST_LINKS:
                    raise ImageUnreadable(f"has links that lead to each other: {'/'.join(parts)[:200]}")
                if node.startswith("/"):
                    del at[1:]
                todo += node.split("/")[::-1]
                continue
            if not isinstance(node, dict):
                if not make:
                    return None
                node = at[-1][part] = {}
            at.append(node)
        return at[-1]

    def write(self, root: str) -> dict[str, int]:
        """Lay the tree out below ``root``. The paths of files that have their size but not their content, with the
        place of that in the archive, -1 for none."""
        left: dict[str, int] = {}
        moved: dict[int, str] = {}
        waiting = [(root, self._top)]
        while waiting:
            place, folder = waiting.pop()
            os.makedirs(place, exist_ok=True)
            for name, node in folder.items():
                path = os.path.join(place, name)
                if isinstance(node, dict):
                    waiting.append((path, node))
                elif isinstance(node, str):
                    os.symlink(node, path)
                elif not node.number:
                    with open(path, "xb") as file:
                        file.truncate(node.size)
                    left[path] = node.start
                elif node.number in moved:
                    os.link(moved[node.number], path)
                else:
                    os.rename(os.path.join(self._taken, str(node.number)), path)
                    moved[node.number] = path
        return left


def _parts(name: str) -> list[str]:
    """The components of a path in the image. Raises :class:`ImageUnreadable` for what leads out of it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(name) > _LONGEST_NAME:
        raise ImageUnreadable(f"has an entry whose name no image has: {name[:100]}")
    return parts
