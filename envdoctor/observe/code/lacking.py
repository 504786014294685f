"""Looks up what a script uses in the installed files. Runs in a bounded child.

It is asked about a ``use`` as ``[kind, module, name, keyword, parameters]``, in the ``folders`` of an environment below
its ``root``; ``complete`` says whether they are all. It answers false where the files have it, null where that cannot
be told, and otherwise what is missing: the dotted name of a module or of what should lie in one, the keyword, or how
the base class calls the method that is overridden (``2 num_items_in_batch=``).
"""

import sys
from collections.abc import Sequence
from functools import cache

from envdoctor.source.library import Library, Unreadable
from envdoctor.source.names import Names
from envdoctor.source.signatures import can_be_called
from envdoctor.source.values import UNKNOWN, World
from envdoctor.system.files import Files

_RECURSION = 6000


def answer(use: Sequence[str], *, root: str, folders: Sequence[str], complete: bool) -> str | bool | None:
    """Return what the installed files lack of one use."""
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
