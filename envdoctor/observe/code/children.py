"""Answer questions about code in a child: what a file uses, by its syntax tree, and what installed files lack."""

import sys
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from envdoctor.source.definitions import attributes_of, methods_of, siblings_of
from envdoctor.source.library import Library, Unreadable
from envdoctor.source.names import Names
from envdoctor.source.notebook import parse_code
from envdoctor.source.signatures import can_be_called
from envdoctor.source.uses import uses_of
from envdoctor.source.values import UNKNOWN, World
from envdoctor.system.files import Files

_RECURSION = 6000


def code_of(content: bytes, own: Collection[str], *, notebook: bool, definitions: bool = False) -> dict[str, Any]:
    """Return ``uses``, ``mentioned``, ``provided`` and ``classes`` of one file (``source/uses.py``; in place of its
    line a use has its place, the line and the cell of a notebook), ``unread`` cells, and with ``definitions`` also
    ``methods``, ``attributes`` and ``siblings`` (``source/definitions.py``). ``own`` are the project's own modules.
    Raises what :func:`parse_code` and :func:`uses_of` raise."""
    tree, place, unread = parse_code(content, notebook=notebook)
    uses = uses_of(tree, own)
    columns = {
        "uses": [(*use[:-1], place(use.line)) for use in uses.uses],
        "mentioned": sorted(uses.mentioned),
        "provided": sorted(uses.provided),
        "classes": uses.classes,
        "unread": unread,
    }
    if definitions:
        parts = {"methods": methods_of, "attributes": attributes_of, "siblings": siblings_of}
        columns |= {name: sorted(set(reader(tree))) for name, reader in parts.items()}
    return columns


def lacks_of(use: Sequence[str], *, root: str, folders: Sequence[str], complete: bool) -> str | bool | None:
    """Return what the installed files lack of a ``use``, ``[kind, module, name, keyword, parameters]``: False if they
    have it, None if that is unknown, else what is missing: the dotted name of a module or of what should lie in one,
    the keyword, or how the base class calls the overridden method (``2 num_items_in_batch=``). ``folders`` are those of
    an environment below its ``root``; ``complete`` says whether they are all."""
    sys.setrecursionlimit(_RECURSION)
    try:
        return _lacks(use, _names(root, complete, *folders))
    except (Unreadable, RecursionError, MemoryError):
        return None


@cache
def _names(root: str, complete: bool, *folders: str) -> Names:
    """Return the modules of one environment, read once."""
    world = World(
        version=lambda name: UNKNOWN,
        owners={},
        python=None,
        platform="",
        standard=frozenset(sys.stdlib_module_names),
        followed=lambda top: True,
        complete=complete,
    )
    return Names(Library(folders, Files(root)), world)


def _lacks(use: Sequence[str], names: Names) -> str | bool | None:
    kind, module, name, keyword, parameters = use
    missing = _missing(names, module, name)
    if missing is not False or kind not in ("keyword", "override"):
        return missing
    place = names.place(module, name)
    if place is None:
        return None
    if kind == "keyword":
        takes = names.takes(place, keyword)
        return None if takes is None else False if takes else keyword
    ways = names.ways(place)
    return None if ways is None else next((way for way in ways if not can_be_called(parameters, way)), False)


def _missing(names: Names, module: str, name: str) -> str | bool | None:
    """Return the dotted name of what is missing; False when all of it is there."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        inner = ".".join(parts[:length])
        there = names.exists(inner)
        if there is not True:
            return inner if there is False else None
    for part in filter(None, name.split(".")):
        offered = names.has(module, part)
        if offered is not True:
            return f"{module}.{part}" if offered is False else None
        if names.library.find(f"{module}.{part}") is None:
            return False  # no module: what belongs to it is not followed
        offers = names.library.offers(module)
        if offers is not None and offers.names.get(part, "module").partition(" ")[0] != "module":
            return False
        module = f"{module}.{part}"
    return False
