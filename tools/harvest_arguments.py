"""Write tests/metamorphic/arguments/: the arguments that released trainers and servers take, by release.

    python tools/harvest_arguments.py [PROJECT ...]

``tools/harvest_arguments.toml`` names the wheels and the places in them; only those members are fetched.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import fill
from typing import Any
from zipfile import ZipFile

import tomllib
import yaml
from package_index import Index
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TO = ROOT / "tests" / "metamorphic" / "arguments"
REQUIRED = ("transformers",)


def main(projects: list[str]) -> None:
    """Write the file of each project; without any, of all."""
    wanted = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    index = Index()
    for project in projects or wanted:
        groups, wheels = dict(wanted[project]), index.wheels(project)
        texts = [f"# Written by tools/harvest_arguments.py from the wheels of {project}.\n"]
        for release in groups.pop("releases"):
            print(project, release)
            wheel = index.wheel(wheels[release])
            texts.append(f'[[release]]\nversion = "{release}"\n{_requires(wheel)}')
            texts += [_array(name, _arguments(wheel, places)) for name, places in groups.items()]
        (TO / f"{project}.toml").write_text("\n".join(texts), encoding="utf-8")


def _requires(wheel: ZipFile) -> str:
    """Return the line that says which releases of other trainers the wheel requires."""
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = wheel.read(name).decode().partition("\n\n")[0].splitlines()
    asked = [Requirement(line.partition(":")[2]) for line in lines if line.startswith("Requires-Dist:")]
    found = {canonicalize_name(r.name): str(r.specifier) for r in asked if r.marker is None and r.specifier}
    said = [f"{name} = {json.dumps(found[name])}" for name in REQUIRED if name in found]
    return f"requires = {{ {', '.join(said)} }}\n" if said else ""


def _array(name: str, values: list[str]) -> str:
    items = fill(", ".join(f"@{value}@" for value in values), 116, break_long_words=False, break_on_hyphens=False)
    body = items.replace("@", '"').replace("\n", "\n  ")
    return f"{name} = [\n  {body},\n]\n" if values else f"{name} = []\n"


def _arguments(wheel: ZipFile, places: list[str]) -> list[str]:
    """Return what the places of a group name, sorted."""
    found: set[str] = set()
    for place in places:
        place, _, before = place.partition("@")
        pattern, _, qualified = place.partition(":")
        for name in wheel.namelist():
            inside = name.partition(".data/purelib/")[2] or name
            if not fnmatchcase(inside, pattern):
                continue
            text = wheel.read(name).decode()
            if name.endswith(".yaml"):
                found |= set(_keys(yaml.safe_load(text), before))
            else:
                tree = ast.parse(text)
                found |= set(_parameters(tree, qualified.split(".")) if qualified else _fields(tree))
    return sorted(found)


def _fields(tree: ast.Module) -> Iterator[str]:
    """Yield the fields of the classes and the options of the parsers of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name) and _taken(child.value):
                    yield child.target.id
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for word in node.args:
                if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                    yield str(word.value)[2:]


def _taken(default: ast.expr | None) -> bool:
    """Return whether a field with this default is an argument: it is unless it says ``init=False``."""
    said = {word.arg: word.value for word in default.keywords} if isinstance(default, ast.Call) else {}
    init = said.get("init")
    return not (isinstance(init, ast.Constant) and init.value is False)


def _parameters(tree: ast.Module, path: list[str]) -> Iterator[str]:
    """Yield the parameters of the function at a path of names."""
    node: Any = tree
    for name in path:
        node = next((n for n in ast.walk(node) if getattr(n, "name", None) == name), None)
        if node is None:
            return
    yield from (a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls"))


def _keys(data: Any, before: str = "") -> Iterator[str]:
    """Yield the keys of a tree, joined with dots."""
    for key, value in data.items() if isinstance(data, dict) else ():
        if key.startswith("_"):
            continue
        yield f"{before}{key}"
        yield from _keys(value, f"{before}{key}.")


if __name__ == "__main__":
    main(sys.argv[1:])
