"""What changed between the releases of a package: names of modules, members of classes, parameters; module by module.

A file says what it defines, or as a package hands on; nothing is followed but ``import *`` within the package. What a
module has as long as it is there, and a class or function as long as that is, is left out: an error about it says
nothing of releases. Of top-level modules every name is kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from envdoctor.source.offers import Offers, read_offers
from envdoctor.source.signatures import parameters
from harvesting.writing import history

__all__ = ["OPEN", "SECTIONS", "Release", "lines_of", "members", "read"]

SECTIONS = ("offers", "members", "parameters")
_NOT_OFFERED = re.compile(
    r"(?:^|\.)(?:tests?|testing|test_\w+|benchmarks?|examples|docs|conftest|_vendor|__pycache__)(?:\.|$)"
)
_COMPILED = (".so", ".pyd")
_DEEPEST = 6
#: Among the names of a module: that others may be there.
OPEN = "*"
#: Methods of torch's modules that make an attribute of the name they are given.
_MAKING = ("register_buffer", "register_parameter", "add_module", "register_module")
_PRIVATE = re.compile(r"(?:^|\.)_(?!_call__)")


class File(NamedTuple):
    """One module: the names that it binds, where it takes all names from, members of classes, parameters."""

    names: frozenset[str]
    stars: tuple[str, ...]
    members: Mapping[str, frozenset[str]]
    parameters: Mapping[str, frozenset[str]]
    required: Mapping[str, frozenset[str]]


#: By section: items by subject.
Release = dict[str, dict[str, frozenset[str]]]

_known: dict[bytes, File | None] = {}


def read(archive: Path, tops: Collection[str], standard: Collection[str], depth: Callable[[str], int]) -> Release:
    """One release, of a zip of its Python files. Of modules of depth 0 it is said that they are there, of 1 which
    public names they have, of 2 also private names, members and parameters."""
    files: dict[str, File | None] = {}
    with ZipFile(archive) as sources:
        for name in sources.namelist():
            module, is_package = _module(name)
            if not module or module.partition(".")[0] not in tops or _NOT_OFFERED.search(module):
                continue
            if depth(module) < 1:
                files |= {module: None} if depth(module) == 0 else {}
                continue
            text, kind = sources.read(name), (module, is_package, depth(module) > 1)
            key = sha256(repr(kind).encode() + text).digest()
            if key not in _known:
                _known[key] = None if name.endswith(_COMPILED) else _file(text, kind, standard)
            files[module] = _known[key]
    return _release(files)


def lines_of(versions: Sequence[str], found: Sequence[Release], tops: Collection[str]) -> Iterator[str]:
    """Yield the sections of the ledger's file of changes: what is not there all the time."""
    for section in SECTIONS:
        yield f"[{section}]"
        subjects = [release[section] for release in found]
        lines = history(versions, list(_changing(subjects, tops if section == "offers" else ())))
        yield from (line for line in lines if section == "offers" or line.count("\t") > 1)


def _changing(found: Sequence[Mapping[str, frozenset[str]]], whole: Collection[str]) -> Iterator[dict[str, list[str]]]:
    """Of each release the subjects, with the items that are not there whenever the subject is."""
    always: dict[str, frozenset[str]] = {}
    untold: set[str] = set()
    for subjects in found:
        for subject, items in subjects.items():
            always[subject] = always.get(subject, items) & items
            if OPEN in items:
                untold.add(subject)
    for subjects in found:
        yield {
            subject: [] if subject in untold else sorted(items if subject in whole else items - always[subject])
            for subject, items in subjects.items()
        }


def _module(name: str) -> tuple[str, bool]:
    """Return the dotted name of a file's module, and whether it is a package."""
    stem = name.partition(".")[0] if name.endswith(_COMPILED) else name.removesuffix(".py")
    if not name.endswith((".py", *_COMPILED)) or not all(part.isidentifier() for part in stem.split("/")):
        return "", False
    is_package = stem.endswith("/__init__")
    return stem.removesuffix("/__init__").replace("/", "."), is_package


