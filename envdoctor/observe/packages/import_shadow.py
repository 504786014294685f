"""The fact ``import_shadow``: modules that would be imported from a folder in front of an installed package.

In front stand the folder of the script (for ``python -m`` and interactive use the working directory; the working
directory is looked at), PYTHONPATH, and outside of virtual environments the user's own site folder. A folder without
``__init__.py`` hides nothing: a regular package behind it is found first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.request import Request
from envdoctor.text.files import Files

__all__ = ["KEYS", "NEEDS", "observe"]

KEYS = ("import_shadow",)
NEEDS = ("dist",)

_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")


def observe(request: Request) -> list[Fact]:
    """What hides a distribution of the table stack-modules."""
    (key,) = KEYS
    origin, layout, dists = "the folders in front of the environment's own", request.place, request.value("dist")
    if not layout.live or not isinstance(dists, Records):
        return [Fact(key, Unknown("which folders are in front is known where the environment runs"), "", "environment")]
    front = list(_in_front(layout, request.environ, request.cwd))
    installed = _by_folder(dists) if front else {}
    items = [
        item
        for kind, folder in front
        for row in request.rows("stack-modules", "module")
        if (item := _shadow(kind, folder, (row["module"], row["name"]), installed, layout)) is not None
    ]
    return [Fact(key, Records(tuple(items), dists.incomplete), origin, "environment")]


def _in_front(layout: Layout, environ: Mapping[str, str], cwd: str) -> Iterator[tuple[str, str]]:
    folders = layout.site_packages
    if cwd not in folders and cwd not in (os.sep, layout.prefix):
        yield "working-directory", cwd
    for entry in environ.get("PYTHONPATH", "").split(os.pathsep):
        folder = os.path.normpath(os.path.join(cwd, entry)) if entry else ""
        if folder in folders:
            yield "pythonpath", folder
    if layout.kind != "venv" and not environ.get("PYTHONNOUSERSITE"):
        home = environ.get("HOME") or os.path.expanduser("~")
        base = environ.get("PYTHONUSERBASE") or os.path.join(home, ".local")
        yield from (
            ("user-site", folder) for folder in folders if folder.startswith(os.path.join(base, "lib") + os.sep)
        )


def _by_folder(dists: Records) -> dict[str, dict[str, Mapping[str, Value]]]:
    """Distributions by folder of packages and name; editable ones, whose code lies elsewhere, are left out."""
    found: dict[str, dict[str, Mapping[str, Value]]] = {}
    for item in dists:
        if item.get("editable") is not True and item.get("kind") != "conda":
            found.setdefault(os.path.dirname(str(item.get("path"))), {}).setdefault(str(item.get("name")), item)
    return found


def _shadow(
    kind: str,
    folder: str,
    wanted: tuple[str, str],
    installed: Mapping[str, Mapping[str, Mapping[str, Value]]],
    layout: Layout,
) -> Mapping[str, Value] | None:
    module, name = wanted
    behind = layout.site_packages
    if folder in behind:
        behind = behind[behind.index(folder) + 1 :]
    hidden = next((place for place in behind if name in installed.get(place, ())), None)
    path = None if hidden is None else _importable(folder, module, layout.files)
    if hidden is None or path is None:
        return None
    other = _importable(hidden, module, layout.files)
    if other is None or os.path.realpath(other) == os.path.realpath(path):
        return None
    if kind == "working-directory" and _is_checkout(folder, name, layout.files):
        return None
    own = installed.get(folder, {}).get(name)
    version: Value = ABSENT if own is None else own.get("version", Unknown("not known"))
    there = installed[hidden][name].get("version", Unknown("not known"))
    known = isinstance(version, str) and isinstance(there, str)
    return {
        "module": module,
        "kind": kind,
        "package": name,
        "hidden_version": there,
        "version": version,
        "differs": version != there if known else Unknown("not both are of a known version"),
        "path": path,
    }


def _importable(folder: str, module: str, files: Files) -> str | None:
    """The regular package or the module file that a folder gives under this name."""
    package = os.path.join(folder, module)
    if files.is_file(os.path.join(package, "__init__.py")):
        return package
    return f"{package}.py" if files.is_file(f"{package}.py") else None


def _is_checkout(folder: str, name: str, files: Files) -> bool:
    """Whether the folder is the source of this very package: its examples are run from there on purpose."""
    spelled = re.escape(name).replace(r"\-", "[-_.]")
    named = re.compile(rf"""(?i)\bname\s*=\s*["']?{spelled}["']?\s*(?:[,#)\r\n]|\Z)""")
    for file in _PROJECT_FILES:
        try:
            if named.search(files.text(os.path.join(folder, file), 1 << 17)):
                return True
        except OSError:
            continue
    return False
