"""The fact ``import_shadow``: modules that would be imported from a folder in front of an installed package.

In front stand the folder of the script (for ``python -m`` and interactive use the working directory; the working
directory is looked at), PYTHONPATH, folders that a line of a ``.pth`` file puts before the packages, and outside of
virtual environments the user's own site folder. A folder without ``__init__.py`` hides nothing: a regular package
behind it is found first.

Modules of the standard library, and of what the stack needs (table taken-modules), are told where an import fails: a
script beside them imports a package of the stack, which takes a name that they do not have. On PYTHONPATH, which comes
before the standard library, only its modules are looked for, and no script is needed.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envdoctor.facts.values import ABSENT, NOT_KNOWN, Records, Unknown, Value
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.packages.version_files import module_in, version_of_code
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files
from envdoctor.system.message import Message

_LIMIT = 1 << 16
_SCRIPTS = 30
_STANDARD = "python"
#: What lines of .pth files import that imports little itself.
_LIGHT = {"sys", "os", "types", "importlib", "_virtualenv", "_distutils_hack"}
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
#: Distributions by folder of packages and name.
_ByFolder = Mapping[str, Mapping[str, Mapping[str, Value]]]


@observes("environment", "import_shadow")
def import_shadow(request: Request) -> Found:
    """Return what hides a distribution of the table stack-modules, one that an import stops at, or a module that one
    takes names of."""
    layout, dists = request.place, request.value("dist")
    if not layout.live or not isinstance(dists, Records):
        return Unknown(Message("which folders are in front is known where the environment runs"))
    front = list(dict.fromkeys(_in_front(request)))
    installed: dict[str, dict[str, Mapping[str, Value]]] = {}
    for one in dists if front else ():  # editable ones have their code elsewhere
        if one.get("editable") is not True and one.get("kind") != "conda":
            there = installed.setdefault(os.path.dirname(str(one.get("path"))), {})
            there.setdefault(str(one.get("name")), one)
    stopped = {str(link["module"]).partition(".")[0]: link["provider"] for link in request.items("link")}
    stack: dict[str, Mapping[str, Any]] = {module: {"module": module, "name": stopped[module]} for module in stopped}
    stack |= {row["module"]: row for row in request.rows("stack-modules", "module")}
    items = [_shadow(kind, folder, row, installed, layout) for kind, folder in front for row in stack.values()]
    for kind, folder in front:
        if kind in ("working-directory", "pythonpath"):
            for row in _hiding(folder, request.rows("taken-modules", "module"), layout):
                if kind == "working-directory" or row["name"] == _STANDARD:
                    item = _shadow(kind, folder, _with_importers(row, request, dists), installed, layout)
                    items += [item] if item is not None and item["lacks"] is not ABSENT else []
    origin = Message("the folders in front of the environment's own")
    return [("import_shadow", Records(tuple(filter(None, items)), dists.incomplete), origin)]


def _in_front(request: Request) -> Iterator[tuple[str, str]]:
    """Kinds and folders. Where a script that is judged is started from, its own folder comes first."""
    layout, environ, cwd = request.place, request.environ, request.cwd
    for path in request.code:
        place = os.path.normpath(os.path.join(cwd, path))
        yield "working-directory", place if os.path.isdir(place) else os.path.dirname(place)
    folders = layout.site_packages
    if cwd not in folders and cwd not in (os.sep, layout.prefix):
        yield "working-directory", cwd
    entries = environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [os.path.normpath(os.path.join(cwd, entry)) for entry in entries if entry]
    yield from (("pythonpath", folder) for folder in places if folder in folders)
    last = max((place for place, folder in enumerate(folders) if _is_site(folder)), default=0)
    yield from (("pth", folder) for folder in folders[:last] if folder not in places and not _is_site(folder))
    if layout.kind != "venv" and not environ.get("PYTHONNOUSERSITE"):
        home = environ.get("HOME") or os.path.expanduser("~")
        base = environ.get("PYTHONUSERBASE") or os.path.join(home, ".local")
        own = os.path.join(base, "lib") + os.sep
        yield from (("user-site", folder) for folder in folders if folder.startswith(own))


def _is_site(folder: str) -> bool:
    return os.path.basename(folder) in ("site-packages", "dist-packages")


def _hiding(folder: str, rows: Iterable[Mapping[str, Any]], layout: Layout) -> Iterator[Mapping[str, Any]]:
    """Yield the rows whose modules the folder may hold. In a package they are its submodules, and hide nothing; nor
    does what code at Python's start has imported before."""
    names = set(layout.files.names_or_none(folder))
    imported = {name for startup in layout.startup for name in startup.imports}
    if "__init__.py" not in names and all(name in _LIGHT or name.startswith("__editable__") for name in imported):
        yield from (row for row in rows if row["module"] in names or f"{row['module']}.py" in names)


def _with_importers(row: Mapping[str, Any], request: Request, dists: Records) -> Mapping[str, Any]:
    """Return the row with more that take its names: what people begin with and requires a taker imports it. The takers
    of the table were tried themselves."""
    from envdoctor.observe.packages.link import needed

    by_name = {str(item["name"]): item for item in dists}
    tried = {item["by"] for each in request.rows("taken-modules", "module") for item in each.get("taken", ())}
    begun = {str(each["name"]) for each in request.rows("entry-statements", "row")} & by_name.keys() - tried
    closures = {name: needed(by_name, [name]) for name in sorted(begun)}
    takers = [item for item in row.get("taken", ()) if not item.get("through")]
    more = [{**item, "by": name} for name in closures for item in takers if item["by"] in closures[name]]
    return {**row, "taken": [*more, *row.get("taken", ())]}


