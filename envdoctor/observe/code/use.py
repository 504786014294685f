"""The fact ``use``: what the user's own scripts and notebooks take from other distributions.

Bounded children (``source/uses.py``) parse them, and look up what they use in an environment's files; nothing is
imported or run. What could not be read is named: a list that may lack uses is incomplete.
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Origin, Records, Value
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.names import printable
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.asking import ChildProblem, Limits, ask
from envdoctor.system.files import Budget, Files, Spent, because_of
from envdoctor.system.message import Message, said_by
from envdoctor.versions.requirement import normalise

_ENDINGS = (".py", ".ipynb")
_MAX_FILES = 2000
_MAX_DEPTH = 16
#: Folders with the code of others.
_FOREIGN = {"__pycache__", "node_modules", "site-packages", "dist-packages"}
_TESTS = {"tests", "test"}
_ENVIRONMENT_MARKS = {"pyvenv.cfg", "conda-meta"}
_ROOT_MARKS = {"pyproject.toml", "setup.py", "setup.cfg"}
_PROJECT_MARKS = {".git", *_ROOT_MARKS}
_MAX_PARENTS = 8


class _UnreadCode(NamedTuple):
    """A file, cell or folder that was not read, with the reason as a clause; ``named``: the user named the file.
    Pythons ``upto`` this one refuse this ``line`` with a SyntaxError."""

    place: str
    reason: Message
    named: bool = False
    line: Value = ABSENT
    upto: Value = ABSENT


class CodeFile(NamedTuple):
    """A file to be read: ``shown`` is its path as the user would write it, ``own`` the top-level modules that an import
    in it would take from the project; ``named``: the user named this file, and not a folder around it."""

    shown: str
    path: str
    own: frozenset[str]
    named: bool

    def unread(self, reason: Message, place: Sequence[int] = ()) -> _UnreadCode:
        """Return that it, or a cell of it, was not read."""
        return _UnreadCode(Origin(self.shown, *place) if place else self.shown, reason, self.named)


def find_code(
    places: Sequence[str], cwd: str, files: Files, modules: Collection[str]
) -> tuple[list[CodeFile], list[_UnreadCode]]:
    """Return the files below the given paths, without repetition, and what was passed over. ``modules`` are those of
    distributions: a project's own file of such a name counts only where Python would look first, beside the script.

    Raises :class:`ObservationError` for a path that is neither a folder nor a Python file or notebook.
    """
    unread: list[_UnreadCode] = []
    paths: dict[str, str] = {}
    direct: set[str] = set()
    try:
        for path in places:
            start = os.path.join(cwd, os.path.expanduser(path))
            if files.is_folder(start):
                below = list(_below(start, files, unread))
                paths.update((os.path.normpath(os.path.join(path, name)), os.path.join(start, name)) for name in below)
                if not below:
                    raise ObservationError("--code {}: no Python file or notebook in this folder", printable(path))
            elif not path.endswith(_ENDINGS) or not files.is_file(start):
                what = Message("is neither a folder, nor a Python file (.py) or notebook (.ipynb)")
                problem = what if os.path.exists(start) else Message("not found")
                raise ObservationError("--code {}: {}", printable(path), problem)
            else:
                paths[os.path.normpath(path)] = start
                direct.add(os.path.normpath(path))
    except Spent as spent:
        unread.append(_UnreadCode(printable(", ".join(places)), said_by(spent), named=True))
    if len(paths) > _MAX_FILES:
        reason = Message("{} of {} files were not read: too many for one run", len(paths) - _MAX_FILES, len(paths))
        unread.append(_UnreadCode(printable(", ".join(places)), reason))
    chosen = list({os.path.realpath(path): (shown, path) for shown, path in list(paths.items())[:_MAX_FILES]}.values())
    project = _Project(files, modules)
    roots = [os.path.join(cwd, os.path.expanduser(path)) for path in places]
    known = project.everywhere([*(path for _, path in chosen), *roots])
    code = [CodeFile(printable(shown), path, known | project.beside(path), shown in direct) for shown, path in chosen]
    return code, unread


def _below(start: str, files: Files, unread: list[_UnreadCode]) -> Iterator[str]:
    """Yield scripts and notebooks below a folder, but for hidden folders, links, and folders of others' code."""
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            names = files.names(os.path.join(start, folder))
        except OSError as error:
            reason = Message("it cannot be listed: {}", because_of(error))
            unread.append(_UnreadCode(printable(folder or start), reason))
            continue
        if depth and _ENVIRONMENT_MARKS.intersection(names):
            continue
        inner = []
        # Those of a project that was copied in are about its own packages, and no run imports them.
        foreign = _FOREIGN | _TESTS if depth and _ROOT_MARKS.intersection(names) else _FOREIGN
        for name in names:
            path = os.path.join(folder, name)
            whole = os.path.join(start, path)
            if name.startswith(".") or name in foreign or os.path.islink(whole):
                continue
            if name.endswith(_ENDINGS) and files.is_file(whole):
                yield path
            elif "." not in name and files.is_folder(whole):
                inner.append((path, depth + 1))
        if inner and depth >= _MAX_DEPTH:
            reason = Message("its folders are nested more than {} deep", _MAX_DEPTH)
            unread.append(_UnreadCode(printable(folder), reason))
        else:
            waiting += reversed(inner)


