"""Looks up what a script uses in the installed files. Runs in a bounded child.

It is asked about a ``use`` as ``[kind, module, name, keyword, parameters]``, in the ``folders`` of an environment below
its ``root``; ``complete`` says whether they are all. It answers false where the files have it, null where that cannot
be told, and otherwise what is missing: the dotted name of a module or of what should lie in one, the keyword, or how
the base class calls the method that is overridden (``2 num_items_in_batch=``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

from envdoctor.source.library import Library, Unreadable
from envdoctor.source.names import Names
from envdoctor.source.overriding import can_be_called
from envdoctor.source.places import Places
from envdoctor.source.world import UNKNOWN, World
from envdoctor.text.files import Files

_RECURSION = 6000


def answer(use: Sequence[str], *, root: str, folders: Sequence[str], complete: bool) -> str | bool | None:
    """What the installed files lack of one use."""
    sys.setrecursionlimit(_RECURSION)
    return _installed(root, complete, *folders).lacks(*use)


class Installed:
    """The modules of one environment."""

    def __init__(self, root: str, complete: bool, *folders: str) -> None:
        self._library = Library(folders, Files(root))
        world = World(
            version=lambda name: UNKNOWN,
            owners={},
            python=None,
            platform="",
            standard=frozenset(sys.stdlib_module_names),
            followed=lambda top: True,
            complete=complete,
        )
        self._names = Names(self._library, world)
        self._places = Places(self._names)

    def lacks(self, kind: str, module: str, name: str, keyword: str, parameters: Sequence[str]) -> str | bool | None:
        """What the installed files lack of one use."""
        try:
            missing = self._missing(module, name)
            if missing is not False or kind not in ("keyword", "override"):
                return missing
            place = self._places.place(module, name)
            if place is None:
                return None
            if kind == "keyword":
                takes = self._places.takes(place, keyword)
                return None if takes is None else False if takes else keyword
            ways = self._places.ways(place)
            return None if ways is None else next((way for way in ways if not can_be_called(parameters, way)), False)
        except (Unreadable, RecursionError, MemoryError):
            return None

    def _missing(self, module: str, name: str) -> str | bool | None:
        """The dotted name of what is missing; False when all of it is there."""
        parts = module.split(".")
        for length in range(1, len(parts) + 1):
            inner = ".".join(parts[:length])
            there = self._names.exists(inner)
            if there is not True:
                return inner if there is False else None
        for part in filter(None, name.split(".")):
            offered = self._names.has(module, part)
            if offered is not True:
                return f"{module}.{part}" if offered is False else None
            if self._library.find(f"{module}.{part}") is None or self._binds(module, part):
                return False  # no module: what belongs to it is not followed
            module = f"{module}.{part}"
        return False

    def _binds(self, module: str, name: str) -> bool:
        """Whether a module binds a name to something else than the module below it."""
        offers = self._library.offers(module)
        return offers is not None and offers.names.get(name, "module").partition(" ")[0] != "module"


_installed = cache(Installed)
