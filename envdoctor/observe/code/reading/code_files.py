"""Which files ``--code`` means: the scripts and notebooks of paths and folders, and the modules that are their own."""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from envdoctor.facts.values import Origin
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.names import printable
from envdoctor.system.files import Files, Spent, because_of
from envdoctor.system.message import Message, said_by

_ENDINGS = (".py", ".ipynb")
_MAX_FILES = 2000
_MAX_DEPTH = 16
#: Folders with the code of others.
_FOREIGN = {"__pycache__", "node_modules", "site-packages", "dist-packages"}
_ENVIRONMENT_MARKS = {"pyvenv.cfg", "conda-meta"}
_PROJECT_MARKS = {".git", "pyproject.toml", "setup.py", "setup.cfg"}
_MAX_PARENTS = 8


class UnreadCode(NamedTuple):
    """A file, cell or folder that was not read, with the reason as a clause; ``named``: the user named the file."""

    place: str
    reason: Message
    named: bool = False


class CodeFile(NamedTuple):
    """A file to be read: ``shown`` is its path as the user would write it, ``own`` the top-level modules that an import
    in it would take from the project; ``named``: the user named this file, and not a folder around it."""

    shown: str
    path: str
    own: frozenset[str]
    named: bool

    def unread(self, reason: Message, place: Sequence[int] = ()) -> UnreadCode:
        """That it, or a cell of it, was not read."""
        return UnreadCode(Origin(self.shown, *place) if place else self.shown, reason, self.named)


def find_code(
    given: Sequence[str], cwd: str, files: Files, known: Collection[str]
) -> tuple[list[CodeFile], list[UnreadCode]]:
    """The files below the given paths, without repetition, and what was passed over. ``known`` are modules of
    distributions: a project's own file of such a name counts only where Python would look first, beside the script.

    Raises :class:`ObservationError` for a path that is neither a folder nor a Python file or notebook.
    """
    unread: list[UnreadCode] = []
    found: dict[str, str] = {}
    named: set[str] = set()
    try:
        for path in given:
            start = os.path.join(cwd, os.path.expanduser(path))
            if files.is_folder(start):
                below = list(_below(start, files, unread))
                found.update((os.path.normpath(os.path.join(path, name)), os.path.join(start, name)) for name in below)
                if not below:
                    raise ObservationError("--code {}: no Python file or notebook in this folder", printable(path))
            elif not path.endswith(_ENDINGS) or not files.is_file(start):
                what = Message("is neither a folder, nor a Python file (.py) or notebook (.ipynb)")
                problem = what if os.path.exists(start) else Message("not found")
                raise ObservationError("--code {}: {}", printable(path), problem)
            else:
                found[os.path.normpath(path)] = start
                named.add(os.path.normpath(path))
    except Spent as spent:
        unread.append(UnreadCode(printable(", ".join(given)), said_by(spent), named=True))
    if len(found) > _MAX_FILES:
        reason = Message("{} of {} files were not read: too many for one run", len(found) - _MAX_FILES, len(found))
        unread.append(UnreadCode(printable(", ".join(given)), reason))
    chosen = list({os.path.realpath(path): (shown, path) for shown, path in list(found.items())[:_MAX_FILES]}.values())
    project = _Project(files, known)
    roots = [os.path.join(cwd, os.path.expanduser(path)) for path in given]
    everywhere = project.everywhere([*(path for _, path in chosen), *roots])
    read = [
        CodeFile(printable(shown), path, everywhere | project.beside(path), shown in named) for shown, path in chosen
    ]
    return read, unread


def _below(start: str, files: Files, unread: list[UnreadCode]) -> Iterator[str]:
    """Paths of scripts and notebooks relative to a folder; folders of others' code and hidden ones are passed over, and
    no link is followed."""
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            names = files.names(os.path.join(start, folder))
        except OSError as error:
            unread.append(UnreadCode(printable(folder or start), Message("it cannot be listed: {}", because_of(error))))
            continue
        if depth and _ENVIRONMENT_MARKS.intersection(names):
            continue
        inner = []
        for name in names:
            path = os.path.join(folder, name)
            whole = os.path.join(start, path)
            if name.startswith(".") or name in _FOREIGN or os.path.islink(whole):
                continue
            if name.endswith(_ENDINGS) and files.is_file(whole):
                yield path
            elif "." not in name and files.is_folder(whole):
                inner.append((path, depth + 1))
        if inner and depth >= _MAX_DEPTH:
            unread.append(
                UnreadCode(printable(folder), Message("its folders are nested more than {} deep", _MAX_DEPTH))
            )
        else:
            waiting += reversed(inner)


class _Project:
    """The modules that lie in folders of a project."""

    def __init__(self, files: Files, known: Collection[str]) -> None:
        self._files, self._known = files, known
        self._names: dict[str, frozenset[str]] = {}

    def everywhere(self, paths: Sequence[str]) -> frozenset[str]:
        """The modules in the folders of the paths and in those above them up to the project's root, which a script may
        reach by ``sys.path``; none that a distribution may have by that name."""
        folders = {folder for path in paths for folder in self._upwards(os.path.dirname(path))}
        folders |= {path for path in paths if self._files.is_folder(path)}
        folders |= {os.path.join(folder, "src") for folder in folders}
        return frozenset(name for folder in folders for name in self._modules(folder) if name not in self._known)

    def beside(self, path: str) -> frozenset[str]:
        """The modules beside a script, which come before every distribution's. A package's are not found so."""
        folder = os.path.dirname(path)
        names = self._files.names_or_none(folder)
        if "__init__.py" in names:
            return frozenset()
        own = os.path.basename(path)
        return frozenset(
            name for name in self._modules(folder) if f"{name}.py" != own and self._is_regular(folder, name)
        )

    def _upwards(self, folder: str) -> list[str]:
        """The folder and those above it up to the project's root; the folder alone when nothing marks a root."""
        climbed = []
        for _ in range(_MAX_PARENTS):
            climbed.append(folder)
            if _PROJECT_MARKS.intersection(self._files.names_or_none(folder)):
                return climbed
            if os.path.dirname(folder) == folder:
                break
            folder = os.path.dirname(folder)
        return climbed[:1]

    def _modules(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            names = self._files.names_or_none(folder)
            modules = {name[:-3] for name in names if name.endswith(".py")}
            modules |= {name for name in names if name.isidentifier() and self._has_python(os.path.join(folder, name))}
            self._names[folder] = frozenset(modules - {"__init__", "setup", "conftest"})
        return self._names[folder]

    def _has_python(self, folder: str) -> bool:
        if not self._files.is_folder(folder):
            return False
        names = self._files.names_or_none(folder)
        if any(name.endswith((".py", ".so")) for name in names):
            return True
        inner = (os.path.join(folder, name) for name in names[:64] if name.isidentifier())
        return any(name.endswith(".py") for path in inner for name in self._files.names_or_none(path)[:64])

    def _is_regular(self, folder: str, name: str) -> bool:
        """Whether it hides a distribution of that name: a folder without ``__init__.py`` does not."""
        return f"{name}.py" in self._files.names_or_none(folder) or "__init__.py" in self._files.names_or_none(
            os.path.join(folder, name)
        )