class _Project:
    """The modules that lie in folders of a project."""

    def __init__(self, files: Files, modules: Collection[str]) -> None:
        self._files, self._known = files, modules
        self._names: dict[str, frozenset[str]] = {}

    def everywhere(self, paths: Sequence[str]) -> frozenset[str]:
        """Return the modules in the folders of the paths and in those above them up to the project's root, which a
        script may reach by ``sys.path``; none that a distribution may have by that name."""
        folders = {folder for path in paths for folder in self._upwards(os.path.dirname(path))}
        folders |= {path for path in paths if self._files.is_folder(path)}
        folders |= {os.path.join(folder, "src") for folder in folders}
        return frozenset(name for folder in folders for name in self._modules(folder) if name not in self._known)

    def beside(self, path: str) -> frozenset[str]:
        """Return the modules beside a script, which come before every distribution's. A package's are not found so."""
        folder = os.path.dirname(path)
        names = self._files.names_or_none(folder)
        if "__init__.py" in names:
            return frozenset()
        # A folder without ``__init__.py`` hides no distribution.
        return frozenset(
            name
            for name in self._modules(folder)
            if f"{name}.py" != os.path.basename(path)
            and (f"{name}.py" in names or "__init__.py" in self._files.names_or_none(os.path.join(folder, name)))
        )

    def _upwards(self, folder: str) -> list[str]:
        """Return the folder and those above it up to the project's root; the folder alone when nothing marks a root."""
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


_CHILD = "envdoctor.source.uses:code_of"
_LACKING = "envdoctor.source.uses:lacks_of"
_LIMITS = Limits(seconds=40.0, mib=1536)
_COLUMNS = ("kind", "module", "name", "keyword", "parameters")
_CHILDREN = 4
_MOST_PLACES = 20
CELL = Message("the cell is not Python that this interpreter can parse")


def answers(
    contents: Sequence[tuple[CodeFile, bytes]], *, definitions: bool = False, seconds: float = 20.0
) -> Iterator[tuple[CodeFile, Mapping[str, Any] | ChildProblem]]:
    """Yield what a child says of each file, with ``definitions`` also what it defines; a problem for one that it could
    not read. A file that ends the child, which has so many ``seconds``, costs that file: the next goes on behind it."""
    limits = Limits(seconds=seconds, mib=1024, output=64 << 20, in_all=_CHILDREN * seconds)
    questions = [
        ({"notebook": file.path.endswith(".ipynb"), "own": sorted(file.own), "definitions": definitions}, content)
        for file, content in contents
    ]
    yield from zip((file for file, _ in contents), ask(_CHILD, questions, limits), strict=True)


def items(
    answers: Iterable[tuple[CodeFile, Mapping[str, Any]]], names: Iterable[str] = ()
) -> Iterator[Mapping[str, Value]]:
    """Yield the uses of all files together. Somebody else calls the functions and classes ``names``. What overrides a
    method of a class in another file overrides the methods of that one's base classes, unless several have its name."""
    answers = list(answers)
    classes: dict[str, list[Sequence[Sequence[str]]]] = {}
    for name, bases in (pair for _, answer in answers for pair in answer["classes"].items()):
        classes.setdefault(name, []).append(bases)
    provided = {name for _, answer in answers for name in answer["provided"]}
    mentioned: dict[str, set[str]] = {name: {""} for name in names}
    for _, answer in answers:
        for name, outer in answer["mentioned"]:
            mentioned.setdefault(name, set()).add(outer)
    places: dict[tuple[Any, ...], list[str]] = {}
    for file, answer in answers:
        for kind, module, name, keyword, parameters, guarded, within, branch, place in answer["uses"]:
            reached = not within or bool(mentioned.get(within, set()) - {within})
            reach = ("branch" if branch else "start") if not within else "call" if reached else "unused"
            dotted = f"{module}.{name}" if name else module
            stands = guarded or any(dotted == own or dotted.startswith(f"{own}.") for own in provided)
            owner, _, method = name.rpartition(".")
            bases = [(module, name)] if module else _imported_bases(owner, classes)
            for its_module, base in bases:
                whole = base if module else f"{base}.{method}"
                there = places.setdefault((kind, its_module, whole, keyword, tuple(parameters), stands, reach), [])
                if len(there) < _MOST_PLACES:
                    there.append(Origin(file.shown, *place))
    for (kind, module, name, keyword, parameters, guarded, reach), where in places.items():
        yield {
            "kind": kind,
            "module": module,
            "name": name or ABSENT,
            "keyword": keyword or ABSENT,
            "parameters": parameters if kind == "override" else ABSENT,
            "guarded": guarded,
            "reach": reach,
            "place": tuple(dict.fromkeys(where)),
        }