def _shadow(
    kind: str, folder: str, row: Mapping[str, Any], installed: _ByFolder, layout: Layout
) -> Mapping[str, Value] | None:
    module, name, files = row["module"], row["name"], layout.files
    behind = layout.site_packages
    if folder in behind:
        behind = behind[behind.index(folder) + 1 :]
    hidden = next((place for place in behind if name in installed.get(place, ())), None)
    path = None if hidden is None and name != _STANDARD else module_in(folder, module, files)
    if path is None:
        return None
    version: Value = ABSENT
    there: Value = ABSENT
    differs: Value = Unknown(Message("the standard library has no version"))
    if hidden is not None:
        other = module_in(hidden, module, files)
        is_same = other is None or os.path.realpath(other) == os.path.realpath(path)
        if is_same or (kind == "working-directory" and _is_checkout(folder, name, files)):
            return None
        own = installed.get(folder, {}).get(name)
        code = version_of_code(path, files) if own is None else None
        version = own.get("version", NOT_KNOWN) if own is not None else code[0] if code else ABSENT
        there = installed[hidden][name].get("version", NOT_KNOWN)
        are_known = isinstance(version, str) and isinstance(there, str)
        differs = version != there if are_known else Unknown(Message("not both are of a known version"))
    item = {"module": module, "kind": kind, "package": name, "hidden_version": there, "version": version}
    lacking = hidden is None or kind == "working-directory"
    return {
        **item,
        "differs": differs,
        "path": path,
        **(_lacking(path, folder, row, installed, files) if lacking else {}),
    }


def _lacking(path: str, folder: str, row: Mapping[str, Any], installed: _ByFolder, files: Files) -> dict[str, Value]:
    """Return what a script beside it, or a package, takes from the module and the one in front cannot have.

    It has no module of that name in its folder, no such word in its text, and nothing that makes names up. The texts
    are searched, never run."""
    there = {name for items in installed.values() for name in items}
    try:
        text = files.text(os.path.join(path, "__init__.py") if not path.endswith(".py") else path, _LIMIT)
    except OSError:
        return {}
    made_up = len(text) >= _LIMIT or re.search(r"import\s*\*|__getattr__|globals\(|exec\(|sys\.modules", text)
    own = (
        (name, Message("from {} import {}", row["module"], name), script)
        for script, name in _named(row["module"], folder, files)
    )
    others = ((item["name"], item["by"], None) for item in row.get("taken", ()) if item["by"] in there)
    through = {item["by"]: item.get("through", ()) for item in row.get("taken", ())}
    columns: dict[str, Value] = {"lacks": ABSENT, "asked_by": ABSENT, "script": ABSENT}
    for name, by, script in () if made_up else (*own, *others):
        inside = "" if path.endswith(".py") else os.path.join(path, name)
        if re.search(rf"\b{name}\b", text) or (inside and (files.is_folder(inside) or files.is_file(f"{inside}.py"))):
            continue
        user = script or _importing(by, through[by], folder, files)
        if columns["script"] is ABSENT:
            columns = {"lacks": f"{row['module']}.{name}", "asked_by": by, "script": user}
    return columns


def _scripts(folder: str, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the first scripts of the folder, each with its text; modules of a package, which name it, are none."""
    own = re.compile(rf"(?m)^(?:from|import)[ \t]+(?:\.|{re.escape(os.path.basename(folder))}\b)")
    for name in [name for name in files.names_or_none(folder) if name.endswith(".py")][:_SCRIPTS]:
        text = files.text_or_empty(os.path.join(folder, name), _LIMIT)
        if not own.search(text):
            yield name, text


def _named(module: str, folder: str, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the scripts of the folder, each with a name that it takes from the module."""
    names = re.compile(rf"^from[ \t]+{module}[ \t]+import[ \t]+\(?([\w, \t]+)", re.MULTILINE)
    for script, text in _scripts(folder, files):
        for words in names.findall(text):
            yield from ((script, word.split()[0]) for word in words.split(",") if word.split())


def _importing(package: str, through: Iterable[str], folder: str, files: Files) -> Value:
    """Return the first script that imports the package, and one of ``through`` where these are named."""
    imports = re.compile(rf"^(?:from|import)[ \t]+{package.replace('-', '_')}\b", re.MULTILINE)
    words = re.compile(rf"\b(?:{'|'.join(through)})\b") if through else None
    for name, text in _scripts(folder, files):
        if imports.search(text) and (words is None or words.search(text)):
            return name
    return ABSENT


def _is_checkout(folder: str, name: str, files: Files) -> bool:
    """Return whether the folder is the source of this very package: its examples are run from there on purpose."""
    spelled = re.escape(name).replace(r"\-", "[-_.]")
    pattern = re.compile(rf"""(?i)\bname\s*=\s*["']?{spelled}["']?\s*(?:[,#)\r\n]|\Z)""")
    return any(pattern.search(files.text_or_empty(os.path.join(folder, file), 1 << 17)) for file in _PROJECT_FILES)