def _file(text: bytes, kind: tuple[str, bool, bool], standard: Collection[str]) -> File | None:
    module, is_package, is_whole = kind
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    offers = read_offers(tree, module, is_package, text)
    taken = parameters(tree, module, offers.names) if is_whole else {}
    for name in [name for name, items in taken.items() if items is None]:  # a metaclass: messages name its __init__
        taken[name] = taken.get(f"{name}.__init__")
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] if is_whole else []
    for node in classes:
        if taken.get(node.name) is not None and f"{node.name}.__init__" not in taken:
            taken[node.name] = (*taken[node.name], *_fields(node))  # of msgspec and pydantic, too
    # What a module makes when it is asked is listed where its __all__ is.
    asked = offers.open is not None and "__getattr__" in offers.names and offers.exports is not None
    is_open = offers.below is not None or (offers.open is not None and not asked)
    return File(
        frozenset(
            name
            for name in (*offers.names, *offers.lazy, *(offers.exports or ()))
            if name.isidentifier()
            and _is_told(offers, name, standard, is_package)
            and (is_whole or not name.startswith("_") or offers.names.get(name) in ("class", "def"))
        )
        | ({OPEN} if is_open else set()),
        offers.stars,
        {node.name: frozenset(members(node)) for node in classes},
        {name: frozenset(items) for name, items in taken.items() if items is not None and not _PRIVATE.search(name)},
        {name: items for name, items in _required(tree) if items} if is_whole else {},
    )


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id


def _required(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what functions and methods must be given, as ``name!``."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, _without_default(node, 0)
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                named = node.name if method.name == "__init__" else f"{node.name}.{method.name}"
                yield named, _without_default(method, 1)


def _without_default(node: ast.FunctionDef | ast.AsyncFunctionDef, first: int) -> frozenset[str]:
    arguments = node.args
    named = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    named = named[first : len(named) - len(arguments.defaults)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return frozenset(f"{name}!" for name in (*named, *(one.arg for one, default in pairs if default is None)))


def _is_told(offers: Offers, name: str, standard: Collection[str], is_package: bool) -> bool:
    """Return whether a module defines a name, or is a package that hands it on."""
    origin = offers.names.get(name, "")
    if "module " not in origin and ":" not in origin:
        return True
    return is_package and re.split(r"[.:]", origin.removeprefix("module "))[0] not in standard


def members(node: ast.ClassDef) -> Iterator[str]:
    """Yield methods, attributes of the class, and what is set on ``self`` when an object is made: by ``__init__`` and
    by the methods that it calls. What others set may not be there yet."""
    methods = {one.name: one for one in ast.walk(node) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    yield from methods
    making = [name for name in ("__init__", "__post_init__") if name in methods]
    for name in making:  # it grows
        for inner in ast.walk(methods[name]):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value):
                yield inner.attr
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and _is_self(inner.func.value):
                called = inner.func.attr
                named = inner.args[0] if inner.args and called in _MAKING else None
                if isinstance(named, ast.Constant) and isinstance(named.value, str):
                    yield named.value
                if called in methods and called not in making:
                    making.append(called)
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _release(files: Mapping[str, File | None]) -> Release:
    @cache
    def names(module: str) -> frozenset[str]:
        file = files.get(module)
        if file is None:
            return frozenset()
        own = set(file.names)
        for star in file.stars:
            if star != module and star not in waiting:
                waiting.add(module)
                own |= {name for name in names(star) if not name.startswith("_")}  # OPEN, too
                waiting.discard(module)
        return frozenset(own)

    waiting: set[str] = set()
    found: Release = {section: {} for section in SECTIONS}
    taken = {
        f"{module}:{name}": items for module, file in files.items() if file for name, items in file.parameters.items()
    }
    for module, file in files.items():
        found["offers"][module] = names(module)
        for name, items in file.members.items() if file is not None else ():
            found["members"][f"{module}:{name}"] = items
        for name in file.parameters if file is not None else ():
            place = f"{module}:{name}"
            found["parameters"][place] = _with_bases(place, taken) | file.required.get(name, frozenset())
    return found


def _with_bases(place: str, taken: Mapping[str, frozenset[str]], depth: int = 0) -> frozenset[str]:
    """Return the keywords of a function or class, with those of its base classes in this package."""
    items = taken.get(place, frozenset())
    found = {item for item in items if not item.startswith(("&", "*"))}
    for base in (item[1:] for item in items if item.startswith("&")):
        found |= _with_bases(base, taken, depth + 1) if depth < _DEEPEST else set()
    return frozenset(found)