def _imported_bases(name: str, classes: Mapping[str, Sequence[Sequence[Sequence[str]]]]) -> list[tuple[str, str]]:
    """Return the imported base classes, each a module and a name, of the project's class of a name, if one is alone."""
    queue, found = [name], []
    for own in queue:
        several = classes.get(own, ())
        for module, base in several[0] if len(several) == 1 else ():
            if module:
                found.append((module, base))
            elif base not in queue and len(queue) < _MOST_PLACES:
                queue.append(base)
    return found


def completed(items: Sequence[Mapping[str, Value]], request: Request) -> tuple[Mapping[str, Value], ...]:
    """Return the items of ``use`` with ``package`` and ``lacks``, where the environment lies on disk: what is missing
    in its files, by a bounded child (``source/uses.py``), absent when nothing is; left out for what cannot be told."""
    dists = request.value("dist")
    unguarded = [item for item in items if item["guarded"] is not True]
    if request.layout is None or not isinstance(dists, Records) or not unguarded:
        return tuple(items)
    place = request.place
    complete = dists.incomplete is None and place.incomplete is None and not place.has_finder
    environment = {"root": place.files.root, "folders": list(place.site_packages), "complete": complete}
    columns = [["" if item[name] is ABSENT else item[name] for name in _COLUMNS] for item in unguarded]
    lacking = ask(_LACKING, [({"use": use, **environment}, None) for use in columns], _LIMITS)
    installed = {str(dist["name"]) for dist in dists}
    owners = {row["module"]: row["name"] for row in request.rows("module-distributions")}
    owners |= {row["module"]: row["name"] for row in request.rows("stack-modules", "module")}
    records = []
    for item in items:
        lacks, top = next(lacking) if item["guarded"] is not True else None, str(item["module"]).partition(".")[0]
        if lacks is not None and not isinstance(lacks, ChildProblem):
            package = owners.get(top) or (normalise(top) if normalise(top) in installed else ABSENT)
            item = {**item, "package": package, "lacks": lacks if isinstance(lacks, str) else ABSENT}
        records.append(item)
    return tuple(records)


_MAX_FILE = {".py": 2 << 20, ".ipynb": 32 << 20}
_MAX_TOTAL = 128 << 20
_MOST = 5000


@observes("code", "use code.files code_unread")
def use(request: Request) -> Found:
    """Return ``use``, one item for each thing that is used in one way, with the first places; ``code.files``, what was
    read; ``code_unread``, what was not, each with the reason."""
    modules = {row["module"] for row in request.rows("stack-modules", "module")}
    files = Files(budget=Budget(seconds=10.0, size=2 * _MAX_TOTAL))
    chosen, unread = find_code(request.code, request.cwd, files, modules)
    contents: list[tuple[CodeFile, bytes]] = []
    for file in chosen:
        try:
            content = files.whole(file.path, _MAX_FILE[".ipynb" if file.path.endswith(".ipynb") else ".py"])
        except (OSError, Spent) as error:
            unread.append(file.unread(because_of(error)))
            continue
        if sum(len(entry) for _, entry in contents) + len(content) > _MAX_TOTAL:
            unread.append(file.unread(Message("more than {} MiB of code together", _MAX_TOTAL >> 20)))
        else:
            contents.append((file, content))
    parsed: list[tuple[CodeFile, Mapping[str, Any]]] = []
    for file, answer in answers(contents):
        if isinstance(answer, ChildProblem):
            upto = {"SyntaxError": "{}.{}".format(*sys.version_info), "NeedsPython312": "3.11"}.get(answer.kind)
            syntax = (answer.line, upto) if upto else ()
            unread.append(_UnreadCode(file.shown, answer.said(), file.named, *syntax))
            continue
        parsed.append((file, answer))
        unread += [file.unread(CELL, place) for place in answer["unread"]]
    uses = tuple(items(parsed))
    if len(uses) > _MOST:
        too_many = Message("it uses {} things; {} are told", len(uses), _MOST)
        unread.append(_UnreadCode(printable(", ".join(request.code)), too_many))
    reason = Message("{}: {}", unread[0].place, unread[0].reason) if unread else None
    values: tuple[Value, ...] = (
        Records(completed(uses[:_MOST], request), reason),
        tuple(file.shown for file, _ in parsed),
        Records(tuple(entry._asdict() for entry in unread)),
    )
    origin = ", ".join(printable(path) for path in request.code)
    return [(key, value, origin) for key, value in zip(use.keys, values, strict=True)]
